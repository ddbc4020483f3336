//! Packets that the local stack refused: known at once, and no loss of the path.

use longhaul_units::Instant;
use longhaul_wire::BASE_DATAGRAM;

use super::settle::on_control;
use super::{Lane, Transmit, What};
use crate::ledger::Content;
use crate::path::Path;

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
    /// others, of up to `size` bytes of UDP payload, are sent again under new numbers.
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
        let base = BASE_DATAGRAM as u64 + self.ip_overhead();
        let mut bytes = 0;
        let Self { ledger, outbox, streams, asks, events, mtu, liveness, .. } = self;
        ledger.take_back(from, |entry, packets| match &entry.content {
            // It is answered by that, and not lost.
            Content::Probe(_) if too_large => refused -= 1,
            Content::Probe(size) => {
                if mtu.on_probe_refused(*size, entry.first) {
                    liveness.want_ping();
                }
            }
            Content::Object { .. } => {
                bytes += entry.bytes_of(packets);
                entry.extents_of(packets).for_each(|extent| outbox.on_lost(extent));
            }
            Content::Control(frames) => {
                bytes += entry.bytes_of(packets);
                if !too_large && u64::from(entry.wire_bytes) < base {
                    mtu.on_smaller_lost();
                }
                frames.iter().for_each(|frame| on_control(streams, asks, events, frame, false));
            }
        });
        self.stats.lost += refused;
        self.paths.on_lost(transmit.first.get(), refused);
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
            if taken == 0 && transmit.what != What::Control && size >= BASE_DATAGRAM as u16 {
                self.mtu.on_refused(size, transmit.first.get());
            }
            self.paths.on_refused(transmit.first.get(), refused);
            path.slow_sender(now);
        }
    }
}
