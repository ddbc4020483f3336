//! Checks that no more is sent than the rate allows.

use longhaul_units::{Duration, Instant, Rate};

use crate::trace::Checks;

/// A token bucket beside the engine's: over any time t, rate * t + burst and no more may leave. A
/// batch that is larger than the burst leaves alone.
#[derive(Debug)]
pub(super) struct Meter {
    rate: Rate,
    burst: u64,
    /// When the rate will have carried away what was sent.
    empty: Instant,
}

impl Meter {
    /// `burst`: bytes that may leave back to back.
    pub fn new(now: Instant, rate: Rate, burst: u64) -> Self {
        Self { rate, burst, empty: now }
    }

    /// A batch of `bytes` leaves.
    pub fn sent(&mut self, now: Instant, bytes: u64, checks: &mut Checks) {
        self.empty = self.empty.max(now) + self.rate.time_for(bytes);
        let level = self.rate.bytes_in(self.empty - now);
        let allowed = self.burst.max(bytes) + ROUNDING;
        checks.require(level <= allowed, || {
            format!("{level} bytes ahead of {}, a burst is {}", self.rate, self.burst)
        });
    }
}

/// The burst of `fixed` and `rbudp`: what the rate carries in half a millisecond, ten packets at
/// least.
pub(super) fn of_fixed(rate: Rate) -> u64 {
    rate.bytes_in(Duration::from_micros(500)).max(10 * PACKET)
}

/// The burst of `trc`: a millisecond, up to 64 KiB or what a tenth of that carries.
pub(super) fn of_circuit(rate: Rate) -> u64 {
    let most = rate.bytes_in(Duration::from_micros(100)).max(64 << 10);
    rate.bytes_in(Duration::from_millis(1)).clamp(4 * PACKET, most)
}

/// The burst of any controller under a user's limit: half a millisecond, two packets at least.
pub(super) fn under_limit(rate: Rate) -> u64 {
    rate.bytes_in(Duration::from_micros(500)).max(2 * PACKET)
}

const PACKET: u64 = 1500;
/// Two buckets that count time in nanoseconds part by some bytes.
const ROUNDING: u64 = 64;
