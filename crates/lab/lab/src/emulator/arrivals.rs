use std::time::Duration;

use longhaul_units::{Instant, Rate};

/// When packets came. The device does not tell, so it is when they are found.
///
/// A thread that had no turn finds as one burst what had come evenly. What it finds then is taken
/// to have come since nobody looked, at the rate at which packets came before.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// The time since which nobody looked, until everything that came meanwhile is read.
    unseen: Option<Instant>,
    last: Instant,
    /// Bytes since a time.
    counted: (Instant, u64),
    rate: Rate,
}

impl Arrivals {
    pub(super) fn new(start: Instant) -> Self {
        Self { unseen: None, last: start, counted: (start, 0), rate: Rate::ZERO }
    }

    /// Nothing waits to be read.
    pub(super) fn caught_up(&mut self) {
        self.unseen = None;
    }

    /// True if what is being read came while nobody looked.
    pub(super) fn are_late(&self) -> bool {
        self.unseen.is_some()
    }

    /// When a packet of so many bytes came that is found now, while something has been `due` to be
    /// delivered.
    pub(super) fn found(&mut self, now: Instant, due: Option<Instant>, bytes: u64) -> Instant {
        let late = due.filter(|due| now.since(*due) > LATE);
        if let (None, Some(since)) = (self.unseen, late) {
            self.unseen = late;
            self.count_until(since);
        }
        let at = match self.unseen {
            None => self.count(now, bytes),
            Some(since) => {
                let even = self.last.max(since) + self.rate.time_for(bytes);
                self.counted = (now, 0);
                even.min(now)
            }
        };
        self.last = at.max(self.last);
        self.last
    }

    /// A pause from before nobody looked may have been one since.
    fn count_until(&mut self, since: Instant) {
        let (from, bytes) = self.counted;
        let elapsed = since.since(from);
        if elapsed >= WINDOW * 2 {
            self.rate = Rate::from_bytes_over(bytes, elapsed);
        }
    }

    fn count(&mut self, now: Instant, bytes: u64) -> Instant {
        let (since, before) = self.counted;
        let bytes = before + bytes;
        self.counted = (since, bytes);
        let elapsed = now.since(since);
        if elapsed >= WINDOW {
            // With a pause in it, it says nothing of the rate between pauses.
            if elapsed < WINDOW * 2 {
                self.rate = Rate::from_bytes_over(bytes, elapsed);
            }
            self.counted = (now, 0);
        }
        now
    }
}

/// Packets that come while nobody looks for longer seem one burst, which a shallow queue does not
/// take.
const LATE: Duration = Duration::from_millis(1);
/// Long enough for the batches of a sender not to matter.
const WINDOW: Duration = Duration::from_millis(4);

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1 << 40);

    fn at(micros: u64) -> Instant {
        START + Duration::from_micros(micros)
    }

    /// 1500 bytes every 100 us for ten milliseconds.
    fn steady() -> Arrivals {
        let mut arrivals = Arrivals::new(START);
        for micros in (100..=10_000).step_by(100) {
            assert_eq!(arrivals.found(at(micros), None, 1500), at(micros));
            arrivals.caught_up();
        }
        arrivals
    }

    #[test]
    fn packets_that_nobody_saw_came_as_evenly_as_before() {
        let mut arrivals = steady();
        // A delivery was due at 10.05 ms, the next turn came at 13 ms: thirty packets wait.
        let found: Vec<Instant> =
            (0..30).map(|_| arrivals.found(at(13_000), Some(at(10_050)), 1500)).collect();
        assert!(arrivals.are_late());
        for (number, found) in (1u64..).zip(found) {
            let expected = at(10_000 + 100 * number);
            let error = found.since(expected).max(expected.since(found));
            assert!(error < Duration::from_micros(100), "{number}: {found:?}, not {expected:?}");
        }
        arrivals.caught_up();
        assert_eq!(arrivals.found(at(13_100), None, 1500), at(13_100));
        assert!(!arrivals.are_late());
    }

    #[test]
    fn nothing_comes_before_nobody_looked_or_after_it_is_found() {
        let mut arrivals = steady();
        let (since, now) = (at(12_000), at(15_000));
        for _ in 0..100 {
            let found = arrivals.found(now, Some(since), 1500);
            assert!(found > since && found <= now);
        }
        assert_eq!(arrivals.found(now, Some(since), 1500), now, "more than before");
    }

    #[test]
    fn a_pause_before_nobody_looked_may_have_gone_on() {
        let mut arrivals = steady();
        // Nothing came for 190 ms; a delivery was due then, and the turn came 50 ms later.
        let found = arrivals.found(at(203_000), Some(at(200_000)), 1500);
        assert_eq!(found, at(203_000));
    }

    #[test]
    fn a_reader_that_is_hardly_late_sees_what_is() {
        let mut arrivals = steady();
        assert_eq!(arrivals.found(at(11_000), Some(at(10_100)), 1500), at(11_000));
        assert!(!arrivals.are_late());
    }

    #[test]
    fn without_a_rate_it_is_when_they_are_found() {
        let mut arrivals = Arrivals::new(START);
        assert_eq!(arrivals.found(at(9_000), Some(at(5_000)), 1500), at(9_000));
    }
}
