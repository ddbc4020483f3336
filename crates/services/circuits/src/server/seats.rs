//! Who may stay connected: a table of bounded size in which strangers make room.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// The connections there are. One on which a known token has a request under way stays; every other
/// one is there as long as there is room. When the table is full, the address that has most of
/// those gives up its oldest, so that whoever opens many crowds out itself.
///
/// Beside each seat lies a `T`, which is dropped when the seat is taken away.
#[derive(Debug)]
pub(super) struct Seats<T> {
    most: usize,
    next: u64,
    taken: BTreeMap<u64, Seat<T>>,
    /// Seats that can be taken away, by origin, oldest first.
    spare: BTreeMap<IpAddr, BTreeSet<(u64, u64)>>,
}

#[derive(Debug)]
struct Seat<T> {
    origin: IpAddr,
    /// Its place among those that can be taken away.
    since: u64,
    /// Requests under way that came with a known token.
    known: u32,
    _kept: T,
}

impl<T> Seats<T> {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, next: 0, taken: BTreeMap::new(), spare: BTreeMap::new() }
    }

    /// Gives a seat to a connection from `address`; `None` if all are taken by known tokens.
    pub(super) fn admit(&mut self, address: IpAddr, kept: T) -> Option<u64> {
        while self.taken.len() >= self.most {
            if !self.make_room() {
                return None;
            }
        }
        let (id, origin) = (self.count(), origin(address));
        self.taken.insert(id, Seat { origin, since: id, known: 0, _kept: kept });
        self.spare.entry(origin).or_default().insert((id, id));
        Some(id)
    }

    /// A request with a known token begins; false if the seat was taken away meanwhile.
    pub(super) fn begin(&mut self, id: u64) -> bool {
        let Some(seat) = self.taken.get_mut(&id) else { return false };
        seat.known += 1;
        let (origin, place) = (seat.origin, (seat.since, id));
        self.not_spare(origin, place);
        true
    }

    /// Such a request has ended.
    pub(super) fn end(&mut self, id: u64) {
        let now = self.count();
        if let Some(seat) = self.taken.get_mut(&id) {
            seat.known = seat.known.saturating_sub(1);
            if seat.known == 0 {
                seat.since = now;
                self.spare.entry(seat.origin).or_default().insert((now, id));
            }
        }
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, id: u64) {
        if let Some(seat) = self.taken.remove(&id) {
            self.not_spare(seat.origin, (seat.since, id));
        }
    }

    /// Takes a seat away; false if none can be.
    pub(super) fn make_room(&mut self) -> bool {
        let most = self.spare.values().max_by_key(|seats| seats.len());
        let oldest = most.and_then(|seats| seats.first().copied());
        if let Some((_, id)) = oldest {
            self.leave(id);
        }
        oldest.is_some()
    }

    fn not_spare(&mut self, origin: IpAddr, place: (u64, u64)) {
        if let Some(seats) = self.spare.get_mut(&origin) {
            seats.remove(&place);
            if seats.is_empty() {
                self.spare.remove(&origin);
            }
        }
    }

    fn count(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// What counts as one address: with IPv6 a whole network, since a host has as many of its addresses
/// as it likes.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn who_opens_many_connections_crowds_out_itself() {
        let mut seats = Seats::new(8);
        let honest = seats.admit(address(1), Rc::new(())).unwrap();
        let first = Rc::new(());
        let attack: Vec<u64> =
            (0..100).filter_map(|_| seats.admit(address(2), first.clone())).collect();
        assert_eq!(attack.len(), 100, "each is let in at another's cost");
        assert_eq!((seats.taken.len(), Rc::strong_count(&first)), (8, 8));
        assert!(seats.begin(honest), "whoever has one connection keeps it");
        assert!(!seats.begin(attack[92]) && seats.begin(attack[93]), "the oldest go first");
        // Behind one proxy all have one address: the newest have time to ask.
        let late = seats.admit(address(2), first.clone()).unwrap();
        (0..5).for_each(|_| assert!(seats.admit(address(2), first.clone()).is_some()));
        assert!(seats.begin(late));
    }

    #[test]
    fn known_tokens_keep_their_seats_and_give_them_back() {
        let mut seats = Seats::new(3);
        let ids: Vec<u64> = (1..=3).map(|last| seats.admit(address(last), ()).unwrap()).collect();
        assert!(ids.iter().all(|id| seats.begin(*id)) && seats.begin(ids[0]));
        assert_eq!(seats.admit(address(9), ()), None);
        seats.end(ids[0]);
        assert_eq!(seats.admit(address(9), ()), None, "it has another request under way");
        seats.end(ids[0]);
        let new = seats.admit(address(9), ()).unwrap();
        assert!(!seats.begin(ids[0]) && seats.begin(new));
        ids.iter().chain([&new]).for_each(|id| seats.leave(*id));
        seats.end(new);
        assert!(seats.taken.is_empty() && seats.spare.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let parse = |text: &str| origin(text.parse().unwrap());
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:0:0:2"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:192.0.2.1"), address(1));
    }
}
