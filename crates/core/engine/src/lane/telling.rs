//! When the peer is told of the floor (STATE, protocol.md 5.3).

use longhaul_units::{Duration, Instant};

/// What went out since STATE was last said.
#[derive(Debug, Default)]
pub(super) struct Telling {
    packets: u64,
    /// When it is due behind many packets, and behind a few.
    due: Option<(Instant, Instant)>,
}

impl Telling {
    /// Packets with object bytes left, over a path of that round trip.
    pub(super) fn on_sent(&mut self, now: Instant, packets: u64, round_trip: Duration) {
        let least = (round_trip / 4).max(LEAST);
        self.due.get_or_insert((now + least, now + least.max(MOST)));
        self.packets += packets;
    }

    /// STATE was said.
    pub(super) fn on_told(&mut self) {
        *self = Self::default();
    }

    /// When STATE is due. A slow sender would otherwise say it behind every packet.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.map(|(many, few)| if self.packets < ENOUGH { few } else { many })
    }
}

/// So many packets are worth one.
const ENOUGH: u64 = 16;
/// Shortest time between two that are said of this side's own accord.
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
            let mut telling = Telling::default();
            assert_eq!(telling.due(), None);
            telling.on_sent(at(10), 2, ms(round_trip));
            telling.on_sent(at(11), ENOUGH - 3, ms(round_trip));
            assert_eq!(telling.due(), Some(at(few)));
            telling.on_sent(at(12), 1, ms(round_trip));
            assert_eq!(telling.due(), Some(at(many)));
            telling.on_told();
            assert_eq!(telling.due(), None);
        }
    }
}
