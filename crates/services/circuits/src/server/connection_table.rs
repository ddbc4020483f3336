//! The connections of the server: a table of bounded size in which strangers make room.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// A table of connections. One on which a known token has a request under way stays; every other
/// one is there as long as there is room. When the table is full, the address that has most of
/// those loses its oldest, so that a host that opens many crowds out itself.
#[derive(Debug)]
pub(super) struct ConnectionTable<T> {
    most: usize,
    next: u64,
    taken: BTreeMap<u64, Connection<T>>,
    /// Connections that can lose their place, by origin, oldest first.
    spare: BTreeMap<IpAddr, BTreeSet<(u64, u64)>>,
}

#[derive(Debug)]
struct Connection<T> {
    origin: IpAddr,
    /// Its place among those that can lose it.
    since: u64,
    /// Requests under way that came with a known token.
    known: u32,
    _kept: T,
}

impl<T> ConnectionTable<T> {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, next: 0, taken: BTreeMap::new(), spare: BTreeMap::new() }
    }

    /// Gives a place to a connection from `address`; `None` if known tokens have all.
    pub(super) fn admit(&mut self, address: IpAddr, kept: T) -> Option<u64> {
        while self.taken.len() >= self.most {
            if !self.make_room() {
                return None;
            }
        }
        let (id, origin) = (self.count(), origin(address));
        self.taken.insert(id, Connection { origin, since: id, known: 0, _kept: kept });
        self.spare.entry(origin).or_default().insert((id, id));
        Some(id)
    }

    /// A request with a known token begins; false if the connection lost its place meanwhile.
    pub(super) fn begin(&mut self, id: u64) -> bool {
        let Some(connection) = self.taken.get_mut(&id) else { return false };
        connection.known += 1;
        let (origin, place) = (connection.origin, (connection.since, id));
        self.not_spare(origin, place);
        true
    }

    /// Such a request has ended.
    pub(super) fn end(&mut self, id: u64) {
        let now = self.count();
        if let Some(connection) = self.taken.get_mut(&id) {
            connection.known = connection.known.saturating_sub(1);
            if connection.known == 0 {
                connection.since = now;
                self.spare.entry(connection.origin).or_default().insert((now, id));
            }
        }
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, id: u64) {
        if let Some(connection) = self.taken.remove(&id) {
            self.not_spare(connection.origin, (connection.since, id));
        }
    }

    /// Takes a place away; false if none can be.
    pub(super) fn make_room(&mut self) -> bool {
        let most = self.spare.values().max_by_key(|places| places.len());
        let oldest = most.and_then(|places| places.first().copied());
        if let Some((_, id)) = oldest {
            self.leave(id);
        }
        oldest.is_some()
    }

    fn not_spare(&mut self, origin: IpAddr, place: (u64, u64)) {
        if let Some(places) = self.spare.get_mut(&origin) {
            places.remove(&place);
            if places.is_empty() {
                self.spare.remove(&origin);
            }
        }
    }

    fn count(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The address by which a connection counts: with IPv6 a whole network, since a host has as many of
/// its addresses as it likes.
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
    fn an_address_with_many_connections_crowds_out_itself() {
        let mut table = ConnectionTable::new(8);
        let honest = table.admit(address(1), Rc::new(())).unwrap();
        let first = Rc::new(());
        let attack: Vec<u64> =
            (0..100).filter_map(|_| table.admit(address(2), first.clone())).collect();
        assert_eq!(attack.len(), 100, "each is let in at another's cost");
        assert_eq!((table.taken.len(), Rc::strong_count(&first)), (8, 8));
        assert!(table.begin(honest), "an address with one connection keeps it");
        assert!(!table.begin(attack[92]) && table.begin(attack[93]), "the oldest go first");
        // Behind one proxy all have one address: the newest have time to ask.
        let late = table.admit(address(2), first.clone()).unwrap();
        (0..5).for_each(|_| assert!(table.admit(address(2), first.clone()).is_some()));
        assert!(table.begin(late));
    }

    #[test]
    fn known_tokens_keep_their_places_and_give_them_back() {
        let mut table = ConnectionTable::new(3);
        let ids: Vec<u64> = (1..=3).map(|last| table.admit(address(last), ()).unwrap()).collect();
        assert!(ids.iter().all(|id| table.begin(*id)) && table.begin(ids[0]));
        assert_eq!(table.admit(address(9), ()), None);
        table.end(ids[0]);
        assert_eq!(table.admit(address(9), ()), None, "it has another request under way");
        table.end(ids[0]);
        let new = table.admit(address(9), ()).unwrap();
        assert!(!table.begin(ids[0]) && table.begin(new));
        ids.iter().chain([&new]).for_each(|id| table.leave(*id));
        table.end(new);
        assert!(table.taken.is_empty() && table.spare.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let parse = |text: &str| origin(text.parse().unwrap());
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:0:0:2"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:192.0.2.1"), address(1));
    }
}
