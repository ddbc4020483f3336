//! Best value over a sliding window, in constant space.

use longhaul_units::{Duration, Instant};

/// The largest value of the last `window`, from at most three remembered samples
/// (K. Nichols' windowed filter, as in Linux `lib/minmax.c`).
///
/// Exact when one sample dominates; otherwise at most the second or third best of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxFilter {
    best: [(Instant, u64); 3],
    empty: bool,
}

impl MaxFilter {
    pub(crate) const fn new() -> Self {
        Self { best: [(Instant::ZERO, 0); 3], empty: true }
    }

    pub(crate) const fn get(&self) -> Option<u64> {
        if self.empty { None } else { Some(self.best[0].1) }
    }

    /// Forgets all but `value`.
    pub(crate) fn reset(&mut self, now: Instant, value: u64) {
        self.best = [(now, value); 3];
        self.empty = false;
    }

    pub(crate) fn update(&mut self, now: Instant, value: u64, window: Duration) {
        if self.empty || value >= self.best[0].1 || now - self.best[2].0 > window {
            self.reset(now, value);
            return;
        }
        if value >= self.best[1].1 {
            self.best[1] = (now, value);
            self.best[2] = (now, value);
        } else if value >= self.best[2].1 {
            self.best[2] = (now, value);
        }
        self.expire(now, value, window);
    }

    fn expire(&mut self, now: Instant, value: u64, window: Duration) {
        let age = now - self.best[0].0;
        if age > window {
            self.best = [self.best[1], self.best[2], (now, value)];
            if now - self.best[0].0 > window {
                self.best = [self.best[1], self.best[2], (now, value)];
            }
        } else if self.best[1].0 == self.best[0].0 && age > window / 4 {
            // A quarter of the window has passed without a second choice: take one from here on.
            self.best[1] = (now, value);
            self.best[2] = (now, value);
        } else if self.best[2].0 == self.best[1].0 && age > window / 2 {
            self.best[2] = (now, value);
        }
    }
}

/// The smallest value of the last `window`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinFilter(MaxFilter);

impl MinFilter {
    pub(crate) const fn new() -> Self {
        Self(MaxFilter::new())
    }

    pub(crate) fn get(&self) -> Option<u64> {
        self.0.get().map(|value| u64::MAX - value)
    }

    pub(crate) fn update(&mut self, now: Instant, value: u64, window: Duration) {
        self.0.update(now, u64::MAX - value, window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_nanos(100);

    proptest! {
        #[test]
        fn stays_between_the_newest_and_the_true_maximum(
            samples in prop::collection::vec((0u64..40, 0u64..1000), 1..200)
        ) {
            let (mut filter, mut now, mut seen) = (MaxFilter::new(), 0, Vec::new());
            for (step, value) in samples {
                now += step;
                seen.push((now, value));
                filter.update(Instant::from_nanos(now), value, WINDOW);
                let alive = seen.iter().filter(|(at, _)| now - at <= 100).map(|(_, v)| *v);
                let got = filter.get().unwrap();
                prop_assert!(got >= value);
                prop_assert!(got <= alive.max().unwrap());
            }
        }
    }

    #[test]
    fn an_old_maximum_is_forgotten() {
        let mut filter = MaxFilter::new();
        filter.update(Instant::from_nanos(0), 9, WINDOW);
        for at in (10..=100).step_by(10) {
            filter.update(Instant::from_nanos(at), 5, WINDOW);
            assert_eq!(filter.get(), Some(9));
        }
        filter.update(Instant::from_nanos(101), 4, WINDOW);
        assert_eq!(filter.get(), Some(5));
    }

    #[test]
    fn the_minimum_is_the_mirror() {
        let mut filter = MinFilter::new();
        assert_eq!(filter.get(), None);
        filter.update(Instant::from_nanos(0), 3, WINDOW);
        filter.update(Instant::from_nanos(1), 7, WINDOW);
        assert_eq!(filter.get(), Some(3));
    }
}
