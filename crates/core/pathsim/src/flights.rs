use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::{Ordering, Reverse};

use longhaul_units::Instant;

/// Packets in flight, by the time of arrival and then in the order added.
#[derive(Clone, Debug)]
pub struct Flights<T> {
    /// Sorted by time; nearly everything is here.
    in_order: VecDeque<Flight<T>>,
    /// Packets that were held back or copied, or arrive before one that was added earlier.
    out_of_order: BinaryHeap<Reverse<Flight<T>>>,
    /// Breaks ties of time.
    next_sequence: u64,
}

impl<T> Flights<T> {
    /// Adds what arrives at `at`. `is_late`: it was held back or is a copy, so that others are
    /// expected to overtake it; this makes no difference but to speed.
    pub fn push(&mut self, at: Instant, item: T, is_late: bool) {
        let flight = Flight { at, sequence: self.next_sequence, item };
        self.next_sequence += 1;
        let follows = self.in_order.back().is_none_or(|last| last.at <= at);
        if follows && !is_late {
            self.in_order.push_back(flight);
        } else {
            self.out_of_order.push(Reverse(flight));
        }
    }

    /// Takes the next that has arrived by `now`, with the time of its arrival.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, T)> {
        let regular = self.in_order.front().map(Flight::key);
        let late = self.out_of_order.peek().map(|flight| flight.0.key());
        let late_first = match (regular, late) {
            (Some(regular), Some(late)) => late < regular,
            (regular, _) => regular.is_none(),
        };
        let (at, _) = if late_first { late? } else { regular? };
        if at > now {
            return None;
        }
        let flight =
            if late_first { self.out_of_order.pop()?.0 } else { self.in_order.pop_front()? };
        Some((flight.at, flight.item))
    }

    /// When the next arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        let regular = self.in_order.front().map(|flight| flight.at);
        let late = self.out_of_order.peek().map(|flight| flight.0.at);
        regular.into_iter().chain(late).min()
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.in_order.len() + self.out_of_order.len()
    }
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self { in_order: VecDeque::new(), out_of_order: BinaryHeap::new(), next_sequence: 0 }
    }
}

#[derive(Clone, Debug)]
struct Flight<T> {
    at: Instant,
    sequence: u64,
    item: T,
}

impl<T> Flight<T> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.sequence)
    }
}

impl<T> PartialEq for Flight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Flight<T> {}

impl<T> PartialOrd for Flight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Flight<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
