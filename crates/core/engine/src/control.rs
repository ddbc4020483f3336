//! Frames of CONTROL packets that were sent, so that they can be repeated when one is lost.

use longhaul_units::{LaneId, StreamId};

use crate::stream::Piece;

/// An eliciting frame that was sent and waits for its acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// Repeated by the next probe timeout if at all.
    Ping,
    Stream {
        stream: StreamId,
        piece: Piece,
    },
    /// The limit is looked up again when it is repeated.
    StreamLimit {
        stream: StreamId,
    },
    StreamReset {
        stream: StreamId,
    },
    /// Repeated by its own timer.
    Challenge,
    /// Repeated by the policy of repair, if at all.
    Repair,
    /// Repeated until the client has received it, or is asked something else.
    Move {
        order: u64,
        lane: LaneId,
    },
}
