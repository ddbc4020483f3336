use longhaul_units::{Duration, Rate};

use crate::Delivery;

/// Measures the rate at which the receiver received, from cumulative counters of FEEDBACK.
///
/// Both ends of a sample come from the receiver: its byte counter and its clock at the arrival of
/// the newest packet (docs/protocol.md 5.4). So neither the feedback path nor late feedback
/// distorts it, and a lost report only makes the next sample longer. Under GRO a super-packet has
/// one arrival time, which is why nothing shorter than a train of packets is measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryMeter {
    last: Option<Point>,
    application_limited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    bytes: u64,
    clock: u32,
}

impl DeliveryMeter {
    /// A meter that has seen nothing.
    pub const fn new() -> Self {
        Self { last: None, application_limited: false }
    }

    /// Takes in the counters of one frame: `bytes`, `largest received` (microseconds modulo 2^32),
    /// and whether what it acknowledges was sent while there was too little to send.
    ///
    /// Frames out of order say nothing and are ignored.
    pub fn on_feedback(
        &mut self,
        bytes: u64,
        clock: u32,
        application_limited: bool,
    ) -> Option<Delivery> {
        let Some(last) = self.last else {
            self.last = Some(Point { bytes, clock });
            return None;
        };
        let arrived = bytes.checked_sub(last.bytes).filter(|arrived| *arrived > 0)?;
        self.application_limited |= application_limited;
        let elapsed = clock.wrapping_sub(last.clock);
        if elapsed > u32::MAX / 2 {
            // More bytes but an earlier clock: silent for over half an hour. Start anew.
            self.restart(bytes, clock);
            return None;
        }
        let interval = Duration::from_micros(u64::from(elapsed));
        if interval < MIN_INTERVAL || arrived < MIN_BYTES {
            return None;
        }
        let application_limited = self.application_limited;
        self.restart(bytes, clock);
        let rate = Rate::from_bytes_over(arrived, interval);
        Some(Delivery { rate, interval, application_limited })
    }

    fn restart(&mut self, bytes: u64, clock: u32) {
        self.last = Some(Point { bytes, clock });
        self.application_limited = false;
    }
}

/// Clocks tick in microseconds; below this a sample would be mostly rounding.
const MIN_INTERVAL: Duration = Duration::from_micros(50);
/// A few packets: the space between two says more of the sender's than of the path's rate.
const MIN_BYTES: u64 = 8 * 1500;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_over_the_receivers_time() {
        let mut meter = DeliveryMeter::new();
        assert_eq!(meter.on_feedback(15_000, 7_000, true), None);
        let sample = meter.on_feedback(1_265_000, 17_000, false).unwrap();
        assert_eq!(sample.rate, Rate::from_gbps(1));
        assert_eq!(sample.interval, Duration::from_millis(10));
        assert!(!sample.application_limited);
    }

    #[test]
    fn short_trains_are_gathered() {
        let mut meter = DeliveryMeter::new();
        meter.on_feedback(0, 0, false);
        assert_eq!(meter.on_feedback(6_000, 48, true), None);
        assert_eq!(meter.on_feedback(6_000, 48, false), None);
        let sample = meter.on_feedback(12_500, 100, false).unwrap();
        assert_eq!(sample.rate, Rate::from_gbps(1));
        assert!(sample.application_limited);
    }

    #[test]
    fn the_clock_wraps() {
        let mut meter = DeliveryMeter::new();
        meter.on_feedback(0, u32::MAX - 499, false);
        let sample = meter.on_feedback(125_000, 500, false).unwrap();
        assert_eq!(sample.rate, Rate::from_gbps(1));
    }

    #[test]
    fn a_silence_of_an_hour_starts_anew() {
        let mut meter = DeliveryMeter::new();
        meter.on_feedback(0, 0, false);
        assert_eq!(meter.on_feedback(20_000, 3_600_000_000, false), None);
        assert!(meter.on_feedback(40_000, 3_600_001_000, false).is_some());
    }

    proptest! {
        /// Whatever order and losses the frames suffer, a steady stream is measured as such.
        #[test]
        fn order_and_loss_do_not_matter(order in prop::collection::vec(0u64..1_000, 2..200)) {
            let mut meter = DeliveryMeter::new();
            for at in order {
                let bytes = at * 12_500;
                let clock = (u64::from(u32::MAX - 40_000) + at * 100) as u32;
                if let Some(sample) = meter.on_feedback(bytes, clock, false) {
                    prop_assert_eq!(sample.rate, Rate::from_gbps(1));
                }
            }
        }

        #[test]
        fn nonsense_does_not_panic(
            frames in prop::collection::vec(any::<(u64, u32, bool)>(), 0..50)
        ) {
            let mut meter = DeliveryMeter::new();
            for (bytes, clock, limited) in frames {
                meter.on_feedback(bytes, clock, limited);
            }
        }
    }
}
