//! The control connection: bytes in order, late, in pieces, until it breaks.

use std::collections::VecDeque;

use longhaul_units::{Duration, Instant};

use crate::draw::Draw;

/// One direction of it.
#[derive(Debug)]
pub(crate) struct ByteChannel {
    delay: Duration,
    in_flight: VecDeque<(Instant, Piece)>,
    /// Nothing is taken in any more.
    closed: bool,
}

/// Output of a [`ByteChannel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// The other end is gone.
    End,
}

impl ByteChannel {
    pub fn new(delay: Duration) -> Self {
        Self { delay, in_flight: VecDeque::new(), closed: false }
    }

    /// Sends `bytes`, in pieces as `draw` has it.
    pub fn send(&mut self, now: Instant, bytes: &[u8], draw: &mut Draw) {
        if self.closed {
            return;
        }
        let mut rest = bytes;
        let mut at = now + self.delay;
        while !rest.is_empty() {
            let len = draw.between(1, rest.len() as u64) as usize;
            let (piece, after) = rest.split_at(len);
            let last = self.in_flight.back().map_or(at, |(last, _)| *last);
            at = at.max(last) + Duration::from_micros(draw.below(50));
            self.in_flight.push_back((at, Piece::Bytes(piece.to_vec())));
            rest = after;
        }
    }

    /// Ends it behind what was sent.
    pub fn close(&mut self, now: Instant) {
        if !self.closed {
            self.closed = true;
            let last = self.in_flight.back().map_or(Instant::ZERO, |(last, _)| *last);
            self.in_flight.push_back(((now + self.delay).max(last), Piece::End));
        }
    }

    /// The sender loses power: what is under way arrives, and nothing says that it was the last.
    pub fn fall_silent(&mut self) {
        self.closed = true;
    }

    pub fn poll(&mut self, now: Instant) -> Option<Piece> {
        let due = self.in_flight.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.in_flight.pop_front()).flatten().map(|(_, piece)| piece)
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.in_flight.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_order_and_then_the_end() {
        let mut draw = Draw::new(1, 1);
        let mut channel = ByteChannel::new(Duration::from_millis(1));
        let bytes: Vec<u8> = (0..200).collect();
        channel.send(Instant::ZERO, &bytes[..100], &mut draw);
        channel.send(Instant::ZERO, &bytes[100..], &mut draw);
        channel.close(Instant::ZERO);
        channel.send(Instant::ZERO, b"too late", &mut draw);
        assert_eq!(channel.poll(Instant::ZERO), None);
        let (mut got, mut ended) = (Vec::new(), false);
        while let Some(at) = channel.next_timeout() {
            assert!(!ended);
            match channel.poll(at) {
                Some(Piece::Bytes(piece)) => got.extend(piece),
                Some(Piece::End) => ended = true,
                None => panic!("nothing at {at:?}"),
            }
        }
        assert!(got == bytes && ended);
    }
}
