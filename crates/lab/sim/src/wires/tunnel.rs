//! The streams of ssh, which carry the connections in frames: the multiplexers are those of the program, what ssh
//! and the sockets on both sides hold and take at a time is drawn.

use std::collections::VecDeque;

use longhaul_connection::{Multiplexer, MultiplexerEvent};
use longhaul_units::Instant;
use longhaul_wire::SSH_WINDOW;

use super::Wire;
use crate::draw::Draw;
use crate::scenario::{End, Scenario};

#[derive(Debug)]
pub(crate) struct Tunnel {
    stream: Wire,
    /// Of client and server.
    ends: [Multiplexer; 2],
    /// Those of each, by lane.
    sockets: [Vec<Socket>; 2],
    /// Bytes that each holds in a direction.
    buffer: usize,
    cuts: Draw,
}

/// A connection between a lane and the multiplexer of its host.
#[derive(Clone, Debug, Default)]
struct Socket {
    /// From the lane.
    out: VecDeque<u8>,
    /// To the lane, which has read so much of it.
    into: Vec<u8>,
    read: usize,
}

impl Tunnel {
    pub fn new(scenario: &Scenario, draw: &mut Draw) -> Self {
        let mut ends = [Multiplexer::client(), Multiplexer::server()];
        for _ in &scenario.paths {
            ends[0].open().expect("as many lanes as there may be channels");
        }
        let sockets = vec![Socket::default(); scenario.paths.len()];
        Self {
            stream: Wire::new(&scenario.paths[0], draw),
            ends,
            sockets: [sockets.clone(), sockets],
            buffer: draw.scaled(1 << 10, 1 << 20) as usize,
            cuts: Draw::new(draw.word(), 1),
        }
    }

    pub fn stream(&mut self) -> &mut Wire {
        &mut self.stream
    }

    /// Does all that the thread of `end` can do; whether that was anything.
    pub fn pump(&mut self, now: Instant, end: End) -> bool {
        let mut moved = self.read(now, end);
        moved |= self.deliver(end);
        moved |= self.collect(end);
        moved |= self.write(now, end);
        let end = &self.ends[at(end)];
        let waiting = end.channels().map(|channel| end.waiting(channel).len()).max();
        assert!(waiting <= Some(SSH_WINDOW as usize), "{waiting:?} bytes wait of a channel");
        assert!(end.output().len() < OUT_MOST, "{} bytes wait for ssh", end.output().len());
        moved
    }

    fn read(&mut self, now: Instant, end: End) -> bool {
        let mut moved = false;
        while self.ends[at(end)].wants_input()
            && let bytes @ [_, ..] = self.stream.peek(now, end)
        {
            let len = self.cuts.scaled(1, bytes.len() as u64) as usize;
            self.ends[at(end)].handle_input(&bytes[..len]);
            self.stream.consume(end, len);
            moved = true;
        }
        while let Some(event) = self.ends[at(end)].poll_event() {
            assert!(matches!(event, MultiplexerEvent::Opened(_)), "{event:?}");
        }
        moved
    }

    fn deliver(&mut self, end: End) -> bool {
        let mut moved = false;
        for (lane, socket) in self.sockets[at(end)].iter_mut().enumerate() {
            let frames = &mut self.ends[at(end)];
            while socket.into.len() < self.buffer + socket.read
                && let waiting @ [_, ..] = frames.waiting(channel(lane))
            {
                let most = waiting.len().min(self.buffer + socket.read - socket.into.len());
                let len = self.cuts.scaled(1, most as u64) as usize;
                socket.into.extend(&waiting[..len]);
                frames.handle_taken(channel(lane), len);
                moved = true;
            }
        }
        moved
    }

    fn collect(&mut self, end: End) -> bool {
        let (frames, sockets) = (&mut self.ends[at(end)], &mut self.sockets[at(end)]);
        let mut moved = false;
        while let Some(channel) = frames.senders().find(|it| !sockets[lane(*it)].out.is_empty()) {
            let out = &mut sockets[lane(channel)].out;
            let most = frames.room(channel).min(out.len());
            let len = self.cuts.scaled(1, most as u64) as usize;
            let bytes: Vec<u8> = out.drain(..len).collect();
            frames.push(channel, &bytes);
            moved = true;
        }
        moved
    }

    fn write(&mut self, now: Instant, end: End) -> bool {
        let frames = &mut self.ends[at(end)];
        let mut moved = false;
        while let output @ [_, ..] = frames.output() {
            let len = self.cuts.scaled(1, output.len() as u64) as usize;
            let sent = self.stream.send(now, end, [&output[..len], &[]]);
            if sent == 0 {
                break;
            }
            frames.handle_written(sent);
            moved = true;
        }
        moved
    }

    /// See [`super::Wires::send`].
    pub fn send(&mut self, lane: usize, end: End, parts: [&[u8]; 2]) -> usize {
        let out = &mut self.sockets[at(end)][lane].out;
        let before = out.len();
        for part in parts {
            let room = self.buffer - out.len();
            out.extend(&part[..part.len().min(room)]);
        }
        out.len() - before
    }

    /// See [`super::Wires::peek`].
    pub fn peek(&self, lane: usize, end: End) -> &[u8] {
        let socket = &self.sockets[at(end)][lane];
        &socket.into[socket.read..]
    }

    /// See [`super::Wires::consume`].
    pub fn consume(&mut self, lane: usize, end: End, count: usize) {
        let socket = &mut self.sockets[at(end)][lane];
        socket.read += count;
        if socket.read == socket.into.len() {
            (socket.into, socket.read) = (Vec::new(), 0);
        }
    }

    /// See [`super::Wires::next_timeout`].
    pub fn next_timeout(&self, now: Instant, end: End) -> Option<Instant> {
        self.stream.next_timeout(now, end)
    }
}

fn at(end: End) -> usize {
    usize::from(end == End::Server)
}

/// Channels are numbered from 1.
fn channel(lane: usize) -> u16 {
    lane as u16 + 1
}

fn lane(channel: u16) -> usize {
    usize::from(channel) - 1
}

/// Bytes that may wait for the streams of ssh, and answers to one read.
const OUT_MOST: usize = 300 << 10;
