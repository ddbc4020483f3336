//! The service's time, which never goes back.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 that only ever grow.
///
/// Taken once from the wall clock, or from the log's last decision if that is later, and carried
/// on by the monotonic clock: a wall clock that steps while the service runs changes nothing, and
/// one that was set back while it was down does not undo what has passed. [`Clock::ahead_of_wall`]
/// reports how far the two are apart; a restart brings them together again.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: u64,
    origin: Instant,
}

impl Clock {
    /// A clock that shows the wall's time, but no less than `floor`.
    pub fn start(floor: u64) -> Self {
        Self::new(wall(), floor, Instant::now())
    }

    fn new(wall: u64, floor: u64, origin: Instant) -> Self {
        Self { base: wall.max(floor), origin }
    }

    /// Nanoseconds since 1970.
    pub fn nanos(&self) -> u64 {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.origin).as_nanos();
        self.base.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Nanoseconds by which it is ahead of the wall clock, negative if behind.
    pub fn ahead_of_wall(&self) -> i64 {
        let (own, wall) = (i128::from(self.nanos()), i128::from(wall()));
        i64::try_from(own - wall).unwrap_or(i64::MAX)
    }
}

fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_goes_on_from_the_later_of_wall_and_log() {
        let origin = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(Clock::new(50, 20, origin).at(origin + second), 1_000_000_050);
        // The wall was set back while the service was down.
        let clock = Clock::new(50, 2000, origin);
        assert_eq!(clock.at(origin), 2000);
        assert_eq!(clock.at(origin + second), 1_000_002_000);
    }

    #[test]
    fn a_clock_ahead_of_the_wall_says_so() {
        let clock = Clock::start(wall() + 3_600_000_000_000);
        assert!(clock.ahead_of_wall() > 3_000_000_000_000);
    }
}
