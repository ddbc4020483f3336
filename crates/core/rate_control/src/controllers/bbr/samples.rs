//! Delivery over one round trip, from reports that come several times in it.

use longhaul_units::{Duration, Rate};

use crate::feedback::Delivery;

/// Delivery of the last round trip.
///
/// The draft measures from the departure of a packet to its acknowledgement, which is a round trip; a
/// report tells of the eighth of one, whose best would be the rate of a burst.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Samples {
    pieces: [Piece; PIECES],
    newest: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Piece {
    bytes: u64,
    time: Duration,
    limited: bool,
}

/// A rate sample, as the draft's RS.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateSample {
    pub(super) rate: Rate,
    /// Bytes of it.
    pub(super) delivered: u64,
    /// There was too little to send for part of that time.
    pub(super) limited: bool,
}

impl Samples {
    /// Takes in what a report tells; gives what the last `round_trip` delivered.
    pub(super) fn add(&mut self, delivery: &Delivery, round_trip: Duration) -> RateSample {
        if self.pieces[self.newest].time >= round_trip / (PIECES as u32 - 2) {
            self.newest = (self.newest + 1) % PIECES;
            self.pieces[self.newest] = Piece::default();
        }
        let piece = &mut self.pieces[self.newest];
        piece.bytes = piece.bytes.saturating_add(delivery.rate.bytes_in(delivery.interval));
        piece.time += delivery.interval;
        piece.limited |= delivery.application_limited;
        let mut all = Piece::default();
        for back in 0..PIECES {
            if all.time >= round_trip {
                break;
            }
            let Piece { bytes, time, limited } =
                self.pieces[(self.newest + PIECES - back) % PIECES];
            all.bytes = all.bytes.saturating_add(bytes);
            all.time += time;
            all.limited |= limited && !time.is_zero();
        }
        let Piece { bytes: delivered, time, limited } = all;
        let rate = Rate::from_bytes_over(delivered, time.max(round_trip).max(LEAST_TIME));
        RateSample { rate, delivered, limited }
    }
}

const PIECES: usize = 18;
const LEAST_TIME: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(mbps: u64, us: u64) -> Delivery {
        let interval = Duration::from_micros(us);
        let rate = Rate::from_mbps(mbps);
        Delivery { rate, interval, sent_over: interval, application_limited: false }
    }

    #[test]
    fn a_burst_in_a_round_trip_is_no_rate() {
        let mut samples = Samples::default();
        let round_trip = Duration::from_millis(40);
        let sample = samples.add(&delivery(1_000, 500), round_trip);
        assert_eq!((sample.rate, sample.delivered), (Rate::from_bps(12_500_000), 62_500));
        for _ in 0..8 {
            samples.add(&delivery(100, 5_000), round_trip);
        }
        let sample = samples.add(&delivery(100, 5_000), round_trip);
        assert_eq!(sample.rate, Rate::from_mbps(100), "it was a round trip ago");
    }

    #[test]
    fn many_short_reports_make_a_round_trip_too() {
        let mut samples = Samples::default();
        let round_trip = Duration::from_millis(40);
        for _ in 0..99 {
            samples.add(&delivery(100, 400), round_trip);
        }
        assert_eq!(samples.add(&delivery(100, 400), round_trip).rate, Rate::from_mbps(100));
    }
}
