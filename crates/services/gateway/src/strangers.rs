//! Connections whose clients have not proven anything: the few places that they share.
//!
//! When all are taken, one makes room: of the origins that never got in, then of those that hold
//! most; there, a silent one before one that has begun, and the oldest first. So who opens
//! many takes places from himself, and spare connections of neighbours go last.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use longhaul_session::Origin;

/// The connection of a stranger. Later ones have higher numbers.
pub(crate) type Ticket = u64;

#[derive(Debug)]
pub(crate) struct Strangers {
    all: usize,
    next: Ticket,
    waiting: BTreeMap<Ticket, Stranger>,
    held: BTreeMap<Origin, usize>,
    /// Origins that got in, with the next ticket when they last did.
    known: BTreeMap<Origin, Ticket>,
}

#[derive(Clone, Copy, Debug)]
struct Stranger {
    origin: Origin,
    has_begun: bool,
}

impl Strangers {
    /// Room for so many.
    pub fn new(all: usize) -> Self {
        Self {
            all,
            next: 0,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// One comes. Where it finds no place, another has to go, which [`Self::has`] tells it.
    pub fn arrive(&mut self, address: IpAddr) -> Ticket {
        let origin = Origin::of(address);
        // Clients of one host that come at the same moment find room, also for the first time.
        let part = if self.known.contains_key(&origin) { 1 } else { 4 };
        let by_origin = (self.all / part).max(1);
        if self.held_by(origin) >= by_origin {
            self.evict(|stranger| stranger.origin == origin);
        } else if self.waiting.len() >= self.all {
            self.evict(|_| true);
        }
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, Stranger { origin, has_begun: false });
        *self.held.entry(origin).or_default() += 1;
        ticket
    }

    /// Descriptors are used up: one has to go. `false` where nobody waits.
    pub fn make_room(&mut self) -> bool {
        self.evict(|_| true)
    }

    /// Something came from it.
    pub fn begin(&mut self, ticket: Ticket) {
        if let Some(stranger) = self.waiting.get_mut(&ticket) {
            stranger.has_begun = true;
        }
    }

    /// It still has its place.
    pub fn has(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    /// It needs its place no more.
    pub fn leave(&mut self, ticket: Ticket) {
        let Some(stranger) = self.waiting.remove(&ticket) else { return };
        if let Some(held) = self.held.get_mut(&stranger.origin) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&stranger.origin);
            }
        }
    }

    /// It got in: its origin is known from now on.
    pub fn get_in(&mut self, ticket: Ticket) {
        if let Some(Stranger { origin, .. }) = self.waiting.get(&ticket).copied() {
            self.known.insert(origin, self.next);
            if self.known.len() > KNOWN
                && let Some((&oldest, _)) = self.known.iter().min_by_key(|(_, at)| **at)
            {
                self.known.remove(&oldest);
            }
        }
        self.leave(ticket);
    }

    /// Connections of strangers.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    fn evict(&mut self, counts: impl Fn(&Stranger) -> bool) -> bool {
        let candidates = self.waiting.iter().filter(|(_, stranger)| counts(stranger));
        let first = candidates.min_by_key(|(ticket, Stranger { origin, has_begun })| {
            let is_known = self.known.contains_key(origin);
            (is_known, Reverse(self.held_by(*origin)), *has_begun, **ticket)
        });
        let Some((&ticket, _)) = first else { return false };
        self.leave(ticket);
        true
    }

    fn held_by(&self, origin: Origin) -> usize {
        self.held.get(&origin).copied().unwrap_or_default()
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
        assert_eq!((strangers.len(), strangers.held.len()), (0, 0));
        assert!(!strangers.make_room());
    }
}
