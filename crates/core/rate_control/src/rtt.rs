use longhaul_units::{Duration, Instant};

use crate::filter::MinFilter;

/// Round-trip time: smoothed, varying, latest and least.
///
/// Smoothing as RFC 9002 section 5.3. Samples are already free of the receiver's delay
/// (docs/protocol.md 5.4).
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    initial: Duration,
    smoothed: Duration,
    variation: Duration,
    latest: Duration,
    min: MinFilter,
}

impl RttEstimator {
    /// An estimator that says `initial` until it has a sample, from the handshake for example.
    pub fn new(initial: Duration) -> Self {
        Self {
            initial,
            smoothed: initial,
            variation: initial / 2,
            latest: initial,
            min: MinFilter::new(),
        }
    }

    /// Takes in a sample.
    pub fn update(&mut self, now: Instant, sample: Duration) {
        if self.has_sample() {
            let deviation = self.smoothed.abs_diff(sample);
            self.variation = (self.variation * 3 + deviation) / 4;
            self.smoothed = (self.smoothed * 7 + sample) / 8;
        } else {
            self.smoothed = sample;
            self.variation = sample / 2;
        }
        self.latest = sample;
        let nanos = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        self.min.update(now, nanos, MIN_WINDOW);
    }

    /// Exponentially smoothed.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Smoothed mean deviation from [`RttEstimator::smoothed`].
    pub fn variation(&self) -> Duration {
        self.variation
    }

    /// The newest sample.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// The least of the last ten seconds.
    pub fn min(&self) -> Duration {
        self.min.get().map_or(self.initial, Duration::from_nanos)
    }

    /// Returns whether any sample was taken.
    pub fn has_sample(&self) -> bool {
        self.min.get().is_some()
    }

    /// Returns the time to wait for news before probing: 1.5 round trips, more if they vary, and the
    /// receiver's feedback interval (docs/protocol.md 5.4.1).
    pub fn probe_timeout(&self, feedback_interval: Duration) -> Duration {
        self.smoothed + (self.smoothed / 2).max(self.variation * 4) + feedback_interval
    }
}

/// Long enough for a queue of our own to be drained within it, short enough to follow a new route.
const MIN_WINDOW: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_replaces_the_guess() {
        let mut rtt = RttEstimator::new(MS * 333);
        assert_eq!((rtt.smoothed(), rtt.min(), rtt.has_sample()), (MS * 333, MS * 333, false));
        rtt.update(Instant::ZERO, MS * 100);
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.min()), (MS * 100, MS * 50, MS * 100));
        assert!(rtt.has_sample());
    }

    #[test]
    fn a_steady_path_is_probed_after_one_and_a_half_round_trips() {
        let mut rtt = RttEstimator::new(MS * 10);
        for i in 0..100 {
            rtt.update(Instant::ZERO + MS * i, MS * 100);
        }
        assert_eq!(rtt.probe_timeout(MS * 10), MS * 160);
    }

    #[test]
    fn the_minimum_follows_a_longer_route_after_ten_seconds() {
        let mut rtt = RttEstimator::new(MS);
        rtt.update(Instant::ZERO, MS * 20);
        for i in 1..=1001 {
            rtt.update(Instant::ZERO + MS * 10 * i, MS * 30);
            assert_eq!(rtt.min(), if i <= 1000 { MS * 20 } else { MS * 30 });
        }
    }
}
