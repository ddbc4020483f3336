//! Bytes that may leave back to back, for everything that sets a rate.

use longhaul_units::{Duration, Rate};

/// Returns the bytes that may leave back to back at `rate`, with packets of `packet` bytes, so that half
/// of them, a batch, is worth a wake-up: what the rate makes in half a millisecond. At low rates that is a
/// packet or less; so it is what the rate makes in two, as long as that is no more than the ten packets that
/// hosts send at once without having asked anybody (RFC 6928), or in four, as long as that is no more
/// than four; and two packets at least.
pub fn useful_burst(rate: Rate, packet: u64) -> u64 {
    let within = |time, packets| rate.bytes_in(time).min(packets * packet);
    let some = within(WORTH_TIME * 2, 10).max(within(WORTH_TIME * 4, 4));
    rate.bytes_in(TIMER_TIME).max(some).max(2 * packet)
}

/// A timer of the operating system fires up to half a millisecond late; the burst makes up for it.
pub(crate) const TIMER_TIME: Duration = Duration::from_micros(500);
/// A thread that wakes up more often works for itself.
const WORTH_TIME: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_burst_is_worth_a_wake_up() {
        for (mbps, burst) in [
            (1, 3_000),
            (10, 5_000),
            (20, 6_000),
            (50, 12_500),
            (100, 15_000),
            (200, 15_000),
            (400, 25_000),
            (10_000, 625_000),
        ] {
            assert_eq!(useful_burst(Rate::from_mbps(mbps), 1500), burst, "{mbps} Mb/s");
        }
    }
}
