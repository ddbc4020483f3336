//! Time of threads, by what they do with it.

use core::ops::AddAssign;

use longhaul_units::Duration;

/// Time of all threads of a kind together, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// That they existed.
    pub alive: Duration,
    /// On a CPU.
    pub run: Duration,
    /// Ready for a CPU that others had.
    pub ready: Duration,
    /// Without work.
    pub idle: Duration,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.alive += other.alive;
        self.run += other.run;
        self.ready += other.ready;
        self.idle += other.idle;
    }
}

impl Spent {
    /// Time spent since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            alive: self.alive.saturating_sub(earlier.alive),
            run: self.run.saturating_sub(earlier.run),
            ready: self.ready.saturating_sub(earlier.ready),
            idle: self.idle.saturating_sub(earlier.idle),
        }
    }

    /// True if they worked whenever they got a CPU. Time that others had it does not count: a
    /// thread that has to wait for its turn and is done soon each time is not too slow.
    pub fn is_saturated(&self) -> bool {
        let offered = self.alive.saturating_sub(self.ready);
        offered > Duration::ZERO && self.run * 8 >= offered * 7
    }

    /// True if work took them less CPU time than waiting for the system, which is the disk's time.
    pub fn is_blocked(&self) -> bool {
        let awake = self.run + self.ready + self.idle;
        self.alive.saturating_sub(awake) > self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_thread_that_waits_for_its_turn_is_not_saturated_by_that() {
        let spent =
            |run, ready| Spent { alive: ms(100), run: ms(run), ready: ms(ready), idle: ms(0) };
        assert!(spent(95, 0).is_saturated() && spent(10, 89).is_saturated());
        assert!(!spent(80, 0).is_saturated() && !spent(2, 80).is_saturated());
        assert!(!Spent::default().is_saturated());
    }

    #[test]
    fn a_thread_that_neither_runs_nor_rests_is_blocked() {
        let spent = |run, ready, idle| Spent {
            alive: ms(200),
            run: ms(run),
            ready: ms(ready),
            idle: ms(idle),
        };
        assert!(spent(20, 0, 100).is_blocked());
        assert!(!spent(60, 0, 100).is_blocked() && !spent(5, 100, 95).is_blocked());
        assert!(!Spent::default().is_blocked());
    }
}
