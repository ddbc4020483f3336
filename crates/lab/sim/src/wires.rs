//! The TCP connections of a carrier: bytes in order, as fast as the line, and no more under way than
//! the buffers hold. Or they go through ssh.

mod tunnel;

use std::collections::VecDeque;

use longhaul_units::{Duration, Instant, Rate};

use crate::draw::Draw;
use crate::scenario::{End, Scenario};
use tunnel::Tunnel;

/// The connections, one for each lane that may be granted.
#[derive(Debug, Default)]
pub(crate) enum Wires {
    /// There are none.
    #[default]
    None,
    Tcp(Vec<Wire>),
    Tunnel(Box<Tunnel>),
}

impl Wires {
    pub fn new(scenario: &Scenario, draw: &mut Draw) -> Self {
        match scenario.tunnel {
            true => Self::Tunnel(Box::new(Tunnel::new(scenario, draw))),
            false => Self::Tcp(Wire::all(scenario, draw)),
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    fn wire(&mut self, lane: usize) -> Option<&mut Wire> {
        match self {
            Self::None => None,
            Self::Tcp(wires) => wires.get_mut(lane),
            Self::Tunnel(tunnel) => Some(tunnel.stream()),
        }
    }

    /// Does what is between the connections of `end` and the network; whether that was anything.
    pub fn pump(&mut self, now: Instant, end: End) -> bool {
        match self {
            Self::Tunnel(tunnel) => tunnel.pump(now, end),
            Self::None | Self::Tcp(_) => false,
        }
    }

    /// Sends of a lane at `end` as much of `parts`, one behind the other, as there is room for; how much.
    pub fn send(&mut self, lane: usize, now: Instant, end: End, parts: [&[u8]; 2]) -> usize {
        match self {
            Self::None => 0,
            Self::Tcp(wires) => wires[lane].send(now, end, parts),
            Self::Tunnel(tunnel) => tunnel.send(lane, end, parts),
        }
    }

    /// Bytes of a lane that can be read at `end`.
    pub fn peek(&mut self, lane: usize, now: Instant, end: End) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Tcp(wires) => wires[lane].peek(now, end),
            Self::Tunnel(tunnel) => tunnel.peek(lane, end),
        }
    }

    /// So much of that was read.
    pub fn consume(&mut self, lane: usize, end: End, count: usize) {
        match self {
            Self::None => {}
            Self::Tcp(wires) => wires[lane].consume(end, count),
            Self::Tunnel(tunnel) => tunnel.consume(lane, end, count),
        }
    }

    /// The host at `end` is gone, or its process: what is under way arrives, and nothing follows.
    pub fn fall_silent(&mut self, now: Instant, end: End) {
        self.each().for_each(|wire| wire.fall_silent(now, end));
    }

    /// True if the kernel at `end` has given the other up.
    pub fn is_broken(&mut self, lane: usize, now: Instant, end: End) -> bool {
        self.wire(lane).is_some_and(|wire| wire.is_broken(now, end))
    }

    /// When something comes to `end`, or it gives the other up.
    pub fn next_timeout(&self, now: Instant, end: End) -> Option<Instant> {
        match self {
            Self::None => None,
            Self::Tcp(wires) => wires.iter().filter_map(|wire| wire.next_timeout(now, end)).min(),
            Self::Tunnel(tunnel) => tunnel.next_timeout(now, end),
        }
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Wire> {
        let (wires, tunnel) = match self {
            Self::None => (None, None),
            Self::Tcp(wires) => (Some(wires.iter_mut()), None),
            Self::Tunnel(tunnel) => (None, Some(tunnel.stream())),
        };
        wires.into_iter().flatten().chain(tunnel)
    }
}

/// One TCP connection: both directions.
#[derive(Debug)]
pub(crate) struct Wire {
    up: Direction,
    down: Direction,
}

#[derive(Debug)]
struct Direction {
    delay: Duration,
    rate: Rate,
    /// Bytes, and when they are there.
    in_flight: VecDeque<(Instant, Vec<u8>)>,
    /// Of the first of these, so many were read.
    read: usize,
    bytes: usize,
    window: usize,
    /// When its sender's host was gone: nothing says so but time.
    silent: Option<Instant>,
}

impl Wire {
    /// One for each lane that may be granted.
    pub fn all(scenario: &Scenario, draw: &mut Draw) -> Vec<Self> {
        scenario.paths.iter().map(|path| Self::new(path, draw)).collect()
    }

    fn new(path: &longhaul_pathsim::DuplexConfig, draw: &mut Draw) -> Self {
        let mut direction = |path: &longhaul_pathsim::PathConfig| Direction {
            delay: path.delay,
            rate: path.bottleneck.as_ref().map_or(Rate::from_gbps(1), |line| line.rate.initial),
            in_flight: VecDeque::new(),
            read: 0,
            bytes: 0,
            window: draw.scaled(16 << 10, 4 << 20) as usize,
            silent: None,
        };
        Self { up: direction(&path.forward), down: direction(&path.backward) }
    }

    fn from(&mut self, end: End) -> &mut Direction {
        if end == End::Client { &mut self.up } else { &mut self.down }
    }

    /// Sends from `end` as much of `parts`, one behind the other, as there is room for; how much.
    pub fn send(&mut self, now: Instant, end: End, parts: [&[u8]; 2]) -> usize {
        let direction = self.from(end);
        let room = if direction.silent.is_some() {
            0
        } else {
            direction.window - direction.bytes.min(direction.window)
        };
        let first = parts[0].len().min(room);
        let second = parts[1].len().min(room - first);
        let sent = first + second;
        if sent > 0 {
            let bytes = [&parts[0][..first], &parts[1][..second]].concat();
            let last = direction.in_flight.back().map_or(now + direction.delay, |(at, _)| *at);
            let at = last.max(now + direction.delay) + direction.rate.time_for(sent as u64);
            direction.in_flight.push_back((at, bytes));
            direction.bytes += sent;
        }
        sent
    }

    /// Bytes that can be read at `end`.
    pub fn peek(&mut self, now: Instant, end: End) -> &[u8] {
        let direction = self.from(end.peer());
        match direction.in_flight.front() {
            Some((at, bytes)) if *at <= now => &bytes[direction.read..],
            _ => &[],
        }
    }

    /// So much of that was read.
    pub fn consume(&mut self, end: End, count: usize) {
        let direction = self.from(end.peer());
        direction.read += count;
        direction.bytes -= count;
        if direction.in_flight.front().is_some_and(|(_, bytes)| bytes.len() == direction.read) {
            direction.in_flight.pop_front();
            direction.read = 0;
        }
    }

    /// The host at `end` is gone, or its process: what is under way arrives, and nothing follows.
    pub fn fall_silent(&mut self, now: Instant, end: End) {
        self.from(end).silent = Some(now);
    }

    /// True if the kernel at `end` has given the other up.
    pub fn is_broken(&mut self, now: Instant, end: End) -> bool {
        let silent = self.from(end.peer()).silent;
        silent.is_some_and(|since| now >= since + IDLE_TIMEOUT)
    }

    /// When something comes to `end`, or it gives the other up.
    pub fn next_timeout(&self, now: Instant, end: End) -> Option<Instant> {
        let direction = if end == End::Client { &self.down } else { &self.up };
        // Bytes that are there already wait for a reader.
        let comes = direction.in_flight.iter().map(|(at, _)| *at).find(|at| *at > now);
        let broken = direction.silent.map(|since| since + IDLE_TIMEOUT).filter(|at| *at > now);
        comes.into_iter().chain(broken).min()
    }
}

/// The kernel's, as the carrier sets it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
