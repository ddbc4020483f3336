//! Packets that the local stack refused: known at once, and no loss of the path.

use longhaul_units::Instant;

use super::feedback::on_control;
use super::{Lane, Transmit};
use crate::Path;
use crate::ledger::Content;

/// Why the local stack took no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// It is larger than the interface allows.
    TooLarge,
    /// Any other reason.
    Refused,
}

impl Lane {
    /// Of the batch that was planned last the local stack took only the first `taken` packets. The
    /// others, of up to `size` bytes of UDP payload, are sent anew under new numbers.
    pub fn not_sent(
        &mut self,
        now: Instant,
        path: &mut Path,
        transmit: &Transmit,
        taken: u16,
        (why, size): (NotSent, u16),
    ) {
        let mut refused = u64::from(transmit.packets.saturating_sub(taken));
        let from = transmit.first.get() + u64::from(taken);
        let too_large = why == NotSent::TooLarge;
        let mut bytes = 0;
        let Self { ledger, outbox, streams, asks, events, mtu, .. } = self;
        ledger.take_back(from, |entry, packets| match &entry.content {
            // It is answered by that, and not lost.
            Content::Probe(_) if too_large => refused -= 1,
            Content::Probe(size) => mtu.on_probe_refused(*size, entry.first),
            Content::Object { .. } => {
                bytes += entry.bytes_of(packets);
                entry.extents_of(packets).for_each(|extent| outbox.on_lost(extent));
            }
            Content::Control(frames) => {
                bytes += entry.bytes_of(packets);
                frames.iter().for_each(|frame| on_control(streams, asks, events, frame, false));
            }
        });
        self.stats.lost += refused;
        self.ways.on_lost(transmit.first.get(), refused);
        path.on_refused(refused, bytes);
        self.tries = false;
        match (taken, why) {
            (0, NotSent::Refused) => path.on_offer_refused(now),
            (0, NotSent::TooLarge) => {}
            _ => path.on_offer_taken(),
        }
        if too_large {
            self.mtu.on_too_big(size);
        } else if refused > 0 {
            self.ways.on_refused(transmit.first.get(), refused);
            path.slow_sender(now);
        }
    }
}
