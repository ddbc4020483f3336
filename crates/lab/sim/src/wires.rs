//! The TCP connections of a carrier: bytes in order, as fast as the line, and no more under way than
//! the buffers hold.

use std::collections::VecDeque;

use longhaul_units::{Duration, Instant, Rate};

use crate::draw::Draw;
use crate::scenario::{End, Scenario};

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
        let wire = |path: &longhaul_pathsim::DuplexConfig| {
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
        };
        scenario.paths.iter().map(wire).collect()
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
