//! The schedule of STATE, which announces the floor to the peer (protocol.md 5.3).

use longhaul_units::{Duration, Instant};

/// Packets since the last STATE.
#[derive(Debug, Default)]
pub(super) struct StateSchedule {
    packets: u64,
    /// When it is due behind many packets, and behind a few.
    due: Option<(Instant, Instant)>,
}

impl StateSchedule {
    /// Packets with object bytes left, over a path of that round trip.
    pub(super) fn on_sent(&mut self, now: Instant, packets: u64, round_trip: Duration) {
        let least = (round_trip / 4).max(LEAST);
        self.due.get_or_insert((now + least, now + least.max(MOST)));
        self.packets += packets;
    }

    /// A STATE was sent.
    pub(super) fn on_state_sent(&mut self) {
        *self = Self::default();
    }

    /// Time when STATE is due. A slow sender would otherwise send it behind every packet.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.map(|(many, few)| if self.packets < ENOUGH { few } else { many })
    }
}

/// So many packets are worth one.
const ENOUGH: u64 = 16;
/// Shortest time between two that are sent without a report.
const LEAST: Duration = Duration::from_millis(1);
/// As long as a report takes at most.
const MOST: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_packets_bring_it_on() {
        let ms = Duration::from_millis;
        let at = |time| Instant::ZERO + ms(time);
        for (round_trip, few, many) in [(0, 20, 11), (8, 20, 12), (200, 60, 60)] {
            let mut state_schedule = StateSchedule::default();
            assert_eq!(state_schedule.due(), None);
            state_schedule.on_sent(at(10), 2, ms(round_trip));
            state_schedule.on_sent(at(11), ENOUGH - 3, ms(round_trip));
            assert_eq!(state_schedule.due(), Some(at(few)));
            state_schedule.on_sent(at(12), 1, ms(round_trip));
            assert_eq!(state_schedule.due(), Some(at(many)));
            state_schedule.on_state_sent();
            assert_eq!(state_schedule.due(), None);
        }
    }
}
