//! The frames that CONTROL packets hold (docs/protocol.md section 5).
//!
//! One file holds the small frames; FEEDBACK and its ranges have their own.

mod feedback;
mod ranges;

use longhaul_units::{Duration, LaneId, PacketNumber, StreamId};

pub use self::feedback::{Feedback, ReceiverBounds, ReceiverLimit};
pub use self::ranges::{Ranges, ReceivedRanges};
use crate::close::cut_reason;
use crate::close::{CloseCode, MAX_REASON};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{units, varint};

/// Longest time that SUSPEND may ask for.
pub const MAX_SUSPEND: Duration = Duration::from_secs(10);
/// Longest time that a limit of the receiving host may hold (5.4.3).
pub const MAX_LIMIT: Duration = Duration::from_secs(10);

/// One frame. Bytes are borrowed from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Nothing, in this many bytes (5.1).
    Padding(usize),
    /// Asks for FEEDBACK at once (5.2).
    Ping,
    /// State of a sender of packets (5.3).
    State(State),
    /// Knowledge of a receiver of packets (5.4).
    Feedback(Feedback<'a>),
    /// Bytes of a stream (5.5).
    Stream {
        /// The stream.
        stream: StreamId,
        /// Place of the first byte in the stream; the end is below 2^62.
        offset: u64,
        /// True if the stream ends behind the bytes.
        fin: bool,
        /// The bytes, possibly none.
        data: &'a [u8],
    },
    /// Bytes of a stream that may be sent in all (5.6).
    StreamLimit {
        /// The stream.
        stream: StreamId,
        /// Number of bytes.
        limit: u64,
    },
    /// The sender of the frame will send no more and reads no more (5.7).
    StreamReset {
        /// The stream.
        stream: StreamId,
        /// Why.
        code: CloseCode,
    },
    /// Bytes to be repeated from the address that it was sent to (5.8).
    Challenge([u8; 8]),
    /// The bytes of a CHALLENGE (5.8).
    Response([u8; 8]),
    /// A blast round is sent (5.9).
    RoundEnd {
        /// Number of the round.
        round: u64,
        /// All packets of the round have lower numbers.
        end: PacketNumber,
    },
    /// The connection ends (5.10).
    Close {
        /// Why, for programs.
        code: CloseCode,
        /// Why, for people. Written up to [`MAX_REASON`].
        reason: &'a str,
    },
    /// Send no object bytes for a time (5.11).
    Suspend {
        /// A higher order replaces a lower one.
        order: u64,
        /// For how long from arrival, in whole microseconds, at most [`MAX_SUSPEND`].
        duration: Duration,
    },
    /// The server asks the client to take a lane to another path (5.12).
    Move {
        /// A higher order replaces a lower one for the same lane.
        order: u64,
        /// The lane that is to move.
        lane: LaneId,
        /// Another lane, which is on that path.
        beside: LaneId,
    },
}

/// State of a sender of packets (docs/protocol.md section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Lowest packet number whose fate the sender still tracks.
    pub floor: PacketNumber,
    /// The sender's smoothed round-trip time in whole microseconds, at least one, if known.
    pub round_trip: Option<Duration>,
}

impl<'a> Frame<'a> {
    /// True if the frame is tracked and sent again until acknowledged or out of date.
    pub const fn is_eliciting(&self) -> bool {
        matches!(
            self,
            Self::Ping
                | Self::Stream { .. }
                | Self::StreamLimit { .. }
                | Self::StreamReset { .. }
                | Self::Challenge(_)
                | Self::RoundEnd { .. }
                | Self::Move { .. }
        )
    }

    /// Number of bytes that [`Self::encode`] writes.
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Padding(len) => *len,
            _ => {
                let body = self.body_len();
                TYPE_LEN + varint::len(body as u64) + body
            }
        }
    }

    /// Writes the frame, or nothing when it does not fit.
    ///
    /// # Errors
    /// There is no room for the whole frame.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        if self.encoded_len() > w.room() {
            return Err(Full);
        }
        if let Self::Padding(len) = self {
            return w.zeros(*len);
        }
        w.varint(self.kind())?;
        w.varint(self.body_len() as u64)?;
        self.encode_body(w)
    }

    const fn kind(&self) -> u64 {
        match self {
            Self::Padding(_) => PADDING,
            Self::Ping => PING,
            Self::State(_) => STATE,
            Self::Feedback(_) => FEEDBACK,
            Self::Stream { .. } => STREAM,
            Self::StreamLimit { .. } => STREAM_LIMIT,
            Self::StreamReset { .. } => STREAM_RESET,
            Self::Challenge(_) => CHALLENGE,
            Self::Response(_) => RESPONSE,
            Self::RoundEnd { .. } => ROUND_END,
            Self::Close { .. } => CLOSE,
            Self::Suspend { .. } => SUSPEND,
            Self::Move { .. } => MOVE,
        }
    }

    fn body_len(&self) -> usize {
        match self {
            Self::Padding(_) | Self::Ping => 0,
            Self::State(state) => {
                varint::len(state.floor.get()) + varint::len(state.wire_round_trip())
            }
            Self::Feedback(feedback) => feedback.body_len(),
            Self::Stream { stream, offset, data, .. } => {
                stream_header_len(*stream, *offset) + data.len()
            }
            Self::StreamLimit { stream, limit } => {
                varint::len(stream.0.into()) + varint::len(*limit)
            }
            Self::StreamReset { stream, .. } => varint::len(stream.0.into()) + 2,
            Self::Challenge(bytes) | Self::Response(bytes) => bytes.len(),
            Self::RoundEnd { round, end } => varint::len(*round) + varint::len(end.get()),
            Self::Close { reason, .. } => 2 + cut_reason(reason).len(),
            Self::Suspend { order, duration } => {
                varint::len(*order) + varint::len(wire_suspend(*duration))
            }
            Self::Move { order, lane, beside } => {
                varint::len(*order) + varint::len(lane.0.into()) + varint::len(beside.0.into())
            }
        }
    }

    fn encode_body(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Self::Padding(_) | Self::Ping => Ok(()),
            Self::State(state) => {
                w.varint(state.floor.get())?;
                w.varint(state.wire_round_trip())
            }
            Self::Feedback(feedback) => feedback.encode(w),
            Self::Stream { stream, offset, fin, data } => {
                w.varint(stream.0.into())?;
                w.varint(*offset)?;
                w.u8(u8::from(*fin))?;
                w.bytes(data)
            }
            Self::StreamLimit { stream, limit } => {
                w.varint(stream.0.into())?;
                w.varint(*limit)
            }
            Self::StreamReset { stream, code } => {
                w.varint(stream.0.into())?;
                w.u16(code.0)
            }
            Self::Challenge(bytes) | Self::Response(bytes) => w.bytes(bytes),
            Self::RoundEnd { round, end } => {
                w.varint(*round)?;
                w.varint(end.get())
            }
            Self::Close { code, reason } => {
                w.u16(code.0)?;
                w.bytes(cut_reason(reason).as_bytes())
            }
            Self::Suspend { order, duration } => {
                w.varint(*order)?;
                w.varint(wire_suspend(*duration))
            }
            Self::Move { order, lane, beside } => {
                w.varint(*order)?;
                w.varint(lane.0.into())?;
                w.varint(beside.0.into())
            }
        }
    }

    /// Reads the body of a frame of type `kind`; `None` for an unknown type that may be skipped.
    fn decode_body(kind: u64, body: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let what = name(kind);
        let mut r = Reader::new(body, what);
        let frame = match kind {
            PING => Self::Ping,
            STATE => {
                let floor = PacketNumber::new(r.varint()?);
                let round_trip = r.varint()?;
                let round_trip = (round_trip > 0).then(|| Duration::from_micros(round_trip));
                Self::State(State { floor, round_trip })
            }
            FEEDBACK => Self::Feedback(Feedback::decode(&mut r)?),
            STREAM => {
                let (stream, offset, flags) = (stream_id(&mut r)?, r.varint()?, r.u8()?);
                let data = r.rest();
                if flags > 1 || offset + data.len() as u64 > varint::MAX {
                    return Err(r.invalid());
                }
                Self::Stream { stream, offset, fin: flags == 1, data }
            }
            STREAM_LIMIT => Self::StreamLimit { stream: stream_id(&mut r)?, limit: r.varint()? },
            STREAM_RESET => {
                Self::StreamReset { stream: stream_id(&mut r)?, code: CloseCode(r.u16()?) }
            }
            CHALLENGE => Self::Challenge(r.array()?),
            RESPONSE => Self::Response(r.array()?),
            ROUND_END => Self::RoundEnd { round: r.varint()?, end: PacketNumber::new(r.varint()?) },
            CLOSE => Self::Close { code: CloseCode(r.u16()?), reason: r.text(MAX_REASON)? },
            SUSPEND => {
                let order = r.varint()?;
                let duration = Duration::from_micros(r.varint()?);
                if duration > MAX_SUSPEND {
                    return Err(r.invalid());
                }
                Self::Suspend { order, duration }
            }
            MOVE => {
                let (order, lane, beside) = (r.varint()?, lane_id(&mut r)?, lane_id(&mut r)?);
                if lane == beside {
                    return Err(r.invalid());
                }
                Self::Move { order, lane, beside }
            }
            PADDING => return Err(r.invalid()),
            _ if kind.is_multiple_of(2) => return Ok(None),
            _ => return Err(DecodeError::Unsupported { what: "frame type" }),
        };
        r.finish()?;
        Ok(Some(frame))
    }
}

impl State {
    fn wire_round_trip(&self) -> u64 {
        self.round_trip.map_or(0, |time| units::micros(time).max(1))
    }
}

/// Bytes of a stream that fit, from `offset` on, into one STREAM frame in `room` bytes.
pub const fn stream_room(room: usize, stream: StreamId, offset: u64) -> usize {
    let header = stream_header_len(stream, offset);
    // The length of the frame takes one byte more with each limit that its body passes.
    let body = room.saturating_sub(TYPE_LEN + varint::len(room as u64));
    body.saturating_sub(header)
}

/// The frames of a CONTROL packet's opened body, in order (docs/protocol.md section 5).
///
/// Unknown frames of even type are skipped. Behind an error nothing more is yielded.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
}

impl<'a> Frames<'a> {
    /// The frames in `body`.
    pub const fn new(body: &'a [u8]) -> Self {
        Self { reader: Reader::new(body, "frame") }
    }

    fn read(&mut self) -> Result<Option<Frame<'a>>, DecodeError> {
        while !self.reader.is_empty() {
            let padding = self.reader.skip_zeros();
            if padding > 0 {
                return Ok(Some(Frame::Padding(padding)));
            }
            let kind = self.reader.varint()?;
            let body = self.reader.sized(usize::MAX)?;
            if let Some(frame) = Frame::decode_body(kind, body)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let frame = self.read();
        if frame.is_err() {
            self.reader.rest();
        }
        frame.transpose()
    }
}

fn stream_id(r: &mut Reader<'_>) -> Result<StreamId, DecodeError> {
    u32::try_from(r.varint()?).map(StreamId).map_err(|_| r.invalid())
}

fn lane_id(r: &mut Reader<'_>) -> Result<LaneId, DecodeError> {
    u16::try_from(r.varint()?).map(LaneId).map_err(|_| r.invalid())
}

const fn stream_header_len(stream: StreamId, offset: u64) -> usize {
    varint::len(stream.0 as u64) + varint::len(offset) + 1
}

fn wire_suspend(duration: Duration) -> u64 {
    units::micros(duration.min(MAX_SUSPEND))
}

const fn name(kind: u64) -> &'static str {
    match kind {
        PADDING => "PADDING frame",
        PING => "PING frame",
        STATE => "STATE frame",
        FEEDBACK => "FEEDBACK frame",
        STREAM => "STREAM frame",
        STREAM_LIMIT => "STREAM_LIMIT frame",
        STREAM_RESET => "STREAM_RESET frame",
        CHALLENGE => "CHALLENGE frame",
        RESPONSE => "RESPONSE frame",
        ROUND_END => "ROUND_END frame",
        CLOSE => "CLOSE frame",
        SUSPEND => "SUSPEND frame",
        MOVE => "MOVE frame",
        _ => "frame",
    }
}

/// Bytes that the type of every frame of this version takes.
const TYPE_LEN: usize = 1;
const PADDING: u64 = 0;
const PING: u64 = 1;
const STATE: u64 = 3;
const FEEDBACK: u64 = 5;
const STREAM: u64 = 7;
const STREAM_LIMIT: u64 = 9;
const STREAM_RESET: u64 = 11;
const CHALLENGE: u64 = 13;
const RESPONSE: u64 = 15;
const ROUND_END: u64 = 17;
const CLOSE: u64 = 19;
const SUSPEND: u64 = 21;
const MOVE: u64 = 23;

#[cfg(test)]
mod tests;
