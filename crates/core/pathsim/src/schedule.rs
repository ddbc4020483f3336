//! Things that happen at given times: changes of rate, outages, rebindings.

use alloc::vec::Vec;
use core::ops::Range;
use longhaul_units::{Duration, Instant, Rate};

/// The rate of a link over time, as steps; times count from the start of the path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateSchedule {
    /// Rate from the start on.
    pub initial: Rate,
    /// From each time on, that rate. Times must rise, and the last rate must not be zero; zero
    /// in between holds the queue (a circuit that is being switched).
    pub changes: Vec<(Duration, Rate)>,
}

impl RateSchedule {
    /// A rate that never changes.
    pub const fn constant(rate: Rate) -> Self {
        Self { initial: rate, changes: Vec::new() }
    }

    /// The same, but from `at` on the rate is `rate`.
    #[must_use]
    pub fn then(mut self, at: Duration, rate: Rate) -> Self {
        self.changes.push((at, rate));
        self
    }
}

impl From<Rate> for RateSchedule {
    fn from(rate: Rate) -> Self {
        Self::constant(rate)
    }
}

/// When a line loses everything that enters it; times count from the start of the path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outages {
    /// From the first time up to and without the second; in any order.
    pub windows: Vec<Range<Duration>>,
    /// A further outage that comes back for ever.
    pub periodic: Option<PeriodicOutage>,
}

/// An outage of `length` at `first` and every `every` after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodicOutage {
    /// Start of the first one.
    pub first: Duration,
    /// From start to start; longer than `length`.
    pub every: Duration,
    /// Duration of each.
    pub length: Duration,
}

/// When the address translation on the path forgets its binding, so that the caller should let
/// packets come from a new source address; times count from the start of the path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebindings {
    /// Single times, in any order.
    pub at: Vec<Duration>,
    /// Also once every such period, the first time after one period. Not zero.
    pub every: Option<Duration>,
}

/// Answers whether an instant lies in an outage; instants are asked in order.
#[derive(Clone, Debug)]
pub(crate) struct OutageClock {
    /// Sorted.
    windows: Vec<Range<Instant>>,
    next_window: usize,
    periodic: Option<Period>,
    /// No outage is running before this.
    quiet_until: Instant,
}

#[derive(Clone, Debug)]
struct Period {
    start: Instant,
    every: Duration,
    length: Duration,
}

impl OutageClock {
    pub(crate) fn new(config: &Outages, start: Instant) -> Self {
        let mut windows: Vec<_> =
            config.windows.iter().map(|w| start + w.start..start + w.end).collect();
        windows.sort_by_key(|window| window.start);
        // With the ends made to rise too, the cursor never steps over a window that still runs.
        for later in 1..windows.len() {
            windows[later].end = windows[later].end.max(windows[later - 1].end);
        }
        let periodic = config.periodic.map(|outage| Period {
            start: start + outage.first,
            every: outage.every,
            length: outage.length,
        });
        let mut clock = Self { windows, next_window: 0, periodic, quiet_until: Instant::ZERO };
        clock.quiet_until = clock.next_start();
        clock
    }

    #[inline]
    pub(crate) fn is_out(&mut self, at: Instant) -> bool {
        at >= self.quiet_until && self.look(at)
    }

    #[cold]
    fn look(&mut self, at: Instant) -> bool {
        while self.windows.get(self.next_window).is_some_and(|window| window.end <= at) {
            self.next_window += 1;
        }
        if let Some(period) = &mut self.periodic {
            let passed = at.since(period.start + period.length).as_nanos();
            let every = period.every.as_nanos();
            if at >= period.start + period.length {
                let steps = u64::try_from(passed / every + 1).unwrap_or(u64::MAX);
                let nanos = u64::try_from(every).unwrap_or(u64::MAX).saturating_mul(steps);
                period.start += Duration::from_nanos(nanos);
            }
        }
        self.quiet_until = self.next_start();
        at >= self.quiet_until
    }

    /// Start of the outage that runs or comes next.
    fn next_start(&self) -> Instant {
        let window = self.windows.get(self.next_window).map(|window| window.start);
        let periodic = self.periodic.as_ref().map(|period| period.start);
        window.into_iter().chain(periodic).min().unwrap_or(Instant::FAR_FUTURE)
    }
}

/// Hands out the instants of rebindings.
#[derive(Clone, Debug)]
pub(crate) struct RebindingClock {
    /// Latest first.
    single: Vec<Instant>,
    periodic: Option<(Instant, Duration)>,
}

impl RebindingClock {
    pub(crate) fn new(config: &Rebindings, start: Instant) -> Self {
        let mut single: Vec<_> = config.at.iter().map(|&at| start + at).collect();
        single.sort_by_key(|&at| core::cmp::Reverse(at));
        Self { single, periodic: config.every.map(|every| (start + every, every)) }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        let periodic = self.periodic.map(|(next, _)| next);
        self.single.last().copied().into_iter().chain(periodic).min()
    }

    /// Takes one rebinding that is due.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let Some(next) = self.next().filter(|&next| next <= now) else { return false };
        if self.single.last() == Some(&next) {
            self.single.pop();
        } else if let Some((periodic, every)) = &mut self.periodic {
            *periodic += *every;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn at(count: u64) -> Instant {
        Instant::ZERO + ms(count)
    }

    #[test]
    fn outage_windows_are_half_open() {
        let config = Outages { windows: vec![ms(10)..ms(20), ms(30)..ms(40)], periodic: None };
        let mut clock = OutageClock::new(&config, at(100));
        let out: Vec<u64> = (100..150).filter(|&t| clock.is_out(at(t))).collect();
        assert_eq!(out, (110..120).chain(130..140).collect::<Vec<_>>());
    }

    #[test]
    fn rebindings_come_one_by_one() {
        let config = Rebindings { at: vec![ms(25), ms(5), ms(5)], every: Some(ms(10)) };
        let mut clock = RebindingClock::new(&config, at(0));
        let mut times = Vec::new();
        while times.len() < 6 {
            let next = clock.next().unwrap();
            assert!(!clock.take(next.before(Duration::from_nanos(1))));
            assert!(clock.take(next));
            times.push(next);
        }
        assert_eq!(times, [5, 5, 10, 20, 25, 30].map(at));
    }

    proptest! {
        #[test]
        fn outage_clock_agrees_with_the_definition(
            windows in prop::collection::vec((0u64..60, 0u64..20), 0..5),
            periodic in prop::option::of((0u64..40, 1u64..10, 1u64..10)),
            step in 1u64..7,
        ) {
            let periodic = periodic.map(|(first, length, gap)| PeriodicOutage {
                first: ms(first), every: ms(length + gap), length: ms(length),
            });
            let windows = windows.into_iter().map(|(start, len)| ms(start)..ms(start + len));
            let config = Outages { windows: windows.collect(), periodic };
            let mut clock = OutageClock::new(&config, Instant::ZERO);
            for t in (0..120).step_by(step as usize).map(ms) {
                let expected = config.windows.iter().any(|window| window.contains(&t))
                    || periodic.is_some_and(|p| {
                        t >= p.first && (t - p.first).as_nanos() % p.every.as_nanos()
                            < p.length.as_nanos()
                    });
                prop_assert_eq!(clock.is_out(Instant::ZERO + t), expected, "{:?}", t);
            }
        }
    }
}
