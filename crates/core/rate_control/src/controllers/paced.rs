//! Parts that controllers of the family share: from a window, or a rate, to what may be sent.

use longhaul_units::{Duration, Rate};

use crate::controller::{Known, Pacing};
use crate::estimates::Estimates;
use crate::parameters::{Parameter, Unit};

/// Two packets a round trip always get through a link that somebody can use.
pub(super) fn least_rate(round_trip: Duration, packet: u64) -> Rate {
    Rate::from_bytes_over(2 * packet, round_trip)
}

/// The pacing of a rate and a window, within bounds that hold for every controller: at least two
/// packets a window, a burst and a round trip, at most [`MOST_WINDOW`].
pub(super) fn paced(rate: Rate, window: u64, model: &Estimates) -> Pacing {
    let least = 2 * model.packet();
    let burst = model.burst(rate).min(MAX_BURST).max(least);
    // A rate that fell because there was little to send has to let the next full packet out.
    let window_rate =
        model.min_rtt().map_or(LEAST_RATE, |round_trip| Rate::from_bytes_over(least, round_trip));
    Pacing {
        rate: rate.max(window_rate).max(LEAST_RATE),
        burst,
        window: Some(window.clamp(least, MOST_WINDOW)),
    }
}

/// The first flight, all at once: until its first packet is answered nothing is known of the path.
pub(super) fn first_flight(packets: u64, packet: u64) -> Pacing {
    let window = (packets * packet).clamp(2 * packet, MAX_BURST);
    Pacing { rate: FIRST_RATE, burst: window, window: Some(window) }
}

/// The window of a controller that takes over at `rate`.
pub(super) fn known_window(known: &Known, packet: u64) -> u64 {
    known.rate.bytes_in(known.round_trip).clamp(2 * packet, MOST_WINDOW)
}

pub(super) const FIRST_WINDOW: Parameter = Parameter {
    name: "initial-window",
    about: "packets that leave before anything is known of the path; RFC 6928 has ten",
    unit: Unit::Count,
    default: 10,
    least: 2,
    most: 1_000,
};

/// A terabit a second over eight seconds.
pub(super) const MOST_WINDOW: u64 = 1 << 40;
const MAX_BURST: u64 = 512 << 10;
/// A packet in ten seconds.
const LEAST_RATE: Rate = Rate::from_kbps(1);
pub(super) const FIRST_RATE: Rate = Rate::from_gbps(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feedback, RttEstimator};
    use longhaul_units::Instant;

    #[test]
    fn a_rate_that_little_data_has_lowered_lets_two_packets_out_in_a_round_trip() {
        let round_trip = Duration::from_millis(20);
        let mut model = Estimates::new(Instant::ZERO, 9_000);
        let mut rtt = RttEstimator::new(round_trip);
        rtt.update(Instant::ZERO, round_trip);
        let feedback = Feedback { rtt: Some(round_trip), ..Feedback::default() };
        model.on_feedback(Instant::ZERO, &rtt, &feedback);
        let pacing = paced(Rate::from_kbps(3), 0, &model);
        assert_eq!(pacing.rate, Rate::from_bytes_over(18_000, round_trip));
        assert_eq!(pacing.window, Some(18_000));
    }
}
