//! Packets that the local stack refused: known at once, and no loss of the path.

use longhaul_units::{Duration, Instant};

use super::feedback::on_control;
use super::{Lane, Transmit, What};
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
        let Self { ledger, outbox, streams, asks, events, .. } = self;
        ledger.take_back(from, |entry, packets| match &entry.content {
            // It is answered by that, and not lost.
            Content::Probe(_) => refused -= u64::from(too_large),
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
        if transmit.what == What::Control && !too_large {
            self.refused_until = now + PAUSE;
        }
        if too_large {
            self.mtu.on_too_big(size);
        } else if refused > 0 {
            self.ways.on_refused(transmit.first.get(), refused);
            path.slow_sender(now);
        }
    }
}

/// Nothing paces control messages: without a pause they would be offered again at once, for as long as
/// a link is down.
const PAUSE: Duration = Duration::from_millis(1);
