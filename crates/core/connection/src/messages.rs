//! Stream 0, which carries the messages of a connection, on the lane that has it.

use alloc::vec::Vec;

use longhaul_engine::Lane;
use longhaul_units::StreamId;

/// A lane that may carry messages, over either carrier: the first one does, the others say that they
/// have none and want none.
pub trait MessageLane {
    /// Reads bytes of messages in order; returns how many, 0 when none are there or the lane carries
    /// none. Bytes that are not read hold the peer back.
    fn read_messages(&mut self, into: &mut [u8]) -> usize;

    /// True, once, if the peer has ended its messages and all were read.
    fn poll_messages_end(&mut self) -> bool;

    /// True if encoded messages may be pushed now.
    fn wants_messages(&self) -> bool;

    /// Takes on encoded messages. Returns true if any bytes went out.
    fn push_messages(&mut self, bytes: &[u8]) -> bool;

    /// Goes on with what was pushed. Returns true if any bytes went out.
    fn write_messages(&mut self) -> bool;

    /// Ends this end's messages, once more may be pushed and nothing is. Returns true if that was done.
    fn finish_messages(&mut self) -> bool;
}

/// Messages that go through a lane.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// The part of what was pushed that the stream has not taken yet.
    unwritten: Vec<u8>,
    own: Half,
    peers: Half,
}

/// One direction of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Half {
    /// More may follow.
    #[default]
    Open,
    /// Nothing follows what is still unwritten.
    Ending,
    Ended,
}

impl Messages {
    /// True if more may be pushed now.
    pub fn wants_more(&self) -> bool {
        self.own == Half::Open && self.unwritten.is_empty()
    }

    /// Takes on encoded messages. Returns whether the stream took any bytes.
    pub fn push(&mut self, lane: &mut Lane, bytes: &[u8]) -> bool {
        self.unwritten.extend_from_slice(bytes);
        self.write(lane)
    }

    /// Nothing follows what was pushed, if the stream took all of that. Returns whether it ends.
    pub fn finish(&mut self, lane: &mut Lane) -> bool {
        let ends = self.wants_more() && lane.stream_finish(STREAM).is_ok();
        if ends {
            self.own = Half::Ended;
        }
        ends
    }

    /// Writes what the stream takes. Returns whether it took anything.
    pub fn write(&mut self, lane: &mut Lane) -> bool {
        if self.unwritten.is_empty() || !is_open(lane) {
            return false;
        }
        let written = lane.stream_write(STREAM, &self.unwritten).unwrap_or(0);
        self.unwritten.drain(..written);
        written > 0
    }

    /// Reads what came, in order; how many bytes.
    pub fn read(&mut self, lane: &mut Lane, into: &mut [u8]) -> usize {
        lane.stream_read(STREAM, into).unwrap_or(0)
    }

    /// True, once, if the peer has ended its half and everything was read.
    pub fn poll_end(&mut self, lane: &Lane) -> bool {
        let news = self.peers == Half::Open && lane.stream_at_end(STREAM);
        if news {
            self.peers = Half::Ended;
        }
        news
    }

    /// True if this end's half is ended.
    pub fn is_finished(&self) -> bool {
        self.own == Half::Ended
    }
}

/// The client opens the stream with its first message; the server's is open by then.
fn is_open(lane: &mut Lane) -> bool {
    lane.stream_write(STREAM, &[]).is_ok() || lane.open_stream(STREAM).is_ok()
}

const STREAM: StreamId = StreamId(0);
