//! Who may knock at a server's door at the same time: connections that have not yet said who they
//! are cost it a thread and a descriptor each, and anybody can open them.
//!
//! Strangers are counted by address. When there are as many as may be, the oldest of the address
//! that holds most makes room, so whoever opens many takes places from himself only. Clients that
//! are proven are counted apart ([`Places`]), and make room for their data connections
//! ([`Strangers::expect`]), which are strangers until they have joined.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection at the door. Later ones have higher numbers.
pub(crate) type Ticket = u64;

/// How many may knock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub all: usize,
    /// From one address; of IPv6, from one network of 64 bits.
    pub by_origin: usize,
}

/// Connections that have not said who they are.
#[derive(Debug)]
pub(crate) struct Strangers {
    limits: Limits,
    next: Ticket,
    waiting: BTreeMap<Ticket, Origin>,
    held: BTreeMap<Origin, usize>,
    /// Data connections that proven clients are to open.
    expected: BTreeMap<Origin, usize>,
}

/// What one person easily has many addresses of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    V4(Ipv4Addr),
    /// A network of 64 bits, which one host has all of.
    V6([u8; 8]),
}

impl Origin {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Self::V6(network)
            }
        }
    }
}

impl Strangers {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            next: 0,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            expected: BTreeMap::new(),
        }
    }

    /// Lets a connection from `address` wait, and names the one that has to go for it.
    pub fn admit(&mut self, address: IpAddr) -> (Ticket, Option<Ticket>) {
        let origin = Origin::of(address);
        let full = self.waiting.len() >= self.limits.all + self.expected.values().sum::<usize>();
        let gone = if self.excess(origin) >= self.limits.by_origin as isize {
            self.evict_from(origin)
        } else if full {
            self.evict()
        } else {
            None
        };
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, origin);
        *self.held.entry(origin).or_default() += 1;
        (ticket, gone)
    }

    /// The oldest of the origin that holds most has to go; it no longer counts.
    pub fn evict(&mut self) -> Option<Ticket> {
        let most = self.held.keys().copied().max_by_key(|origin| self.excess(*origin))?;
        self.evict_from(most)
    }

    fn evict_from(&mut self, origin: Origin) -> Option<Ticket> {
        let oldest =
            self.waiting.iter().find(|(_, of)| **of == origin).map(|(ticket, _)| *ticket)?;
        self.leave(oldest);
        Some(oldest)
    }

    /// A connection is at the door no longer. Whether it was.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let Some(origin) = self.waiting.remove(&ticket) else { return false };
        take(&mut self.held, origin, 1);
        true
    }

    /// A proven client at `address` is to open `count` data connections.
    pub fn expect(&mut self, address: IpAddr, count: usize) {
        *self.expected.entry(Origin::of(address)).or_default() += count;
    }

    /// It has opened them, or will not.
    pub fn expect_no_more(&mut self, address: IpAddr, count: usize) {
        take(&mut self.expected, Origin::of(address), count);
    }

    /// How many an origin holds beyond what is expected of it.
    fn excess(&self, origin: Origin) -> isize {
        let count = |of: &BTreeMap<_, usize>| of.get(&origin).copied().unwrap_or_default() as isize;
        count(&self.held) - count(&self.expected)
    }
}

fn take(counts: &mut BTreeMap<Origin, usize>, origin: Origin, count: usize) {
    if let Some(counted) = counts.get_mut(&origin) {
        *counted = counted.saturating_sub(count);
        if *counted == 0 {
            counts.remove(&origin);
        }
    }
}

/// A number of places, each of which is given back when its holder drops it, as in a panic.
#[derive(Debug, Default)]
pub(crate) struct Places(AtomicUsize);

/// One place.
#[derive(Debug)]
pub(crate) struct Place<'p>(&'p Places);

impl Places {
    /// A place, unless `most` are taken.
    pub fn take(&self, most: usize) -> Option<Place<'_>> {
        let free = |taken: usize| (taken < most).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).ok()?;
        Some(Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn strangers(all: usize, by_origin: usize) -> Strangers {
        Strangers::new(Limits { all, by_origin })
    }

    #[test]
    fn who_opens_many_takes_places_from_himself() {
        let mut strangers = strangers(10, 3);
        let other = strangers.admit(v4(2));
        assert_eq!(other, (0, None));
        assert_eq!([(); 3].map(|()| strangers.admit(v4(1)).1), [None; 3]);
        for oldest in 1..100 {
            assert_eq!(strangers.admit(v4(1)).1, Some(oldest));
        }
        assert!(strangers.leave(other.0));
        assert!(!strangers.leave(50), "it had to go");
        assert_eq!(strangers.waiting.len(), 3);
    }

    #[test]
    fn when_all_places_are_taken_the_address_with_most_makes_room() {
        let mut strangers = strangers(6, 4);
        for last in [1, 2, 2, 3, 2, 3] {
            assert_eq!(strangers.admit(v4(last)).1, None);
        }
        assert_eq!(strangers.admit(v4(4)).1, Some(1), "the oldest of three");
        assert_eq!(strangers.admit(v4(5)).1, Some(3), "the last of equals makes room");
        assert_eq!(strangers.waiting.len(), 6);
        assert_eq!(strangers.held.values().sum::<usize>(), 6);
    }

    #[test]
    fn a_network_of_64_bits_is_one_address_and_a_mapped_one_is_ipv4() {
        let mut strangers = strangers(10, 2);
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(strangers.admit(v6("2001:db8::1")).1, None);
        assert_eq!(strangers.admit(v6("2001:db8::ffff:2")).1, None);
        assert_eq!(strangers.admit(v6("2001:db8:0:1::1")).1, None);
        assert_eq!(strangers.admit(v6("2001:db8::3")).1, Some(0));
        assert_eq!(strangers.admit(v4(1)).1, None);
        assert_eq!(strangers.admit(v6("::ffff:192.0.2.1")).1, None);
        assert_eq!(strangers.admit(v4(1)).1, Some(4));
    }

    #[test]
    fn data_connections_of_proven_clients_have_room_of_their_own() {
        let mut strangers = strangers(4, 2);
        let oldest = strangers.admit(v4(1)).0;
        strangers.admit(v4(1));
        strangers.expect(v4(1), 3);
        for _ in 0..3 {
            assert_eq!(strangers.admit(v4(1)).1, None);
        }
        assert_eq!(strangers.admit(v4(1)).1, Some(oldest));
        // Others do not push out what is expected.
        for last in 2..4 {
            assert_eq!(strangers.admit(v4(last)).1, None);
        }
        strangers.admit(v4(2));
        assert_eq!(strangers.waiting.len(), 7);
        strangers.expect_no_more(v4(1), 3);
        assert!(strangers.expected.is_empty());
        assert_eq!(strangers.admit(v4(3)).1, Some(2), "it holds most");
    }

    #[test]
    fn places_come_back_also_in_a_panic() {
        let places = Places::default();
        let one = places.take(1).unwrap();
        assert!(places.take(1).is_none());
        drop(one);
        let panicked = std::panic::catch_unwind(|| {
            let _place = places.take(1).unwrap();
            panic!("as a session might");
        });
        assert!(panicked.is_err());
        assert!(places.take(1).is_some());
    }
}
