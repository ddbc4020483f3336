//! What controllers of the family have in common: from a window, or a rate, to what may be sent.

use longhaul_units::Rate;

use crate::{Estimates, Known, Pacing, Parameter, Unit};

/// The pacing of a rate and a window, within bounds that hold for every controller: at least two
/// packets a window and a burst, at most [`MOST_WINDOW`].
pub(super) fn paced(rate: Rate, window: u64, model: &Estimates) -> Pacing {
    let least = 2 * model.packet();
    let burst = rate.bytes_in(model.burst_time()).min(MAX_BURST).max(least);
    Pacing { rate: rate.max(LEAST_RATE), burst, window: Some(window.clamp(least, MOST_WINDOW)) }
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
