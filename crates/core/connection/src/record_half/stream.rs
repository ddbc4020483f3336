//! Stream 0 over an ordered connection: nothing is resent, but limits hold (docs/protocol.md
//! sections 5.5, 5.6 and 6).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use longhaul_units::StreamId;
use longhaul_wire::{Frame, Full, Writer, stream_room};

use crate::messages::Half;

/// Both directions of stream 0.
#[derive(Debug)]
pub(super) struct Stream {
    /// Bytes of messages that were not sent yet.
    unsent: Vec<u8>,
    sent: u64,
    limit: u64,
    own: Half,
    /// Bytes of messages that were not read yet.
    unread: VecDeque<u8>,
    read: u64,
    allowed: u64,
    peers: Half,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            unsent: Vec::new(),
            sent: 0,
            limit: WINDOW,
            own: Half::Open,
            unread: VecDeque::new(),
            read: 0,
            allowed: WINDOW,
            peers: Half::Open,
        }
    }
}

impl Stream {
    /// True if more may be pushed.
    pub fn wants_more(&self) -> bool {
        self.own == Half::Open && (self.unsent.len() as u64) < WINDOW
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Nothing follows what was pushed, if more might be. Whether that is so.
    pub fn finish(&mut self) -> bool {
        let ends = self.wants_more();
        if ends {
            self.own = Half::Ending;
        }
        ends
    }

    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Appends frames to `out`, which must have room for all of them.
    pub fn write(&mut self, out: &mut Writer<'_>, room: usize) -> Result<(), Full> {
        if self.read + WINDOW >= self.allowed + WINDOW / 2 {
            self.allowed = self.read + WINDOW;
            Frame::StreamLimit { stream: STREAM, limit: self.allowed }.encode(out)?;
        }
        let room = stream_room(room.saturating_sub(out.len()), STREAM, self.sent);
        let may = usize::try_from(self.limit - self.sent).unwrap_or(usize::MAX);
        let len = self.unsent.len().min(room).min(may);
        let fin = len == self.unsent.len() && self.own == Half::Ending;
        if len == 0 && !fin {
            return Ok(());
        }
        let data = &self.unsent[..len];
        Frame::Stream { stream: STREAM, offset: self.sent, fin, data }.encode(out)?;
        self.unsent.drain(..len);
        self.sent += len as u64;
        if fin {
            self.own = Half::Ended;
        }
        Ok(())
    }

    /// Takes in a STREAM frame.
    pub fn handle(&mut self, offset: u64, fin: bool, data: &[u8]) -> Result<(), &'static str> {
        if offset != self.read + self.unread.len() as u64 || self.peers != Half::Open {
            return Err("bytes of a stream out of order");
        }
        if offset + data.len() as u64 > self.allowed {
            return Err("more bytes of a stream than allowed");
        }
        self.unread.extend(data);
        if fin {
            self.peers = Half::Ending;
        }
        Ok(())
    }

    /// Takes in a STREAM_LIMIT frame.
    pub fn handle_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Reads what came, in order; how many bytes.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.unread.len());
        for (to, byte) in into.iter_mut().zip(self.unread.drain(..count)) {
            *to = byte;
        }
        self.read += count as u64;
        count
    }

    /// True, once, if the peer has ended its half and everything was read.
    pub fn poll_end(&mut self) -> bool {
        let news = self.peers == Half::Ending && self.unread.is_empty();
        if news {
            self.peers = Half::Ended;
        }
        news
    }
}

/// The stream that carries messages.
pub(super) const STREAM: StreamId = StreamId(0);

/// Bytes that may be sent before the peer says more.
const WINDOW: u64 = 256 << 10;
