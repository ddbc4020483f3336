//! Checks that no more is sent than the rate allows.

use longhaul_units::{Instant, Rate};

use crate::trace::Checks;

/// A token bucket beside the engine's: over any time t, rate * t + burst and no more may leave.
#[derive(Debug)]
pub(super) struct Meter {
    rate: Rate,
    burst: u64,
    /// When the rate will have carried away what was sent.
    empty: Instant,
}

impl Meter {
    /// `least_burst`: what the controller sends back to back at any rate.
    pub fn new(now: Instant, rate: Rate, least_burst: u64) -> Self {
        let burst = rate.bytes_in(BURST_TIME).max(least_burst) + BATCH_MAX;
        Self { rate, burst, empty: now }
    }

    /// A batch of `bytes` leaves.
    pub fn sent(&mut self, now: Instant, bytes: u64, checks: &mut Checks) {
        self.empty = self.empty.max(now) + self.rate.time_for(bytes);
        let level = self.rate.bytes_in(self.empty - now);
        checks.require(level <= self.burst, || {
            format!("{level} bytes ahead of {}, a burst is {}", self.rate, self.burst)
        });
    }
}

/// `fixed` sends back to back what its rate carries in that time.
const BURST_TIME: longhaul_units::Duration = longhaul_units::Duration::from_micros(500);
/// The largest batch on the wire: it may start when one byte is missing.
const BATCH_MAX: u64 = 66_000;
