use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

use super::Origin;

/// Number of an entry of an [`OriginTable`]. Later ones have higher numbers.
pub type Ticket = u64;

/// Entries by origin, for limits on those who have not proven anything. The table counts and finds;
/// which entry has to go when there are too many is the caller's rule.
#[derive(Debug)]
pub struct OriginTable<T> {
    next: Ticket,
    entries: BTreeMap<Ticket, (Origin, T)>,
    held: BTreeMap<Origin, BTreeSet<Ticket>>,
}

impl<T> Default for OriginTable<T> {
    fn default() -> Self {
        Self { next: 0, entries: BTreeMap::new(), held: BTreeMap::new() }
    }
}

impl<T> OriginTable<T> {
    /// Adds an entry of `origin`.
    pub fn add(&mut self, origin: Origin, value: T) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.entries.insert(ticket, (origin, value));
        self.held.entry(origin).or_default().insert(ticket);
        ticket
    }

    /// Takes an entry out; `None` where it went before.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let (origin, value) = self.entries.remove(&ticket)?;
        self.no_longer_of(origin, ticket);
        Some(value)
    }

    /// Counts an entry as one of `origin` from now on.
    pub fn recount(&mut self, ticket: Ticket, origin: Origin) {
        if let Some((counted, _)) = self.entries.get_mut(&ticket) {
            let before = core::mem::replace(counted, origin);
            self.no_longer_of(before, ticket);
            self.held.entry(origin).or_default().insert(ticket);
        }
    }

    /// The value of an entry.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.entries.get_mut(&ticket).map(|(_, value)| value)
    }

    /// The origin of an entry; `None` where it is gone.
    pub fn origin(&self, ticket: Ticket) -> Option<Origin> {
        self.entries.get(&ticket).map(|(origin, _)| *origin)
    }

    /// Number of entries of `origin`.
    pub fn held_by(&self, origin: Origin) -> usize {
        self.held.get(&origin).map_or(0, BTreeSet::len)
    }

    /// The oldest entry of the origin that holds most; of equals, the oldest.
    pub fn oldest_of_most(&self) -> Option<Ticket> {
        let oldest = |tickets: &BTreeSet<Ticket>| tickets.first().copied();
        let most = self.held.values().max_by_key(|held| (held.len(), oldest(held).map(Reverse)))?;
        oldest(most)
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, Origin, &T)> {
        self.entries.iter().map(|(ticket, (origin, value))| (*ticket, *origin, value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn no_longer_of(&mut self, origin: Origin, ticket: Ticket) {
        if let Some(held) = self.held.get_mut(&origin) {
            held.remove(&ticket);
            if held.is_empty() {
                self.held.remove(&origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    fn origin(last: u8) -> Origin {
        Origin::of(IpAddr::from(Ipv4Addr::new(192, 0, 2, last)))
    }

    #[test]
    fn entries_are_counted_by_origin_until_they_are_removed() {
        let mut table = OriginTable::default();
        let tickets = [1, 1, 2].map(|last| table.add(origin(last), last));
        assert_eq!([1, 2, 3].map(|last| table.held_by(origin(last))), [2, 1, 0]);
        table.recount(tickets[0], origin(3));
        assert_eq!([1, 2, 3].map(|last| table.held_by(origin(last))), [1, 1, 1]);
        assert_eq!(table.origin(tickets[0]), Some(origin(3)));
        *table.get_mut(tickets[0]).unwrap() = 7;
        assert!(table.iter().map(|(_, _, value)| *value).eq([7, 1, 2]));
        assert_eq!(tickets.map(|ticket| table.remove(ticket)), [Some(7), Some(1), Some(2)]);
        assert_eq!(table.remove(tickets[0]), None);
        table.recount(tickets[0], origin(3));
        assert!(table.is_empty() && table.held.is_empty());
    }

    #[test]
    fn the_oldest_of_the_origin_with_most_is_found_and_of_equals_the_oldest() {
        let mut table = OriginTable::default();
        assert_eq!(table.oldest_of_most(), None);
        for last in [9, 1, 5, 5, 1] {
            table.add(origin(last), ());
        }
        assert_eq!(table.oldest_of_most(), Some(1), "of the two with two");
        table.remove(1);
        assert_eq!(table.oldest_of_most(), Some(2));
        table.remove(2);
        assert_eq!(table.oldest_of_most(), Some(0), "whatever its address");
    }
}
