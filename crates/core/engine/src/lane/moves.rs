//! MOVE: the server asks the client to take a lane to another path (protocol.md 5.12).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use longhaul_units::LaneId;
use longhaul_wire::Frame;

use super::Lane;
use super::transmit::push;
use crate::control::SentFrame;

/// Moves that the client was asked for, by the lane that is to move, until it has acknowledged them.
pub(super) type Asks = BTreeMap<LaneId, Ask>;

#[derive(Debug)]
pub(super) struct Ask {
    order: u64,
    beside: LaneId,
    /// It is to be sent, perhaps again.
    due: bool,
}

impl Lane {
    /// At a server: asks the client to take `lane` to the path that `beside` is on. Of two for the
    /// same lane the one with the higher `order` holds.
    pub fn ask_to_move(&mut self, order: u64, lane: LaneId, beside: LaneId) {
        if self.asks.get(&lane).is_none_or(|ask| ask.order < order) {
            self.asks.insert(lane, Ask { order, beside, due: true });
        }
    }

    /// True if there is a move to ask for.
    pub(super) fn asks_due(&self) -> bool {
        self.asks.values().any(|ask| ask.due)
    }

    pub(super) fn push_asks(
        &mut self,
        room: usize,
        frames: &mut Vec<u8>,
        sent: &mut Vec<SentFrame>,
    ) {
        for (&lane, ask) in self.asks.iter_mut().filter(|(_, ask)| ask.due) {
            if frames.len() + MOVE_MAX > room {
                return;
            }
            ask.due = false;
            push(frames, &Frame::Move { order: ask.order, lane, beside: ask.beside });
            sent.push(SentFrame::Move { order: ask.order, lane });
        }
    }
}

/// The packet that asked for a move by `order` arrived, or was lost.
pub(super) fn on_ask(asks: &mut Asks, order: u64, lane: LaneId, arrived: bool) {
    let Some(ask) = asks.get_mut(&lane).filter(|ask| ask.order == order) else { return };
    if arrived {
        asks.remove(&lane);
    } else {
        ask.due = true;
    }
}

/// Most bytes of MOVE.
const MOVE_MAX: usize = 2 + 8 + 4 + 4;
