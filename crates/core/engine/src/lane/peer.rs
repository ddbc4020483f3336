//! What the peer said of itself.

use longhaul_rate_control::ReceiverState;
use longhaul_units::Losses;
use longhaul_wire::{Feedback, ReceiverBounds};

#[derive(Debug)]
pub(super) struct Peer {
    /// Absolute object bytes that it promised room for.
    credit: u64,
    receiver: ReceiverState,
    bounds: ReceiverBounds,
    /// Packets that it has dropped in all.
    drops: Losses,
    /// Those of them that are not found missing yet.
    unattributed: Losses,
}

impl Peer {
    pub(super) fn new() -> Self {
        Self {
            credit: 0,
            receiver: ReceiverState::default(),
            bounds: ReceiverBounds::NONE,
            drops: Losses::default(),
            unattributed: Losses::default(),
        }
    }

    pub(super) fn credit(&self) -> u64 {
        self.credit
    }

    pub(super) fn receiver(&self) -> ReceiverState {
        self.receiver
    }

    pub(super) fn bounds(&self) -> ReceiverBounds {
        self.bounds
    }

    /// A report came; an older one may come behind it.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.credit = self.credit.max(feedback.credit.get());
        self.receiver = ReceiverState {
            socket_buffer: feedback.socket_buffer,
            capacity: feedback.receive_capacity,
        };
        self.bounds = feedback.bounds;
        let Losses { socket, host, .. } = self.drops;
        self.unattributed.socket += feedback.socket_drops.saturating_sub(socket);
        self.unattributed.host += feedback.host_drops.saturating_sub(host);
        self.drops.socket = socket.max(feedback.socket_drops);
        self.drops.host = host.max(feedback.host_drops);
    }

    /// Divides `lost` packets by what the peer says of its own drops. Drops told before their loss is
    /// found (or after) are carried over. Of the rest nothing is known yet.
    pub(super) fn attribute(&mut self, lost: u64) -> Losses {
        let socket = lost.min(self.unattributed.socket);
        let host = (lost - socket).min(self.unattributed.host);
        self.unattributed.socket -= socket;
        self.unattributed.host -= host;
        Losses { socket, host, unknown: lost - socket - host, ..Losses::default() }
    }
}
