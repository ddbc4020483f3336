//! Ends a copy that stands still for a reason that nobody thought of.

use longhaul_units::{Duration, Instant};
use longhaul_wire::Bottleneck;

use crate::silence::Silence;

/// What grows while a copy goes on, at either end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes that the lanes have delivered or received.
    pub passed: u64,
    /// Bytes of files that were dealt, or written for the first time.
    pub moved: u64,
    /// Entries announced, and of these those that are confirmed or failed.
    pub entries: u64,
    /// See `entries`.
    pub settled: u64,
    /// Groups that were asked for again, and checkpoints: both are bounded by what else grows.
    pub other: u64,
}

/// Watches [`Counts`], and what this end says that it or its peer waits for: disks, and the begin
/// of a booking. Whatever else stands still for its patience is at its end.
///
/// Looked at again and again; time without looks does not count (see [`Silence`]).
#[derive(Debug)]
pub(crate) struct Watchdog {
    patience: Duration,
    counts: Counts,
    silence: Option<Silence>,
}

impl Watchdog {
    /// One that waits for `patience`; zero is for ever.
    pub fn new(patience: Duration) -> Self {
        Self { patience, counts: Counts::default(), silence: None }
    }

    /// What is seen at `now`, and what is known to be waited for. In words what became of the copy
    /// once it has stood still for too long.
    pub fn look(
        &mut self,
        now: Instant,
        counts: Counts,
        waits: bool,
        bound: Bottleneck,
    ) -> Option<String> {
        if waits || counts != self.counts || self.silence.is_none() {
            self.counts = counts;
            self.silence = Some(Silence::since(now));
        }
        let lasted = self.silence.as_mut()?.look(now);
        if self.patience.is_zero() || lasted < self.patience {
            return None;
        }
        let Counts { passed, moved, entries, settled, .. } = counts;
        Some(format!(
            "nothing has moved for {} s, and neither end says what it waits for ({settled} of \
             {entries} announced entries are settled, {moved} bytes of files and {passed} bytes in \
             packets have passed; held up last by: {bound})",
            lasted.as_secs()
        ))
    }
}

/// Whether `bound` is what a disk makes everybody wait for, or a booking that has not begun: it may
/// last, and is over some time.
pub(crate) fn may_last(bound: Bottleneck) -> bool {
    matches!(bound, Bottleneck::SenderDisk | Bottleneck::ReceiverDisk | Bottleneck::Reservation)
}

#[cfg(test)]
mod tests {
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
        let counts = Counts { passed: 9, moved: 7, entries: 5, settled: 3, other: 0 };
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(watchdog.look(at(0), counts, false, Bottleneck::Network), None);
        let said = watchdog.look(at(100), counts, false, Bottleneck::Network).unwrap();
        assert!(said.contains("3 of 5 announced entries") && said.contains("7 bytes of files"));
        assert!(said.contains("network"), "{said}");
    }
}
