//! Checks that no more is sent than the rate allows.

use longhaul_units::{Duration, Instant, Rate};

use crate::trace::Checks;

/// A token bucket beside the engine's: over any time t, rate * t + burst and no more may leave.
#[derive(Debug)]
pub(super) struct Meter {
    rate: Rate,
    burst: u64,
    /// The controller's own burst is no smaller.
    least: u64,
    /// When the rate will have carried away what was sent.
    empty: Instant,
}

impl Meter {
    /// `burst`: bytes that may leave back to back. The controller's own burst may be smaller, and is
    /// `least` then.
    pub fn new(now: Instant, rate: Rate, burst: u64, least: u64) -> Self {
        Self { rate, burst, least, empty: now }
    }

    /// A batch of `packets` and `bytes` leaves. Only one packet can be larger than the controller's
    /// burst: it waits until that is full, which leaves room for it in the rest of this one.
    pub fn sent(&mut self, now: Instant, packets: u16, bytes: u64, checks: &mut Checks) {
        self.empty = self.empty.max(now) + self.rate.time_for(bytes);
        let level = self.rate.bytes_in(self.empty - now);
        let over = if packets == 1 { bytes.saturating_sub(self.least) } else { 0 };
        let allowed = self.burst + over + ROUNDING;
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
    rate.bytes_in(Duration::from_micros(500)).max(LEAST_BURST)
}

/// Two packets: no controller has a smaller burst.
pub(super) const LEAST_BURST: u64 = 2 * PACKET;

const PACKET: u64 = 1500;
/// Two buckets that count time in nanoseconds part by some bytes.
const ROUNDING: u64 = 64;
