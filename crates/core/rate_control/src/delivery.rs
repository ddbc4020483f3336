use longhaul_units::{Duration, Rate};

use crate::feedback::Delivery;

/// Measures the rate at which the receiver received, from cumulative counters of FEEDBACK.
///
/// Both ends of a sample come from the receiver: its byte counter and its clock at the arrival of
/// the newest packet (docs/protocol.md 5.4). So neither the feedback path nor late feedback
/// distorts it, and a lost report only makes the next sample longer. Under GRO a super-packet has
/// one arrival time, which is why nothing shorter than a train of packets is measured.
///
/// Bytes that were held up somewhere and then came in a lump arrived faster than the path goes; in
/// the long run they cannot arrive faster than they were sent, so a sample lasts as long as its
/// bytes took to leave if that was longer. And where the sender was late, a sample tells of the
/// path only if the path took longer still.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryMeter {
    last: Option<DeliveryReport>,
    application_limited: bool,
    late: bool,
}

/// Counts of delivery in one FEEDBACK frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryReport {
    /// Bytes received so far.
    pub bytes: u64,
    /// Time when the newest packet was received, by the receiver's clock: microseconds modulo 2^32.
    pub received: u32,
    /// Time when it was sent, by the sender's clock: microseconds modulo 2^32.
    pub sent: u32,
    /// Some of what the report acknowledges was sent while there was too little to send.
    pub application_limited: bool,
    /// Some of it left later than it might have: the sending host gave the sender no turn.
    pub late: bool,
}

impl DeliveryMeter {
    /// A meter that has seen nothing.
    pub const fn new() -> Self {
        Self { last: None, application_limited: false, late: false }
    }

    /// Takes in one frame; gives the sample that it completes.
    ///
    /// Frames out of order say nothing and are ignored.
    pub fn on_feedback(&mut self, report: DeliveryReport) -> Option<Delivery> {
        let Some(last) = self.last else {
            *self = Self::from(report);
            return None;
        };
        let arrived = report.bytes.checked_sub(last.bytes).filter(|arrived| *arrived > 0)?;
        self.application_limited |= report.application_limited;
        self.late |= report.late;
        let elapsed = report.received.wrapping_sub(last.received);
        if elapsed > u32::MAX / 2 {
            // More bytes but an earlier clock: silent for over half an hour. Start again.
            *self = Self::from(report);
            return None;
        }
        let interval = Duration::from_micros(u64::from(elapsed));
        if interval < MIN_INTERVAL || arrived < MIN_BYTES {
            return None;
        }
        let Self { application_limited, late, .. } = *self;
        *self = Self::from(report);
        let sent_over = Duration::from_micros(u64::from(report.sent.wrapping_sub(last.sent)));
        // Longer than any path's round trip: of two lives of the sender's clock.
        let sent_over = if sent_over > MAX_SENT_OVER { Duration::ZERO } else { sent_over };
        let interval = interval.max(sent_over.saturating_sub(BATCH_TIME));
        let rate = Rate::from_bytes_over(arrived, interval);
        let sample = Delivery { rate, interval, sent_over, application_limited };
        let application_limited = application_limited || (late && !sample.is_spread());
        Some(Delivery { application_limited, ..sample })
    }
}

/// A meter whose next sample begins with `report`.
impl From<DeliveryReport> for DeliveryMeter {
    fn from(report: DeliveryReport) -> Self {
        Self { last: Some(report), ..Self::default() }
    }
}

/// Clocks tick in microseconds; below this a sample would be mostly rounding.
const MIN_INTERVAL: Duration = Duration::from_micros(50);
/// A few packets: the space between two says more of the sender's than of the path's rate.
const MIN_BYTES: u64 = 8 * 1500;
/// Packets of a batch leave together: a sample that begins or ends within one is off by so much.
const BATCH_TIME: Duration = Duration::from_micros(250);
const MAX_SENT_OVER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sent in no time.
    fn report(bytes: u64, received: u32, application_limited: bool) -> DeliveryReport {
        DeliveryReport { bytes, received, application_limited, ..DeliveryReport::default() }
    }

    #[test]
    fn bytes_over_the_receivers_time() {
        let mut meter = DeliveryMeter::new();
        assert_eq!(meter.on_feedback(report(15_000, 7_000, true)), None);
        let sample = meter.on_feedback(report(1_265_000, 17_000, false)).unwrap();
        assert_eq!(sample.rate, Rate::from_gbps(1));
        assert_eq!(sample.interval, Duration::from_millis(10));
        assert!(!sample.application_limited);
    }

    #[test]
    fn short_trains_are_gathered() {
        let mut meter = DeliveryMeter::new();
        meter.on_feedback(report(0, 0, false));
        assert_eq!(meter.on_feedback(report(6_000, 48, true)), None);
        assert_eq!(meter.on_feedback(report(6_000, 48, false)), None);
        let sample = meter.on_feedback(report(12_500, 100, false)).unwrap();
        assert_eq!(sample.rate, Rate::from_gbps(1));
        assert!(sample.application_limited);
    }

    #[test]
    fn the_clock_wraps() {
        let mut meter = DeliveryMeter::new();
        meter.on_feedback(report(0, u32::MAX - 499, false));
        let sample = meter.on_feedback(report(125_000, 500, false)).unwrap();
        assert_eq!(sample.rate, Rate::from_gbps(1));
    }

    #[test]
    fn a_silence_of_an_hour_starts_again() {
        let mut meter = DeliveryMeter::new();
        meter.on_feedback(report(0, 0, false));
        assert_eq!(meter.on_feedback(report(20_000, 3_600_000_000, false)), None);
        assert!(meter.on_feedback(report(40_000, 3_600_001_000, false)).is_some());
    }

    #[test]
    fn a_lump_arrives_no_faster_than_it_was_sent() {
        let mut meter = DeliveryMeter::new();
        let mut at = |bytes, received, sent, late| {
            meter.on_feedback(DeliveryReport { bytes, received, sent, late, ..report(0, 0, false) })
        };
        assert_eq!(at(0, 0, 100, false), None);
        let sample = at(1_250_000, 1_000, 10_350, false).unwrap();
        assert_eq!((sample.rate, sample.interval), (Rate::from_gbps(1), Duration::from_millis(10)));
        let sample = at(2_500_000, 11_000, 11_350, true).unwrap();
        assert_eq!((sample.rate, sample.sent_over), (Rate::from_gbps(1), Duration::from_millis(1)));
        assert!(!sample.application_limited, "the path took longer");
        assert!(at(3_750_000, 21_000, 21_350, true).unwrap().application_limited);
    }

    proptest! {
        /// Whatever order and losses the frames suffer, a steady stream is measured as such.
        #[test]
        fn order_and_loss_do_not_matter(order in prop::collection::vec(0u64..1_000, 2..200)) {
            let mut meter = DeliveryMeter::new();
            for at in order {
                let bytes = at * 12_500;
                let clock = (u64::from(u32::MAX - 40_000) + at * 100) as u32;
                if let Some(sample) = meter.on_feedback(report(bytes, clock, false)) {
                    prop_assert_eq!(sample.rate, Rate::from_gbps(1));
                }
            }
        }

        #[test]
        fn nonsense_does_not_panic(
            frames in prop::collection::vec(any::<(u64, u32, u32, bool, bool)>(), 0..50)
        ) {
            let mut meter = DeliveryMeter::new();
            for (bytes, received, sent, application_limited, late) in frames {
                let report = DeliveryReport { bytes, received, sent, application_limited, late };
                meter.on_feedback(report);
            }
        }
    }
}
