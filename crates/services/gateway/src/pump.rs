//! Bytes on their way from one side of a session to the other.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::transport::tcp::ready;
use crate::transport::{Direction, Segment};

/// A side of a session: its segment, and what is known of its readiness.
#[derive(Debug)]
pub struct Link {
    /// The segment.
    pub segment: Box<dyn Segment>,
    /// A read may bring something.
    pub readable: bool,
    /// A write may take something.
    pub writable: bool,
}

impl Link {
    /// A link whose readiness is not known: both are tried.
    pub fn new(segment: Box<dyn Segment>) -> Self {
        Self { segment, readable: true, writable: true }
    }

    /// Reads; see [`Segment::read`].
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let read = self.segment.read(buffer);
        self.readable = matches!(read, Ok(Some(_)));
        read
    }
}

/// The bytes of one direction that were read and not yet written.
#[derive(Debug)]
pub struct Pump {
    pending: Pending,
    /// Most bytes that it takes before it has passed them on.
    most: usize,
    /// The end was read: behind `pending` nothing follows.
    ended: bool,
    /// Payload bytes that the sender's segment brought.
    taken: u64,
}

impl Default for Pump {
    fn default() -> Self {
        Self { pending: Pending::Nothing, most: PIPE, ended: false, taken: 0 }
    }
}

#[derive(Debug, Default)]
enum Pending {
    #[default]
    Nothing,
    Bytes {
        bytes: Vec<u8>,
        start: usize,
    },
    Pipe {
        pipe: Pipe,
        len: usize,
    },
}

/// Outcome of [`Pump::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Nothing can be done until a segment is ready.
    Waiting,
    /// The turn is over; more can be done at once.
    More,
    /// The end was read, and everything before it was passed on.
    Drained,
}

impl Pump {
    /// Puts payload that was read elsewhere before everything that is read from now on.
    pub fn put_payload(&mut self, bytes: &[u8]) {
        self.taken += bytes.len() as u64;
        self.put(bytes);
    }

    /// Puts the gateway's own `bytes` before everything that is read from now on.
    pub fn put(&mut self, more: &[u8]) {
        if more.is_empty() {
            return;
        }
        match &mut self.pending {
            Pending::Bytes { bytes, .. } => bytes.extend_from_slice(more),
            // Bytes are put before the first are read, so no pipe is filled yet.
            pending => *pending = Pending::Bytes { bytes: more.to_vec(), start: 0 },
        }
    }

    /// Forgets what is pending: it goes by another segment.
    pub fn restart(&mut self) {
        self.pending = Pending::Nothing;
    }

    /// Payload that was put as the gateway's own bytes has been accepted.
    pub const fn count(&mut self, bytes: usize) {
        self.taken += bytes as u64;
    }

    /// Takes no more than `bytes` before it has passed them on.
    pub fn limit(&mut self, bytes: usize) {
        self.most = bytes.clamp(1, PIPE);
    }

    /// Bytes wait for the receiver.
    pub const fn is_waiting(&self) -> bool {
        !matches!(self.pending, Pending::Nothing)
    }

    /// Bytes that wait for the receiver.
    pub const fn waiting(&self) -> usize {
        match &self.pending {
            Pending::Nothing => 0,
            Pending::Bytes { bytes, start } => bytes.len() - *start,
            Pending::Pipe { len, .. } => *len,
        }
    }

    /// Payload bytes since the beginning.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Moves bytes until a segment is not ready or the turn's budget is used up.
    ///
    /// # Errors
    /// The segment that is read or written broke; the bytes on their way are lost with the session.
    pub fn run(
        &mut self,
        from: &mut Link,
        to: &mut Link,
        pool: &mut Pool,
    ) -> Result<Flow, (Direction, io::Error)> {
        let mut budget = TURN;
        loop {
            if !self.flush(to, pool).map_err(writing)? {
                return Ok(Flow::Waiting);
            }
            if self.ended {
                return Ok(Flow::Drained);
            }
            if budget == 0 {
                return Ok(Flow::More);
            }
            if !from.readable {
                return Ok(Flow::Waiting);
            }
            let Some(len) = self.fill(from, to, pool)? else {
                return Ok(Flow::Waiting);
            };
            budget = budget.saturating_sub(len);
        }
    }

    /// Writes what is pending; `false` where the segment takes no more.
    ///
    /// # Errors
    /// The segment broke.
    pub fn flush(&mut self, to: &mut Link, pool: &mut Pool) -> io::Result<bool> {
        loop {
            if self.waiting() == 0 {
                if let Pending::Pipe { pipe, .. } = std::mem::take(&mut self.pending) {
                    pool.give(pipe);
                }
                return Ok(true);
            }
            if !to.writable {
                return Ok(false);
            }
            let written = match &self.pending {
                Pending::Nothing => return Ok(true),
                Pending::Bytes { bytes, start } => to.segment.write(&bytes[*start..])?,
                Pending::Pipe { pipe, len } => match to.segment.payload_descriptor() {
                    Some(to) => ready(splice(&pipe.output, None, to, None, *len, FLAGS))?,
                    None => return Err(io::ErrorKind::Unsupported.into()),
                },
            };
            let Some(written) = written else {
                to.writable = false;
                return Ok(false);
            };
            match &mut self.pending {
                Pending::Nothing => {}
                Pending::Bytes { start, .. } => *start += written,
                Pending::Pipe { len, .. } => *len -= written,
            }
        }
    }

    /// Reads, with nothing pending; `None` where nothing is there.
    fn fill(
        &mut self,
        from: &mut Link,
        to: &mut Link,
        pool: &mut Pool,
    ) -> Result<Option<usize>, (Direction, io::Error)> {
        let spliced =
            from.segment.payload_descriptor().filter(|_| to.segment.payload_descriptor().is_some());
        if let Some(source) = spliced {
            let pipe = pool.take().map_err(reading)?;
            let read = ready(splice(source, None, &pipe.input, None, self.most, FLAGS));
            from.readable = matches!(read, Ok(Some(_)));
            match read {
                Ok(Some(len)) if len > 0 => self.pending = Pending::Pipe { pipe, len },
                _ => pool.give(pipe),
            }
            return read.map(|len| self.seen(len)).map_err(reading);
        }
        let most = self.most.min(pool.scratch.len());
        let read = from.read(&mut pool.scratch[..most]).map_err(reading)?;
        if let Some(len) = read
            && len > 0
        {
            // Only what the other side does not take at once is kept.
            let written = to.segment.write(&pool.scratch[..len]).map_err(writing)?.unwrap_or(0);
            if written < len {
                to.writable = false;
                self.put(&pool.scratch[written..len]);
            }
        }
        Ok(self.seen(read))
    }

    fn seen(&mut self, read: Option<usize>) -> Option<usize> {
        self.ended |= read == Some(0);
        self.taken += read.unwrap_or(0) as u64;
        read
    }
}

const fn reading(error: io::Error) -> (Direction, io::Error) {
    (Direction::Reading, error)
}

const fn writing(error: io::Error) -> (Direction, io::Error) {
    (Direction::Writing, error)
}

/// Two ends of a pipe that carries bytes from socket to socket inside the kernel.
#[derive(Debug)]
struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
}

/// Empty pipes and a buffer, which all sessions of a thread share: one that has nothing under way
/// holds neither.
#[derive(Debug)]
pub struct Pool {
    pipes: Vec<Pipe>,
    scratch: Vec<u8>,
}

impl Default for Pool {
    fn default() -> Self {
        Self { pipes: Vec::new(), scratch: vec![0; SCRATCH] }
    }
}

impl Pool {
    fn take(&mut self) -> io::Result<Pipe> {
        if let Some(pipe) = self.pipes.pop() {
            return Ok(pipe);
        }
        let (output, input) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Beyond what an ordinary user may have the pipe stays small, and more calls are made.
        let _ = fcntl_setpipe_size(&input, PIPE);
        Ok(Pipe { output, input })
    }

    fn give(&mut self, pipe: Pipe) {
        if self.pipes.len() < SPARE_PIPES {
            self.pipes.push(pipe);
        }
    }

    /// The buffer, for those who read into memory.
    pub fn scratch(&mut self) -> &mut [u8] {
        &mut self.scratch
    }
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
/// Bytes of a pipe: what a receive queue holds at a few Gb/s, and what the kernel lets anybody ask for.
pub(crate) const PIPE: usize = 1 << 20;
const SCRATCH: usize = 256 << 10;
/// Empty pipes kept by a thread.
const SPARE_PIPES: usize = 16;
/// Bytes after which the next session has its turn.
const TURN: usize = 4 << 20;
