//! Connections whose clients have not proven anything: the few places that they share.
//!
//! When all are taken, one makes room: of the origins that never got in, then of those that hold
//! most; there, a silent one before one that has begun, and the oldest first. So who opens
//! many takes places from himself, and spare connections of neighbours go last.

use std::cmp::Reverse;
use std::net::IpAddr;

pub(crate) use longhaul_session::Ticket;
use longhaul_session::{KnownOrigins, Origin, OriginTable};

#[derive(Debug)]
pub(crate) struct Strangers {
    all: usize,
    /// Each with true once something has come from it.
    waiting: OriginTable<bool>,
    /// Origins that got in, by the count of [`Self::entered`] when they last did.
    known: KnownOrigins<u64>,
    entered: u64,
}

impl Strangers {
    /// Room for so many.
    pub fn new(all: usize) -> Self {
        let (waiting, known) = (OriginTable::default(), KnownOrigins::new(KNOWN));
        Self { all, waiting, known, entered: 0 }
    }

    /// One comes. Where it finds no place, another has to go, which [`Self::has`] tells it.
    pub fn arrive(&mut self, address: IpAddr) -> Ticket {
        let origin = Origin::of(address);
        // Clients of one host that come at the same moment find room, also for the first time.
        let part = if self.known.last(origin).is_some() { 1 } else { 4 };
        let by_origin = (self.all / part).max(1);
        if self.waiting.held_by(origin) >= by_origin {
            self.evict(|other| other == origin);
        } else if self.waiting.len() >= self.all {
            self.evict(|_| true);
        }
        self.waiting.add(origin, false)
    }

    /// Descriptors are used up: one has to go. `false` where nobody waits.
    pub fn make_room(&mut self) -> bool {
        self.evict(|_| true)
    }

    /// Something came from it.
    pub fn begin(&mut self, ticket: Ticket) {
        if let Some(has_begun) = self.waiting.get_mut(ticket) {
            *has_begun = true;
        }
    }

    /// It still has its place.
    pub fn has(&self, ticket: Ticket) -> bool {
        self.waiting.origin(ticket).is_some()
    }

    /// It needs its place no more.
    pub fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(ticket);
    }

    /// It got in: its origin is known from now on.
    pub fn get_in(&mut self, ticket: Ticket) {
        if let Some(origin) = self.waiting.origin(ticket) {
            self.entered += 1;
            self.known.note(origin, self.entered);
        }
        self.leave(ticket);
    }

    /// Connections of strangers.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    fn evict(&mut self, counts: impl Fn(Origin) -> bool) -> bool {
        let candidates = self.waiting.iter().filter(|(_, origin, _)| counts(*origin));
        let first = candidates.min_by_key(|(ticket, origin, has_begun)| {
            let is_known = self.known.last(*origin).is_some();
            (is_known, Reverse(self.waiting.held_by(*origin)), **has_begun, *ticket)
        });
        let Some((ticket, _, _)) = first else { return false };
        self.leave(ticket);
        true
    }
}

/// Origins that are remembered.
const KNOWN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ALL: usize = 1024;
    const BY_ORIGIN: usize = 256;

    fn at(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn an_origin_with_many_connections_takes_places_from_itself() {
        let mut strangers = Strangers::new(ALL);
        let other = strangers.arrive(at(1));
        let first = strangers.arrive(at(2));
        for _ in 0..5_000 {
            strangers.arrive(at(2));
        }
        assert!(strangers.has(other) && !strangers.has(first));
        assert_eq!(strangers.len(), 1 + BY_ORIGIN);
    }

    #[test]
    fn of_one_origin_the_silent_go_before_those_that_have_begun() {
        let mut strangers = Strangers::new(ALL);
        let begun = strangers.arrive(at(1));
        strangers.begin(begun);
        for _ in 0..5_000 {
            strangers.arrive(at(1));
        }
        assert!(strangers.has(begun));
    }

    #[test]
    fn an_origin_that_got_in_goes_last_and_may_hold_more() {
        let mut strangers = Strangers::new(ALL);
        let proven = strangers.arrive(at(1));
        strangers.get_in(proven);
        let spares: Vec<Ticket> = (0..BY_ORIGIN + 1).map(|_| strangers.arrive(at(1))).collect();
        for number in 2..20_000 {
            strangers.arrive(at(number));
        }
        assert!(spares.into_iter().all(|spare| strangers.has(spare)));
        assert_eq!(strangers.len(), ALL);
    }

    #[test]
    fn places_come_back_and_a_network_of_64_bits_is_one_origin() {
        let mut strangers = Strangers::new(ALL);
        let v6 = |last: u16| format!("2001:db8::{last:x}").parse().unwrap();
        let tickets: Vec<Ticket> =
            (0..BY_ORIGIN as u16 + 1).map(|last| strangers.arrive(v6(last))).collect();
        assert!(!strangers.has(tickets[0]));
        tickets.into_iter().for_each(|ticket| strangers.leave(ticket));
        assert!(strangers.waiting.is_empty());
        assert!(!strangers.make_room());
    }
}
