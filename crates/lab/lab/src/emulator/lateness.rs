use std::time::Duration;

use hdrhistogram::Histogram;

/// Lateness of deliveries: the delay that the emulator adds to the path.
#[derive(Clone, Debug)]
pub(super) struct Lateness {
    /// Nanoseconds, to two digits.
    histogram: Histogram<u64>,
}

/// [`crate::emulator::DirectionStats::lateness`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LatenessSummary {
    /// Half of all packets were later.
    pub median: Duration,
    /// One in a hundred was later.
    pub p99: Duration,
    /// The latest; the machine was busy elsewhere for that long.
    pub max: Duration,
}

impl Lateness {
    pub(super) fn add(&mut self, late: Duration) {
        self.histogram.saturating_record(late.as_nanos() as u64);
    }

    pub(super) fn summary(&self) -> LatenessSummary {
        let at = |quantile| Duration::from_nanos(self.histogram.value_at_quantile(quantile));
        LatenessSummary { median: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

impl Default for Lateness {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX, 2);
        Self { histogram: histogram.expect("constant bounds and digits that are in range") }
    }
}

/// A minute.
const MAX: u64 = 60_000_000_000;
