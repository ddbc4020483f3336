//! What a circuit teaches those that come after it.

use longhaul::CircuitReport;
use longhaul_history::CircuitRecord;
use longhaul_units::Rate;

/// What one circuit has taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Experience {
    lost_ppm: u32,
    /// Of what the vector allowed: lost, or not used.
    wasted_ppm: u32,
    arrived: Rate,
}

impl Experience {
    /// `bytes_wait`: there was something to send all the time, so a sender that was late is what left
    /// the circuit idle. A circuit that carried next to nothing has taught nothing.
    pub fn of(circuit: &CircuitReport, bytes_wait: bool) -> Option<Self> {
        if circuit.sent_bytes < circuit.allowed_bytes / 10 {
            return None;
        }
        let ppm = |part: u64, all: u64| {
            let ppm = u128::from(part.min(all)) * 1_000_000 / u128::from(all.max(1));
            u32::try_from(ppm).unwrap_or(u32::MAX)
        };
        let lost_ppm = ppm(circuit.packets_lost, circuit.packets_sent);
        let idle = circuit.allowed_bytes.saturating_sub(circuit.sent_bytes);
        let idle_ppm = match ppm(idle, circuit.allowed_bytes) {
            idle @ 0..MUCH_IDLE_PPM if bytes_wait => idle,
            _ => 0,
        };
        let useful_ppm =
            u64::from(1_000_000 - idle_ppm) * u64::from(1_000_000 - lost_ppm) / 1_000_000;
        let wasted_ppm = 1_000_000 - u32::try_from(useful_ppm).unwrap_or(0);
        let open = circuit.left.saturating_sub(circuit.opened);
        let sent = Rate::from_bytes_over(circuit.sent_bytes, open);
        let arrived = sent.scale(1_000_000 - lost_ppm, 1_000_000);
        Some(Self { lost_ppm, wasted_ppm, arrived })
    }
}

/// Extra capacity for what will be lost or missed.
pub(super) fn margin_ppm(known: &CircuitRecord) -> u32 {
    if known.circuits == 0 {
        return FIRST_MARGIN_PPM;
    }
    (known.wasted_ppm + 2 * known.deviation_ppm).clamp(LEAST_MARGIN_PPM, MOST_MARGIN_PPM)
}

/// Takes in what one more circuit has taught: a quarter for the newest.
pub(super) fn learn(known: &mut CircuitRecord, new: &Experience) {
    let (wasted, deviation) = match known.circuits {
        0 => (new.wasted_ppm, new.wasted_ppm / 2),
        _ => {
            let off = known.wasted_ppm.abs_diff(new.wasted_ppm);
            let smooth = |old: u32, new: u32| old - old / 4 + new / 4;
            (smooth(known.wasted_ppm, new.wasted_ppm), smooth(known.deviation_ppm, off))
        }
    };
    // The best rate loses a little (VBLS paper, section 4.1); one that loses much is too high.
    // One that does not is tried a little higher, until it binds no more.
    let tried = known.max_rate_bps.map(Rate::from_bps);
    let next = match new.lost_ppm {
        0..TOO_MUCH_PPM => tried.filter(|rate| *rate < new.arrived.scale(2, 1)),
        _ => Some(new.arrived),
    };
    let next = next.map(|rate| rate.scale(11, 10).as_bps());
    known.max_rate_bps = next.filter(|rate| *rate > 0);
    known.circuits = known.circuits.saturating_add(1);
    (known.wasted_ppm, known.deviation_ppm) = (wasted, deviation);
}

/// Before anything is known: more than healthy circuits waste.
const FIRST_MARGIN_PPM: u32 = 20_000;
/// What a sender leaves unused that is never late (`Trc`).
const LEAST_MARGIN_PPM: u32 = 5_000;
/// More is left idle by a source that is slower than the circuit: more time would not help.
const MUCH_IDLE_PPM: u32 = 100_000;
const MOST_MARGIN_PPM: u32 = 500_000;
/// More is lost by a rate that the hosts cannot take, not by chance.
const TOO_MUCH_PPM: u32 = 50_000;

#[cfg(test)]
mod tests {
    use longhaul_units::Duration;

    use super::*;

    fn lost(lost_ppm: u32) -> Experience {
        Experience { lost_ppm, wasted_ppm: lost_ppm, arrived: Rate::from_mbps(440) }
    }

    #[test]
    fn the_margin_follows_what_was_lost() {
        let mut known = CircuitRecord::default();
        assert_eq!(margin_ppm(&known), FIRST_MARGIN_PPM);
        learn(&mut known, &lost(0));
        assert_eq!(margin_ppm(&known), LEAST_MARGIN_PPM);
        learn(&mut known, &lost(40_000));
        assert_eq!(margin_ppm(&known), 10_000 + 2 * 10_000);
        for _ in 0..40 {
            learn(&mut known, &lost(8_000));
        }
        assert!((8_000..10_000).contains(&margin_ppm(&known)), "{known:?}");
    }

    #[test]
    fn what_a_late_sender_missed_counts_and_what_a_slow_source_did_not_have_does_not() {
        let circuit = |sent_bytes| {
            let mut circuit = CircuitReport::default();
            (circuit.booked_bytes, circuit.allowed_bytes) = (1_200_000, 1_000_000);
            circuit.sent_bytes = sent_bytes;
            (circuit.packets_sent, circuit.packets_lost) = (1_000, 100);
            (circuit.opened, circuit.left) = (Duration::from_secs(1), Duration::from_secs(2));
            circuit.planned = circuit.left;
            circuit
        };
        let wasted =
            |sent, bytes_wait| Experience::of(&circuit(sent), bytes_wait).unwrap().wasted_ppm;
        assert_eq!(wasted(1_000_000, true), 100_000);
        assert_eq!(wasted(950_000, true), 145_000);
        assert_eq!(wasted(950_000, false), 100_000);
        assert_eq!(wasted(500_000, true), 100_000);
        let arrived = Experience::of(&circuit(950_000), true).unwrap().arrived;
        assert_eq!(arrived, Rate::from_bps(6_840_000));
        assert_eq!(Experience::of(&circuit(600), true), None);
    }

    #[test]
    fn a_rate_that_lost_much_is_not_asked_for_again() {
        let mut known = CircuitRecord::default();
        learn(&mut known, &lost(200_000));
        assert_eq!(known.max_rate_bps, Some(484_000_000));
        // What loses little is tried a little higher, and forgotten when it is not used up.
        learn(&mut known, &lost(10_000));
        assert_eq!(known.max_rate_bps, Some(532_400_000));
        learn(&mut known, &Experience { arrived: Rate::from_mbps(200), ..lost(0) });
        assert_eq!(known.max_rate_bps, None);
    }
}
