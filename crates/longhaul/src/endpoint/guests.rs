//! Who is served at the same time: clients that have proven a token.
//!
//! While there are places anybody has as many as it likes: behind one token or address may be a
//! site, a gateway or a NAT. Where none is left somebody has to go for one that comes: first who has
//! stood still for longer than an excuse lasts; else one of the token that holds most, if that
//! still holds as many as the other's then; else, of the same token, one of the address that holds
//! most, under the same condition. So nobody is kept out by one who holds more, nor for long by who
//! only says why nothing moves.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;

use longhaul_control::Ticket;
use longhaul_session::Origin;
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, counted};

/// The places for clients. Shared by reference among threads.
#[derive(Debug)]
pub(crate) struct Guests {
    ledger: Mutex<Ledger>,
}

/// Most places at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Of all clients.
    pub all: usize,
    /// Of the one token.
    pub own: Option<usize>,
}

fn transfers(count: &usize) -> String {
    counted(*count as u64, "transfer")
}

/// There is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPlace {
    /// All are taken by who has as good a right.
    #[error("as many clients as allowed are being served")]
    Full,
    /// The token has all that it may have.
    #[error("this token has {} at this server, as many as it may have at a time", transfers(.0))]
    Limit(usize),
}

/// A place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Guest<'g> {
    guests: &'g Guests,
    ticket: Ticket,
}

/// Why a client had to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Nothing had moved for so long.
    Still(Duration),
    /// Its token or address held more than the one that came.
    Many,
}

/// Who has the places. Without clock and locks.
#[derive(Debug)]
struct Ledger {
    /// How long one may stand still while others wait; zero is for ever.
    excuse: Duration,
    next: Ticket,
    staying: BTreeMap<Ticket, Party>,
    going: BTreeMap<Ticket, Gone>,
}

#[derive(Clone, Copy, Debug)]
struct Party {
    token: [u8; 8],
    origin: Origin,
    /// How long nothing has moved, when it looked last.
    still: Duration,
}

impl Guests {
    /// While others wait one may stand still for `excuse`.
    pub fn new(excuse: Duration) -> Self {
        let (staying, going) = (BTreeMap::new(), BTreeMap::new());
        Self { ledger: Mutex::new(Ledger { excuse, next: 0, staying, going }) }
    }

    /// A place for a client with the token of that key id, perhaps in the place of another.
    ///
    /// # Errors
    /// All are taken by who has as good a right, or the token has its own.
    pub fn admit(
        &self,
        places: Places,
        token: [u8; 8],
        address: IpAddr,
    ) -> Result<Guest<'_>, NoPlace> {
        let ticket = lock(&self.ledger).admit(places, token, Origin::of(address))?;
        Ok(Guest { guests: self, ticket })
    }

    /// Clients that have a place.
    pub fn count(&self) -> usize {
        let ledger = lock(&self.ledger);
        ledger.staying.len() + ledger.going.len()
    }
}

impl Guest<'_> {
    /// There is a place, but nothing else for it: whether another has to go for it.
    pub fn make_room(&self) -> bool {
        lock(&self.guests.ledger).make_room_for(self.ticket)
    }

    /// Clients of its token that have a place, and all clients.
    pub fn counts(&self) -> (usize, usize) {
        let ledger = lock(&self.guests.ledger);
        let token = ledger.staying.get(&self.ticket).map(|party| party.token);
        let of_token = ledger.staying.values().filter(|party| Some(party.token) == token).count();
        (of_token, ledger.staying.len())
    }

    /// Nothing has moved for so long. Why it has to go, if it has.
    pub fn look(&self, still: Duration) -> Option<Gone> {
        lock(&self.guests.ledger).look(self.ticket, still)
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        lock(&self.guests.ledger).leave(self.ticket);
    }
}

impl Gone {
    /// In words for who has to go.
    pub fn reason(self) -> String {
        match self {
            Self::Still(lasted) => format!(
                "others wait for a place at this server, and nothing has moved here for {} s (serve \
                 --excuse-timeout); try again later",
                lasted.as_secs()
            ),
            Self::Many => {
                "others wait for a place at this server, and this token or address holds \
                           more of them; try again later"
                    .into()
            }
        }
    }
}

impl Ledger {
    fn admit(&mut self, places: Places, token: [u8; 8], origin: Origin) -> Result<Ticket, NoPlace> {
        let party = Party { token, origin, still: Duration::ZERO };
        let own = || self.staying.values().filter(|party| party.token == token).count();
        if let Some(most) = places.own.filter(|most| own() >= *most) {
            return Err(NoPlace::Limit(most));
        }
        if self.staying.len() >= places.all {
            let (gone, why) = self.choose(&party, None).ok_or(NoPlace::Full)?;
            self.dismiss(gone, why);
        }
        let ticket = self.next;
        self.next += 1;
        self.staying.insert(ticket, party);
        Ok(ticket)
    }

    fn make_room_for(&mut self, ticket: Ticket) -> bool {
        let chosen = self.staying.get(&ticket).and_then(|party| self.choose(party, Some(ticket)));
        if let Some((gone, why)) = chosen {
            self.dismiss(gone, why);
        }
        chosen.is_some()
    }

    fn dismiss(&mut self, ticket: Ticket, why: Gone) {
        self.staying.remove(&ticket);
        self.going.insert(ticket, why);
    }

    fn look(&mut self, ticket: Ticket, still: Duration) -> Option<Gone> {
        if let Some(party) = self.staying.get_mut(&ticket) {
            party.still = still;
        }
        self.going.get(&ticket).copied()
    }

    fn leave(&mut self, ticket: Ticket) {
        self.staying.remove(&ticket);
        self.going.remove(&ticket);
    }

    /// Who has to go for `comes`, which has the place `own` or none yet.
    fn choose(&self, comes: &Party, own: Option<Ticket>) -> Option<(Ticket, Gone)> {
        let others = || self.staying.iter().filter(|(ticket, _)| Some(**ticket) != own);
        let stillest = others().max_by_key(|(_, party)| party.still);
        if let Some((ticket, Party { still, .. })) = stillest
            && !self.excuse.is_zero()
            && *still >= self.excuse
        {
            return Some((*ticket, Gone::Still(*still)));
        }
        let mut tokens = BTreeMap::<[u8; 8], usize>::new();
        others().for_each(|(_, party)| *tokens.entry(party.token).or_default() += 1);
        let token = most(&tokens, comes.token).unwrap_or(comes.token);
        let of_token = || others().filter(|(_, party)| party.token == token);
        let mut origins = BTreeMap::<Origin, usize>::new();
        of_token().for_each(|(_, party)| *origins.entry(party.origin).or_default() += 1);
        let origin = if token == comes.token {
            most(&origins, comes.origin)?
        } else {
            *origins.iter().max_by_key(|(_, held)| **held)?.0
        };
        let (ticket, _) = of_token()
            .filter(|(_, party)| party.origin == origin)
            .max_by_key(|(ticket, party)| (party.still.as_secs() / STANDS_S, **ticket))?;
        Some((*ticket, Gone::Many))
    }
}

/// Who holds most, if it holds as many as `comes` also when one of its places has gone to that.
fn most<K: Copy + Ord>(held: &BTreeMap<K, usize>, comes: K) -> Option<K> {
    let own = held.get(&comes).copied().unwrap_or_default();
    let others = held.iter().filter(|(of, _)| **of != comes);
    let (of, count) = others.max_by_key(|(_, count)| **count)?;
    (*count >= own + 2).then_some(*of)
}

/// Of one holder's, what has stood still for a multiple of this goes before what moves, and of what
/// moves the newest, which loses least.
const STANDS_S: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const EXCUSE: Duration = Duration::from_secs(900);
    const PLACES: usize = 8;

    struct Door(Ledger);

    impl Door {
        fn new() -> Self {
            let (staying, going) = (BTreeMap::new(), BTreeMap::new());
            Self(Ledger { excuse: EXCUSE, next: 0, staying, going })
        }

        /// A client of that token and address.
        fn comes(&mut self, token: u8, address: u8) -> Option<Ticket> {
            let origin = Origin::of(Ipv4Addr::new(192, 0, 2, address).into());
            self.0.admit(Places { all: PLACES, own: None }, [token; 8], origin).ok()
        }

        fn held(&self, token: u8, address: u8) -> usize {
            let origin = Origin::of(Ipv4Addr::new(192, 0, 2, address).into());
            let same = |party: &&Party| party.token == [token; 8] && party.origin == origin;
            self.0.staying.values().filter(same).count()
        }
    }

    #[test]
    fn one_token_and_address_has_all_places_while_nobody_else_comes() {
        let mut door = Door::new();
        assert!((0..PLACES).all(|_| door.comes(1, 1).is_some()));
        assert_eq!(door.comes(1, 1), None, "and no more");
        assert!(door.0.going.is_empty());
    }

    #[test]
    fn a_token_that_holds_more_makes_room_until_it_holds_as_many() {
        let mut door = Door::new();
        for address in 0..PLACES as u8 {
            door.comes(1, address);
        }
        let admitted = (0..PLACES).filter(|_| door.comes(2, 99).is_some()).count();
        assert_eq!(admitted, PLACES / 2);
        assert_eq!(door.0.staying.len(), PLACES);
        assert!(door.0.going.values().all(|why| *why == Gone::Many));
        assert_eq!(door.comes(1, 50), None, "neither takes it back");
        assert!(door.comes(3, 99).is_some(), "a third token has its share");
    }

    #[test]
    fn a_token_has_no_more_places_than_it_may_have() {
        let mut door = Door::new();
        let places = Places { all: PLACES, own: Some(2) };
        let origin = |address| Origin::of(Ipv4Addr::new(192, 0, 2, address).into());
        let first = door.0.admit(places, [1; 8], origin(1)).unwrap();
        door.0.admit(places, [1; 8], origin(2)).unwrap();
        assert_eq!(door.0.admit(places, [1; 8], origin(3)), Err(NoPlace::Limit(2)));
        door.0.admit(places, [2; 8], origin(1)).unwrap();
        door.0.leave(first);
        door.0.admit(places, [1; 8], origin(3)).unwrap();
    }

    #[test]
    fn of_one_token_the_address_that_holds_more_makes_room() {
        let mut door = Door::new();
        for _ in 0..PLACES {
            door.comes(1, 1);
        }
        let admitted = (0..PLACES).filter(|_| door.comes(1, 2).is_some()).count();
        assert_eq!(admitted, PLACES / 2);
        // Another token takes it from the address with most.
        assert!(door.comes(1, 3).is_some());
        let before = door.held(1, 1).max(door.held(1, 2));
        assert!(door.comes(2, 9).is_some());
        assert!(door.held(1, 1).max(door.held(1, 2)) <= before);
        assert_eq!(door.held(1, 3), 1);
    }

    #[test]
    fn what_stands_still_goes_before_what_moves_and_then_the_newest() {
        let mut door = Door::new();
        let tickets: Vec<_> = (0..PLACES).filter_map(|_| door.comes(1, 1)).collect();
        assert_eq!(door.0.look(tickets[2], Duration::from_secs(40)), None);
        assert_eq!(door.0.look(tickets[5], Duration::from_secs(3)), None);
        door.comes(2, 1).unwrap();
        assert_eq!(door.0.look(tickets[2], Duration::ZERO), Some(Gone::Many));
        door.comes(2, 1).unwrap();
        assert_eq!(door.0.look(tickets[7], Duration::ZERO), Some(Gone::Many));
    }

    #[test]
    fn an_excuse_lasts_for_its_time_while_others_wait_and_for_ever_while_none_does() {
        let mut door = Door::new();
        let tickets: Vec<_> = (0..PLACES).filter_map(|_| door.comes(1, 1)).collect();
        door.0.look(tickets[3], EXCUSE - Duration::from_secs(1));
        assert_eq!(door.comes(1, 1), None);
        assert_eq!(door.0.look(tickets[3], EXCUSE * 100), None, "nobody waits");
        assert!(door.comes(1, 1).is_some());
        assert_eq!(door.0.look(tickets[3], EXCUSE * 100), Some(Gone::Still(EXCUSE * 100)));
        door.0.excuse = Duration::ZERO;
        door.0.look(tickets[4], EXCUSE * 100);
        assert_eq!(door.comes(1, 1), None, "zero is for ever");
    }

    #[test]
    fn who_finds_a_place_and_no_memory_has_it_made_by_the_same_rule() {
        let mut door = Door::new();
        for _ in 0..3 {
            door.comes(1, 1);
        }
        let comes = door.comes(2, 2).unwrap();
        assert!(door.0.make_room_for(comes));
        assert_eq!(door.held(1, 1), 2);
        assert!(door.0.make_room_for(comes));
        assert!(!door.0.make_room_for(comes), "one each");
        door.0.leave(comes);
        assert!(!door.0.make_room_for(comes));
    }
}
