//! The connections of the server: a table of bounded size in which strangers make room.

use std::collections::BTreeMap;
use std::net::IpAddr;

use longhaul_session::{Origin, OriginTable, Ticket};

/// A table of connections. One on which a known token has a request under way stays; every other
/// one is there as long as there is room. When the table is full, the address that has most of
/// those loses its oldest, so that a host that opens many crowds out itself.
#[derive(Debug)]
pub(super) struct ConnectionTable<T> {
    most: usize,
    next: u64,
    taken: BTreeMap<u64, Connection<T>>,
    /// Numbers of connections that can lose their place.
    spare: OriginTable<u64>,
}

#[derive(Debug)]
struct Connection<T> {
    origin: Origin,
    /// Its place among those that can lose it.
    spare: Option<Ticket>,
    /// Requests under way that came with a known token.
    known: u32,
    _kept: T,
}

impl<T> ConnectionTable<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, next: 0, taken: BTreeMap::new(), spare: OriginTable::default() }
    }

    /// Gives a place to a connection from `address`; `None` if known tokens have all.
    pub(super) fn admit(&mut self, address: IpAddr, kept: T) -> Option<u64> {
        while self.taken.len() >= self.most {
            if !self.make_room() {
                return None;
            }
        }
        let (id, origin) = (self.next, Origin::of(address));
        self.next += 1;
        let spare = Some(self.spare.add(origin, id));
        self.taken.insert(id, Connection { origin, spare, known: 0, _kept: kept });
        Some(id)
    }

    /// A request with a known token begins; false if the connection lost its place meanwhile.
    pub(super) fn begin(&mut self, id: u64) -> bool {
        let Some(connection) = self.taken.get_mut(&id) else { return false };
        connection.known += 1;
        if let Some(ticket) = connection.spare.take() {
            self.spare.remove(ticket);
        }
        true
    }

    /// Such a request has ended.
    pub(super) fn end(&mut self, id: u64) {
        if let Some(connection) = self.taken.get_mut(&id) {
            connection.known = connection.known.saturating_sub(1);
            if connection.known == 0 {
                connection.spare = Some(self.spare.add(connection.origin, id));
            }
        }
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, id: u64) {
        if let Some(ticket) = self.taken.remove(&id).and_then(|connection| connection.spare) {
            self.spare.remove(ticket);
        }
    }

    /// Takes a place away; false if none can be.
    pub(super) fn make_room(&mut self) -> bool {
        let oldest = self.spare.oldest_of_most().and_then(|ticket| self.spare.remove(ticket));
        oldest.is_some_and(|id| self.taken.remove(&id).is_some())
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
    fn many_addresses_with_one_connection_each_crowd_out_the_oldest_whatever_its_address() {
        let mut table = ConnectionTable::new(8);
        let old = table.admit(address(1), ()).unwrap();
        let honest = table.admit(address(255), ()).unwrap();
        (2..9).for_each(|last| assert!(table.admit(address(last), ()).is_some()));
        assert!(!table.begin(old) && table.begin(honest));
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
    fn a_network_of_ipv6_counts_as_one_address_and_a_mapped_one_is_ipv4() {
        for [first, same, other] in [
            ["2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8:0:1::1"],
            ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"],
        ] {
            let mut table = ConnectionTable::new(3);
            let ids = [other, first, same, "198.51.100.1"]
                .map(|text| table.admit(text.parse().unwrap(), ()).unwrap());
            assert_eq!(ids.map(|id| table.begin(id)), [true, false, true, true]);
        }
    }
}
