use alloc::format;
use alloc::string::String;
use core::time::Duration;

use longhaul_units::{Cause, Extent, LaneId, PacketNumber, StreamId};
use longhaul_wire::CloseCode;

/// Something the driver should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer's address is proven; data may flow to it without bound.
    Validated,
    /// Every byte of an offered extent was acknowledged, or some of one that was withdrawn: its memory
    /// may be reused.
    Delivered(Extent),
    /// Of an offered extent that was withdrawn nothing was sent, and nothing will be: its memory may be
    /// reused.
    Withdrawn(Extent),
    /// A packet is taken as lost; only where [`crate::config::LaneConfig::tells_losses`] asks for it.
    Lost {
        /// Which.
        number: PacketNumber,
        /// Why, as far as the evidence goes.
        cause: Cause,
    },
    /// The peer opened a stream.
    StreamOpened(StreamId),
    /// Bytes, or the end, of a stream can be read.
    StreamReadable(StreamId),
    /// A stream on which a write was cut short takes bytes again.
    StreamWritable(StreamId),
    /// The peer gave the stream up.
    StreamReset(StreamId, CloseCode),
    /// The server asks that `lane` goes on over the path that `beside` is on, unless it has asked
    /// something else of that lane by a higher order.
    MoveAsked {
        /// Which of several holds.
        order: u64,
        /// The lane that is to move.
        lane: LaneId,
        /// Another one, which is where it is to go.
        beside: LaneId,
    },
    /// UDP does not fit the path that the lane is on, for this reason: it is to go on over another one, or
    /// to close with [`CloseCode::PATH_MTU`]. Reported again while it stays.
    FitsNot(String),
    /// The lane is closed; nothing else will happen on it.
    Closed(Closed),
}

/// Why a lane closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Code of protocol.md section 3.
    pub code: CloseCode,
    /// Reason for people.
    pub reason: String,
    /// True if the peer closed, rather than this side.
    pub by_peer: bool,
}

impl Closed {
    /// Nothing was received from the peer for `time`. A lane, the control connection and the kernel
    /// report it to people in the same words.
    pub fn silent(time: Duration) -> Self {
        let reason = format!("{SILENCE} {} s", time.as_secs_f32());
        Self { code: CloseCode::TIMEOUT, reason, by_peer: false }
    }

    /// True of such an end, whichever side noticed it first.
    pub fn is_silence(&self) -> bool {
        self.code == CloseCode::TIMEOUT && self.reason.starts_with(SILENCE)
    }
}

/// Words of both ends.
const SILENCE: &str = "nothing was heard from the peer for";
