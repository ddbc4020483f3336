//! Stream 0 over an ordered connection: nothing is resent, but limits hold (docs/protocol.md
//! sections 5.5, 5.6 and 6).

use longhaul_units::StreamId;
use longhaul_wire::{Frame, Full, Writer, stream_room};

use crate::carrier::Hub;

/// Both directions of stream 0.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Bytes of messages that were not sent yet.
    unsent: Vec<u8>,
    sent: u64,
    limit: u64,
    finished: bool,
    received: u64,
    allowed: u64,
    ended: bool,
}

impl Stream {
    pub fn new() -> Self {
        Self { limit: WINDOW, allowed: WINDOW, ..Self::default() }
    }

    /// Appends frames to `out`, which must have room for all of them.
    pub fn write(&mut self, hub: &dyn Hub, out: &mut Writer<'_>, room: usize) -> Result<(), Full> {
        if self.received + WINDOW >= self.allowed + WINDOW / 2 && hub.wants_stream() {
            self.allowed = self.received + WINDOW;
            Frame::StreamLimit { stream: STREAM, limit: self.allowed }.encode(out)?;
        }
        while (self.unsent.len() as u64) < WINDOW && hub.next_message(&mut self.unsent) {}
        let room = stream_room(room.saturating_sub(out.len()), STREAM, self.sent);
        let may = usize::try_from(self.limit - self.sent).unwrap_or(usize::MAX);
        let len = self.unsent.len().min(room).min(may);
        let fin = len == self.unsent.len() && hub.is_finished();
        if self.finished || (len == 0 && !fin) {
            return Ok(());
        }
        let frame =
            Frame::Stream { stream: STREAM, offset: self.sent, fin, data: &self.unsent[..len] };
        frame.encode(out)?;
        self.unsent.drain(..len);
        self.sent += len as u64;
        self.finished = fin;
        Ok(())
    }

    /// Takes in a STREAM frame.
    pub fn handle(
        &mut self,
        hub: &dyn Hub,
        offset: u64,
        fin: bool,
        data: &[u8],
    ) -> Result<(), String> {
        if offset != self.received || self.ended {
            return Err("bytes of a stream out of order".into());
        }
        if offset + data.len() as u64 > self.allowed {
            return Err("more bytes of a stream than allowed".into());
        }
        self.received += data.len() as u64;
        if !data.is_empty() {
            hub.on_stream_bytes(data)?;
        }
        if fin {
            self.ended = true;
            hub.on_stream_end()?;
        }
        Ok(())
    }

    /// Takes in a STREAM_LIMIT frame.
    pub fn handle_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }
}

/// The stream that carries messages.
pub(crate) const STREAM: StreamId = StreamId(0);

/// Bytes that may be sent before the peer says more.
const WINDOW: u64 = 256 << 10;
