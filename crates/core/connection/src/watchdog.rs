//! Ends a transfer that stands still for a reason that nobody thought of.
//!
//! Only what cannot go on for ever is progress: object bytes that arrive or are placed for the first
//! time, entries, confirmations. What two ends tell each other meanwhile is none.
//!
//! Each end watches itself, so it believes what the other says of its own disk, input or output, and
//! what it knows of its own programs and bookings; of its own disk it believes what
//! gets done.

use alloc::string::String;
use core::fmt;

use longhaul_units::{Duration, Instant};
use longhaul_wire::Bottleneck;

use crate::silence::Silence;

/// Counts that grow while a transfer goes on, at either end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Object bytes that arrived at the peer, or here, each once.
    pub carried: u64,
    /// Bytes that were dealt or written for the first time, or need not be.
    pub moved: u64,
    /// Entries announced, and of these those that are confirmed or failed.
    pub entries: u64,
    /// See `entries`. Of a pipe, bytes that are confirmed.
    pub settled: u64,
    /// Groups that were asked for again, checkpoints, and groups of an earlier run that were compared:
    /// all are bounded by what else grows, or by what was left.
    pub other: u64,
}

/// A transfer in which nothing has moved for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalled {
    /// Time in which nothing moved.
    pub lasted: Duration,
    /// Bottleneck at the end.
    pub bound: Bottleneck,
    /// How far it was.
    pub counts: Counts,
    /// The carrier's explanation, for people.
    pub advice: Option<String>,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lasted, bound, counts, advice } = self;
        write!(f, "nothing has moved for {} s: ", lasted.as_secs())?;
        match bound {
            Bottleneck::SenderDisk | Bottleneck::ReceiverDisk => write!(
                f,
                "the {bound} got nothing done; a longer --stall-timeout gives it more time"
            )?,
            _ => write!(f, "neither end says what it waits for; held up last by: {bound}")?,
        }
        let Counts { carried, moved, entries, settled, .. } = counts;
        f.write_str(" (")?;
        if *entries > 0 {
            write!(f, "{settled} of {entries} announced entries are settled, ")?;
        }
        write!(f, "{moved} bytes of contents were taken up and {carried} crossed the network)")?;
        advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// Ends a transfer whose [`Counts`] made no progress for its patience, unless it waits for something
/// that may last.
///
/// Looked at again and again; time without looks does not count (see [`Silence`]).
#[derive(Debug)]
pub struct Watchdog {
    patience: Duration,
    counts: Counts,
    /// Silence that counts towards the end.
    silence: Option<Silence>,
    /// The same, whatever is waited for, and how long that was when it was looked at last.
    standing: Option<Silence>,
    still: Duration,
}

impl Watchdog {
    /// One that waits for `patience`; zero is for ever.
    pub fn new(patience: Duration) -> Self {
        let (counts, still) = (Counts::default(), Duration::ZERO);
        Self { patience, counts, silence: None, standing: None, still }
    }

    /// Time in which nothing has moved, whatever is waited for.
    pub fn still(&self) -> Duration {
        self.still
    }

    /// Looks at the counts at `now`; `waits` if the transfer waits for something that may last. Returns
    /// how it was once it has stood still for too long.
    pub fn look(
        &mut self,
        now: Instant,
        counts: Counts,
        waits: bool,
        bound: Bottleneck,
    ) -> Option<Stalled> {
        let moved = counts != self.counts;
        self.counts = counts;
        if waits || moved || self.silence.is_none() {
            self.silence = Some(Silence::since(now));
        }
        if moved || self.standing.is_none() {
            self.standing = Some(Silence::since(now));
        }
        self.still = self.standing.as_mut()?.look(now);
        let lasted = self.silence.as_mut()?.look(now);
        if self.patience.is_zero() || lasted < self.patience {
            return None;
        }
        Some(Stalled { lasted, bound, counts, advice: None })
    }
}

/// True if the sender itself reports a cause that may last: it watches its disk, and knows its booking and
/// its input.
pub fn lasts_at_sender(bound: Bottleneck) -> bool {
    matches!(bound, Bottleneck::SenderDisk | Bottleneck::Reservation | Bottleneck::Input)
}

/// True if the receiver reports a cause of its storage that may last: it watches its disk, what it hashes, and
/// what takes its output.
pub fn lasts_at_receiver(storage: Bottleneck) -> bool {
    use Bottleneck::{Output, ReceiverCpu, ReceiverDisk};
    matches!(storage, ReceiverDisk | ReceiverCpu | Output)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// Looks every 100 ms, from `from` to `to` in seconds; when it ended the copy.
    fn watch(
        watchdog: &mut Watchdog,
        from: u64,
        to: u64,
        mut seen: impl FnMut(u64) -> (u64, bool),
    ) -> Option<u64> {
        (from * 10..to * 10).find(|tenth| {
            let now = Instant::ZERO + Duration::from_millis(tenth * 100);
            let (moved, waits) = seen(tenth / 10);
            let counts = Counts { moved, ..Counts::default() };
            watchdog.look(now, counts, waits, Bottleneck::Network).is_some()
        })
    }

    const PATIENCE: Duration = Duration::from_secs(300);

    #[test]
    fn what_stands_still_ends_after_its_patience() {
        let mut watchdog = Watchdog::new(PATIENCE);
        let ended = watch(&mut watchdog, 0, 1000, |second| (second.min(50), false));
        assert_eq!(ended, Some(3500));
    }

    #[test]
    fn whatever_moves_now_and_then_goes_on() {
        let mut watchdog = Watchdog::new(PATIENCE);
        assert_eq!(watch(&mut watchdog, 0, 10_000, |second| (second / 299, false)), None);
    }

    #[test]
    fn what_says_why_it_waits_goes_on_and_is_watched_again_afterwards() {
        let mut watchdog = Watchdog::new(PATIENCE);
        assert_eq!(watch(&mut watchdog, 0, 5000, |_| (1, true)), None);
        assert_eq!(watch(&mut watchdog, 5000, 6000, |_| (1, false)), Some(52_999));
    }

    #[test]
    fn how_long_nothing_has_moved_is_known_also_of_what_waits() {
        let mut watchdog = Watchdog::new(PATIENCE);
        assert_eq!(watch(&mut watchdog, 0, 5000, |_| (1, true)), None);
        assert_eq!(watchdog.still(), Duration::from_millis(4_999_900));
        assert_eq!(watch(&mut watchdog, 5000, 5001, |_| (2, true)), None);
        assert_eq!(watchdog.still(), Duration::from_millis(900));
    }

    #[test]
    fn time_in_which_this_process_stood_still_does_not_count() {
        let mut watchdog = Watchdog::new(PATIENCE);
        let look = |watchdog: &mut Watchdog, second| {
            let now = Instant::ZERO + Duration::from_secs(second);
            watchdog.look(now, Counts::default(), false, Bottleneck::Unknown)
        };
        for second in [0, 10_000, 20_000] {
            assert_eq!(look(&mut watchdog, second), None);
        }
    }

    #[test]
    fn no_patience_is_endless_patience() {
        let mut watchdog = Watchdog::new(Duration::ZERO);
        assert_eq!(watch(&mut watchdog, 0, 10_000, |_| (0, false)), None);
    }

    #[test]
    fn it_says_what_is_known() {
        let mut watchdog = Watchdog::new(Duration::from_millis(100));
        let counts = Counts { carried: 9, moved: 7, entries: 5, settled: 3, other: 0 };
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(watchdog.look(at(0), counts, false, Bottleneck::Network), None);
        let reason =
            watchdog.look(at(100), counts, false, Bottleneck::Network).unwrap().to_string();
        for known in ["3 of 5 announced entries", "7 bytes of contents", "9 crossed", "by: network"]
        {
            assert!(reason.contains(known), "{reason}");
        }
        let reason =
            watchdog.look(at(200), counts, false, Bottleneck::ReceiverDisk).unwrap().to_string();
        assert!(reason.contains("the receiver disk got nothing done"), "{reason}");
        let pipe = Counts { entries: 0, ..counts };
        watchdog.look(at(300), pipe, false, Bottleneck::Network);
        let reason = watchdog.look(at(400), pipe, false, Bottleneck::Network).unwrap().to_string();
        assert!(!reason.contains("entries"), "{reason}");
    }

    /// The sink's report of its disk comes back to it in the source's reports.
    #[test]
    fn an_end_is_not_believed_about_the_other() {
        for bound in (0..Bottleneck::COUNT).map(|code| Bottleneck::from_code(code as u8)) {
            assert!(!lasts_at_sender(bound) || !lasts_at_receiver(bound), "{bound}");
        }
        assert!(!lasts_at_sender(Bottleneck::ReceiverDisk));
        assert!(!lasts_at_receiver(Bottleneck::SenderDisk));
        assert!(!lasts_at_sender(Bottleneck::Network) && !lasts_at_receiver(Bottleneck::Unknown));
    }
}
