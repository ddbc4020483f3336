//! Streams of a lane: the application's calls.

use longhaul_units::StreamId;
use longhaul_wire::CloseCode;

use super::{Lane, STREAMS_MAX, opens};
use crate::address::Role;
use crate::event::Event;
use crate::stream::{ReceiveHalf, SendHalf, Violation};

/// A stream cannot be used as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// No stream with this id is open.
    Unknown,
    /// The id belongs to the peer, or is open already.
    NotOurs,
    /// As many streams are open as the protocol allows.
    TooMany,
}

impl core::fmt::Display for StreamError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no such stream is open",
            Self::NotOurs => "the peer opens streams with this id, or it is open already",
            Self::TooMany => "64 streams are open already",
        })
    }
}

impl core::error::Error for StreamError {}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub send: SendHalf,
    pub receive: ReceiveHalf,
    /// A write was cut short: say when there is room.
    pub writer_waits: bool,
    /// STREAM_LIMIT is to be sent.
    pub limit_due: bool,
    /// STREAM_RESET with this code is to be sent, or was.
    pub reset: Option<Reset>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reset {
    pub code: CloseCode,
    pub due: bool,
}

impl Lane {
    /// Opens a stream; the peer learns of it with the first bytes.
    pub fn open_stream(&mut self, id: StreamId) -> Result<(), StreamError> {
        if !opens(self.config.role, id) || self.streams.contains_key(&id) {
            return Err(StreamError::NotOurs);
        }
        if self.streams.len() >= STREAMS_MAX {
            return Err(StreamError::TooMany);
        }
        self.streams.insert(id, Stream::default());
        Ok(())
    }

    /// Writes as much of `data` as is buffered; returns how much. After a short write
    /// [`Event::StreamWritable`] tells when to go on.
    pub fn stream_write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        let written = stream.send.write(data, self.config.stream_buffer);
        stream.writer_waits = written < data.len();
        Ok(written)
    }

    /// Ends this side's half of the stream behind what was written.
    pub fn stream_finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        self.streams.get_mut(&id).ok_or(StreamError::Unknown)?.send.finish();
        Ok(())
    }

    /// Reads bytes in order; returns how many, 0 when none are there now. A server reads none before
    /// it is known that UDP fits: the client may have to repeat its request over another carrier
    /// (protocol.md 4.6). The peer has finished when [`stream_at_end`](Self::stream_at_end).
    pub fn stream_read(&mut self, id: StreamId, into: &mut [u8]) -> Result<usize, StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        if self.config.role == Role::Server && !self.received_base {
            return Ok(0);
        }
        let count = stream.receive.read(into);
        if stream.receive.new_limit().is_some() {
            stream.limit_due = true;
        }
        Ok(count)
    }

    /// True if the peer has finished and everything was read.
    pub fn stream_at_end(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.receive.is_at_end())
    }

    /// True if everything written, the end included, was acknowledged.
    pub fn stream_sent(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.send.is_done())
    }

    /// Gives the stream up in both directions.
    pub fn stream_reset(&mut self, id: StreamId, code: CloseCode) -> Result<(), StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        stream.send = SendHalf::default();
        stream.reset = Some(Reset { code, due: true });
        Ok(())
    }

    /// Bytes of STREAM from the peer.
    pub(super) fn on_stream(
        &mut self,
        id: StreamId,
        offset: u64,
        data: &[u8],
        fin: bool,
    ) -> Result<(), Violation> {
        let stream = self.stream(id).ok_or(Violation::BeyondLimit)?;
        if stream.reset.is_some() {
            return Ok(());
        }
        let before = stream.receive.readable();
        stream.receive.insert(offset, data, fin)?;
        if stream.receive.readable() > before || stream.receive.is_at_end() {
            self.events.push_back(Event::StreamReadable(id));
        }
        Ok(())
    }

    /// The stream, which the peer opens with any frame about it, since frames come in any order.
    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        let is_new = !self.streams.contains_key(&id);
        if is_new && !opens(self.config.role, id) && self.streams.len() < STREAMS_MAX {
            self.streams.insert(id, Stream::default());
            self.events.push_back(Event::StreamOpened(id));
        }
        self.streams.get_mut(&id)
    }

    pub(super) fn on_stream_limit(&mut self, id: StreamId, limit: u64) {
        if let Some(stream) = self.stream(id) {
            stream.send.raise_limit(limit);
        }
    }

    pub(super) fn on_stream_reset(&mut self, id: StreamId, code: CloseCode) {
        // Kept, so that late frames do not open it again.
        if let Some(stream) = self.stream(id)
            && stream.reset.is_none()
        {
            stream.send = SendHalf::default();
            stream.reset = Some(Reset { code, due: false });
            self.events.push_back(Event::StreamReset(id, code));
        }
    }

    /// True if a stream has anything for a frame.
    pub(super) fn streams_pending(&self) -> bool {
        self.streams
            .values()
            .any(|s| s.limit_due || s.send.has_pending() || s.reset.is_some_and(|r| r.due))
    }
}
