use alloc::vec::Vec;

use super::change::Side;
use super::{Book, Booking, BookingId};
use crate::request::{Policy, Request};

/// Order in which bookings are moved forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The least remaining volume, which lowers the mean delay most.
    #[default]
    ShortestFirst,
    /// The earliest promise.
    PromiseFirst,
}

/// A booking whose vector was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The booking.
    pub id: BookingId,
    /// Its planned finish before.
    pub from: u64,
    /// Its planned finish now; not after its promise.
    pub to: u64,
}

impl Book {
    /// Plans all files of [`Policy::Earliest`] again from now on, so that freed capacity is used
    /// and short transfers pass long ones where promises allow. No planned finish comes after its
    /// promise, and none at all gets later while every promise is the planned finish.
    ///
    /// Two passes, each of which moves one booking at a time within what the others leave, so
    /// that the book is sound after every step: first, from the last promise to the first, each
    /// is pushed as late as its promise allows; then, in `order`, each is pulled as early as it
    /// can go. (In project scheduling this is known as justification; Valls, Ballestín and
    /// Quintanilla 2005.) O(bookings x ranges).
    pub fn replan(&mut self, order: Order) -> Vec<Moved> {
        let mut moving: Vec<Moving> = self
            .iter()
            .filter(|(_, b)| matches!(b.request, Request::File(f) if f.policy == Policy::Earliest))
            .filter(|(_, b)| b.finish() > self.now)
            .map(|(id, b)| Moving { id, from: b.finish(), promise: b.promise, left: self.left(b) })
            .collect();
        moving.sort_unstable_by_key(|m| (core::cmp::Reverse(m.promise), m.id));
        for m in &moving {
            self.shift(m, m.promise, Side::Late);
        }
        match order {
            Order::ShortestFirst => moving.sort_unstable_by_key(|m| (m.left, m.id)),
            Order::PromiseFirst => moving.sort_unstable_by_key(|m| (m.promise, m.id)),
        }
        for m in &moving {
            self.shift(m, m.promise, Side::Early);
        }
        moving
            .iter()
            .map(|m| Moved {
                id: m.id,
                from: m.from,
                to: self.get(m.id).map_or(m.from, Booking::finish),
            })
            .filter(|moved| moved.from != moved.to)
            .collect()
    }

    /// Channel ticks that a booking has still to carry.
    fn left(&self, booking: &Booking) -> u64 {
        let Request::File(file) = booking.request else { return 0 };
        file.volume.saturating_sub(booking.vector.delivered_before(self.now))
    }

    /// Moves what is ahead of a booking to one side of the room before `by`; leaves it where it
    /// is if it does not fit there, as can happen with guards.
    fn shift(&mut self, moving: &Moving, by: u64, side: Side) {
        let old = self.lift(moving.id);
        let new = self.get(moving.id).and_then(|b| self.fill(b, moving.left, by, side));
        match new {
            Some(new) => self.put(moving.id, new),
            None => self.put_back(moving.id, old),
        }
    }
}

struct Moving {
    id: BookingId,
    from: u64,
    promise: u64,
    left: u64,
}
