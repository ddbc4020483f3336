//! Bytes that drain at a rate: the arithmetic under the queue and the policer.

use alloc::vec::Vec;
use longhaul_units::Instant;

use crate::schedule::RateSchedule;

/// A level of work that drains at a rate which may change at given instants.
///
/// Work is counted in billionths of a bit, so that a rate in bits per second drains exactly
/// `rate` units a nanosecond and no rounding ever accumulates.
#[derive(Clone, Debug)]
pub(crate) struct Fluid {
    level: u64,
    /// Nanoseconds; the level is that of this time.
    at: u64,
    rate: u64,
    next_change: u64,
    /// Later changes of rate, (nanoseconds, bits per second).
    changes: Vec<(u64, u64)>,
    change: usize,
}

impl Fluid {
    pub(crate) fn new(schedule: &RateSchedule, start: Instant) -> Self {
        let changes: Vec<_> = schedule
            .changes
            .iter()
            .map(|&(at, rate)| ((start + at).as_nanos(), rate.as_bps()))
            .collect();
        Self {
            level: 0,
            at: start.as_nanos(),
            rate: schedule.initial.as_bps(),
            next_change: changes.first().map_or(u64::MAX, |change| change.0),
            changes,
            change: 0,
        }
    }

    /// The work of `bytes`, saturating.
    pub(crate) const fn work(bytes: u64) -> u64 {
        bytes.saturating_mul(WORK_PER_BYTE)
    }

    /// Bytes that `work` stands for, a part of a byte counting whole.
    pub(crate) const fn bytes(work: u64) -> u64 {
        work.div_ceil(WORK_PER_BYTE)
    }

    /// Lets work drain until `now`, and tells what is left. Does nothing if `now` is earlier
    /// than the last time.
    #[inline]
    pub(crate) fn drain(&mut self, now: Instant) -> u64 {
        let now = now.as_nanos();
        if now >= self.next_change {
            self.pass_changes(now);
        }
        self.drain_constant(now);
        self.level
    }

    #[cold]
    fn pass_changes(&mut self, now: u64) {
        while let Some(&(at, rate)) = self.changes.get(self.change).filter(|next| next.0 <= now) {
            self.drain_constant(at);
            self.rate = rate;
            self.change += 1;
        }
        self.next_change = self.changes.get(self.change).map_or(u64::MAX, |next| next.0);
    }

    #[inline]
    fn drain_constant(&mut self, until: u64) {
        if until > self.at {
            if self.level > 0 {
                // A product beyond 64 bits is more than any level.
                let drained = self.rate.saturating_mul(until - self.at);
                self.level = self.level.saturating_sub(drained);
            }
            self.at = until;
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, work: u64) {
        self.level = self.level.saturating_add(work);
    }

    /// The instant at which all present work is done, rounded up.
    #[inline]
    pub(crate) fn empty_at(&self) -> Instant {
        if self.next_change == u64::MAX {
            return Instant::from_nanos(self.at.saturating_add(wait(self.level, self.rate)));
        }
        self.empty_across_changes()
    }

    fn empty_across_changes(&self) -> Instant {
        let (mut level, mut at, mut rate) = (self.level, self.at, self.rate);
        for &(change, next_rate) in &self.changes[self.change..] {
            let drained = rate.saturating_mul(change - at);
            if drained >= level {
                break;
            }
            level -= drained;
            (at, rate) = (change, next_rate);
        }
        Instant::from_nanos(at.saturating_add(wait(level, rate)))
    }
}

#[inline]
fn wait(work: u64, rate: u64) -> u64 {
    match (work, rate) {
        (0, _) => 0,
        (_, 0) => u64::MAX,
        _ => work.div_ceil(rate),
    }
}

const WORK_PER_BYTE: u64 = 8_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::{Duration, Rate};

    fn us(count: u64) -> Instant {
        Instant::from_nanos(count * 1_000)
    }

    #[test]
    fn drains_exactly() {
        let mut fluid = Fluid::new(&Rate::from_bps(3).into(), Instant::ZERO);
        fluid.add(Fluid::work(1));
        // 8 bits at 3 bits per second: two seconds and two thirds.
        assert_eq!(fluid.empty_at(), Instant::from_nanos(2_666_666_667));
        assert_eq!(Fluid::bytes(fluid.drain(Instant::from_nanos(2_666_666_666))), 1);
        assert_eq!(fluid.drain(Instant::from_nanos(2_666_666_667)), 0);
    }

    #[test]
    fn follows_changes_of_rate() {
        let schedule = RateSchedule::constant(Rate::from_mbps(8))
            .then(Duration::from_micros(10), Rate::ZERO)
            .then(Duration::from_micros(20), Rate::from_mbps(80));
        let mut fluid = Fluid::new(&schedule, Instant::ZERO);
        fluid.add(Fluid::work(30));
        // Ten bytes in 10 us, none in the next ten, then ten a microsecond.
        assert_eq!(fluid.empty_at(), us(22));
        assert_eq!(Fluid::bytes(fluid.drain(us(15))), 20);
        assert_eq!(fluid.empty_at(), us(22));
        assert_eq!(Fluid::bytes(fluid.drain(us(21))), 10);
        assert_eq!(fluid.empty_at(), us(22));
        assert_eq!(fluid.drain(us(22)), 0);
    }

    #[test]
    fn time_does_not_run_back() {
        let mut fluid = Fluid::new(&Rate::from_mbps(8).into(), Instant::ZERO);
        fluid.add(Fluid::work(20));
        assert_eq!(Fluid::bytes(fluid.drain(us(10))), 10);
        assert_eq!(Fluid::bytes(fluid.drain(us(5))), 10);
        assert_eq!(fluid.empty_at(), us(20));
    }

    #[test]
    fn extremes_do_not_panic() {
        let schedule = RateSchedule::constant(Rate::MAX).then(Duration::MAX, Rate::MAX);
        let mut fluid = Fluid::new(&schedule, Instant::from_nanos(u64::MAX - 1));
        fluid.add(u64::MAX);
        fluid.add(Fluid::work(u64::MAX));
        assert_eq!(fluid.empty_at(), Instant::FAR_FUTURE);
        fluid.drain(Instant::FAR_FUTURE);
        fluid.drain(Instant::FAR_FUTURE);
    }
}
