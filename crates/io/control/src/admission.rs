//! Limits for connections that have not authenticated: each costs the server a thread and a
//! descriptor, and anybody can open them.
//!
//! When there are as many as may be, one makes room. Each [`Stage`] of the handshake has a part of
//! the places, and only a stage that holds more than its part gives one up: so those who say
//! nothing never push out those who shake hands, and those who hold finished handshakes do not push
//! out those who begin. There, origins go last that proved a token within a day; else first those of
//! the origin that holds most, and of equals the oldest. An origin's own places are divided by the
//! same rule, so who opens many takes places from himself only.
//!
//! Clients that are proven are counted apart, and make room for their data
//! connections ([`Strangers::expect`]), which are strangers until they have joined.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use longhaul_session::Ticket;
use longhaul_session::{KnownOrigins, Origin, OriginTable};
use longhaul_units::{Duration, Instant};

use crate::accept::Stage;

/// Numbers of connections that may wait for authentication.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub all: usize,
    /// From one address; of IPv6, from one network of 64 bits.
    pub by_origin: usize,
}

/// Connections that have not authenticated.
#[derive(Debug)]
pub struct Strangers {
    limits: Limits,
    waiting: OriginTable<Stage>,
    /// Data connections that proven clients are to open.
    expected: BTreeMap<Origin, usize>,
    /// When clients there proved a token last.
    proven: KnownOrigins<Instant>,
}

impl Strangers {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: OriginTable::default(),
            expected: BTreeMap::new(),
            proven: KnownOrigins::new(PROVEN_MAX),
        }
    }

    /// Lets a connection from `address` wait, and names the one that has to go for it.
    pub fn admit(&mut self, now: Instant, address: IpAddr) -> (Ticket, Option<Ticket>) {
        let origin = Origin::of(address);
        let all = self.limits.all + self.expected.values().sum::<usize>();
        let of_origin = self.limits.by_origin + self.expected_of(origin);
        let gone = if self.waiting.held_by(origin) >= of_origin {
            self.evict_one(now, of_origin, |other| other == origin)
        } else if self.waiting.len() >= all {
            self.evict_one(now, all, |_| true)
        } else {
            None
        };
        (self.waiting.add(origin, Stage::Silent), gone)
    }

    /// A proxy names `address` as the origin of a connection: its places are counted from now on. Names
    /// the one that has to go for it.
    pub fn comes_from(&mut self, now: Instant, ticket: Ticket, address: IpAddr) -> Option<Ticket> {
        let origin = Origin::of(address);
        let of_origin = self.limits.by_origin + self.expected_of(origin);
        let mut gone = None;
        if self.waiting.held_by(origin) >= of_origin {
            gone = self.evict_one(now, of_origin, |other| other == origin);
        }
        self.waiting.recount(ticket, origin);
        gone
    }

    /// There is no descriptor or thread for another one: one has to go; it no longer counts.
    pub fn evict(&mut self, now: Instant) -> Option<Ticket> {
        self.evict_one(now, self.waiting.len(), |_| true)
    }

    /// Of those that count, which divide `places`, one has to go for one that comes.
    fn evict_one(
        &mut self,
        now: Instant,
        places: usize,
        counts: impl Fn(Origin) -> bool,
    ) -> Option<Ticket> {
        let candidates = || self.waiting.iter().filter(|(_, origin, _)| counts(*origin));
        // The one that comes is silent yet.
        let mut held = [1, 0, 0];
        candidates().for_each(|(_, _, stage)| held[*stage as usize] += 1);
        let (first, second) = ((places / 4).max(1), places / 2);
        let parts = [first, second, places.saturating_sub(first + second)];
        let over =
            candidates().filter(|(_, _, stage)| held[**stage as usize] > parts[**stage as usize]);
        let (ticket, _, _) = over.min_by_key(|(ticket, origin, stage)| {
            let excess = self.waiting.held_by(*origin).saturating_sub(self.expected_of(*origin));
            (self.has_proven(now, *origin), Reverse(excess), **stage, *ticket)
        })?;
        self.leave(ticket);
        Some(ticket)
    }

    /// A connection has come so far.
    pub fn reach(&mut self, ticket: Ticket, stage: Stage) {
        if let Some(reached) = self.waiting.get_mut(ticket) {
            *reached = stage.max(*reached);
        }
    }

    /// A connection waits no longer. Returns whether it did.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        self.waiting.remove(ticket).is_some()
    }

    /// A client at `address` has proven a token.
    pub fn prove(&mut self, now: Instant, address: IpAddr) {
        self.proven.note(Origin::of(address), now);
    }

    /// True where one has within a day.
    pub fn knows(&self, now: Instant, address: IpAddr) -> bool {
        self.has_proven(now, Origin::of(address))
    }

    fn has_proven(&self, now: Instant, origin: Origin) -> bool {
        self.proven.last(origin).is_some_and(|at| now - at < REMEMBERED)
    }

    /// A proven client at `address` is to open `count` data connections.
    pub fn expect(&mut self, address: IpAddr, count: usize) {
        *self.expected.entry(Origin::of(address)).or_default() += count;
    }

    /// It has opened them, or will not.
    pub fn expect_no_more(&mut self, address: IpAddr, count: usize) {
        let origin = Origin::of(address);
        if let Some(expected) = self.expected.get_mut(&origin) {
            *expected = expected.saturating_sub(count);
            if *expected == 0 {
                self.expected.remove(&origin);
            }
        }
    }

    fn expected_of(&self, origin: Origin) -> usize {
        self.expected.get(&origin).copied().unwrap_or_default()
    }
}

/// A number of places, each of which is given back when its holder drops it, as in a panic.
#[derive(Debug, Default)]
pub struct Places(AtomicUsize);

/// One place.
#[derive(Debug)]
pub struct Place<'p>(&'p Places);

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

/// Origins whose last proof is remembered, and for how long: those who copy every night are known.
const PROVEN_MAX: usize = 4096;
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn v4(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn strangers(all: usize, by_origin: usize) -> Strangers {
        Strangers::new(Limits { all, by_origin })
    }

    const NOW: Instant = Instant::ZERO;

    impl Strangers {
        /// One more from there that comes so far, and the one that goes for it.
        fn come(&mut self, address: IpAddr, stage: Stage) -> (Ticket, Option<Ticket>) {
            let (ticket, gone) = self.admit(NOW, address);
            self.reach(ticket, stage);
            (ticket, gone)
        }

        /// One from each of these addresses.
        fn crowd(&mut self, numbers: std::ops::Range<u32>, stage: Stage) {
            for number in numbers {
                self.come(many(number), stage);
            }
        }

        fn has(&self, ticket: Ticket) -> bool {
            self.waiting.origin(ticket).is_some()
        }
    }

    /// One of many addresses, below those of [`v4`].
    fn many(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    const STAGES: [Stage; 3] = [Stage::Silent, Stage::Greeted, Stage::Secured];

    #[test]
    fn one_address_that_opens_many_displaces_its_own() {
        let mut strangers = strangers(10, 3);
        let other = strangers.admit(NOW, v4(2));
        assert_eq!(other, (0, None));
        assert_eq!([(); 3].map(|()| strangers.admit(NOW, v4(1)).1), [None; 3]);
        for oldest in 1..100 {
            assert_eq!(strangers.admit(NOW, v4(1)).1, Some(oldest));
        }
        assert!(strangers.leave(other.0));
        assert!(!strangers.leave(50), "it had to go");
        assert_eq!(strangers.waiting.len(), 3);
    }

    #[test]
    fn clients_behind_a_proxy_have_places_of_their_own() {
        let mut strangers = strangers(10, 3);
        let other = strangers.admit(NOW, v4(9)).0;
        assert_eq!(strangers.comes_from(NOW, other, v4(2)), None);
        let mut tickets = Vec::new();
        for _ in 0..3 {
            tickets.push(strangers.admit(NOW, v4(9)).0);
            assert_eq!(strangers.comes_from(NOW, tickets[tickets.len() - 1], v4(1)), None);
        }
        let one_more = strangers.admit(NOW, v4(9)).0;
        assert_eq!(strangers.comes_from(NOW, one_more, v4(1)), Some(tickets[0]));
        assert!(strangers.has(other) && strangers.has(one_more));
    }

    #[test]
    fn when_all_places_are_taken_the_address_with_most_makes_room() {
        let mut strangers = strangers(6, 4);
        for last in [1, 2, 2, 3, 2, 3] {
            assert_eq!(strangers.admit(NOW, v4(last)).1, None);
        }
        assert_eq!(strangers.admit(NOW, v4(4)).1, Some(1), "the oldest of three");
        assert_eq!(strangers.admit(NOW, v4(5)).1, Some(2), "the oldest of equals");
        assert_eq!(strangers.waiting.len(), 6);
    }

    #[test]
    fn of_equals_the_oldest_goes_whatever_its_address() {
        let mut strangers = strangers(256, 64);
        // The victim has the highest address, and 300 others come before and behind it.
        strangers.crowd(0..300, Stage::Silent);
        let victim = strangers.admit(NOW, v4(255)).0;
        strangers.crowd(300..500, Stage::Silent);
        assert!(strangers.has(victim), "fewer than all places came behind it");
        assert_eq!(strangers.waiting.len(), 256);
    }

    #[test]
    fn those_at_one_stage_never_push_out_those_at_another() {
        for others in STAGES {
            for stage in STAGES.into_iter().filter(|stage| *stage != others) {
                let mut strangers = strangers(256, 64);
                strangers.crowd(0..300, others);
                let victim = strangers.come(v4(1), stage).0;
                strangers.crowd(300..5_000, others);
                assert!(strangers.has(victim), "{stage:?} among {others:?}");
                assert_eq!(strangers.waiting.len(), 256);
            }
        }
    }

    #[test]
    fn handshakes_are_displaced_only_for_half_of_the_places_at_the_least() {
        let mut strangers = strangers(256, 64);
        for stage in [Stage::Silent, Stage::Secured] {
            strangers.crowd(0..256, stage);
        }
        let victim = strangers.come(v4(1), Stage::Greeted).0;
        strangers.crowd(1_000..1_127, Stage::Greeted);
        assert!(strangers.has(victim));
        strangers.come(many(2_000), Stage::Greeted);
        strangers.come(many(2_001), Stage::Greeted);
        assert!(!strangers.has(victim), "the table is of bounded size");
    }

    #[test]
    fn an_origin_that_proved_a_token_within_a_day_goes_last() {
        let mut strangers = strangers(8, 4);
        strangers.prove(NOW, v4(1));
        let known = strangers.come(v4(1), Stage::Greeted).0;
        strangers.crowd(0..1_000, Stage::Greeted);
        assert!(strangers.has(known));
        let later = NOW + REMEMBERED;
        let gone = (0..8).filter_map(|number| strangers.admit(later, many(2_000 + number)).1);
        assert!(gone.collect::<Vec<_>>().contains(&known), "a day later it is as the others");
    }

    #[test]
    fn origins_that_proved_a_token_are_remembered_in_bounded_memory() {
        let mut strangers = strangers(8, 4);
        for number in 0..PROVEN_MAX as u32 + 10 {
            strangers.prove(NOW + Duration::from_secs(number.into()), many(number));
        }
        let now = NOW + Duration::from_secs(PROVEN_MAX as u64 + 10);
        assert!(!strangers.has_proven(now, Origin::of(many(9))));
        assert!(strangers.has_proven(now, Origin::of(many(10))));
    }

    #[test]
    fn a_network_of_64_bits_is_one_address_and_a_mapped_one_is_ipv4() {
        let mut strangers = strangers(10, 2);
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(strangers.admit(NOW, v6("2001:db8::1")).1, None);
        assert_eq!(strangers.admit(NOW, v6("2001:db8::ffff:2")).1, None);
        assert_eq!(strangers.admit(NOW, v6("2001:db8:0:1::1")).1, None);
        assert_eq!(strangers.admit(NOW, v6("2001:db8::3")).1, Some(0));
        assert_eq!(strangers.admit(NOW, v4(1)).1, None);
        assert_eq!(strangers.admit(NOW, v6("::ffff:192.0.2.1")).1, None);
        assert_eq!(strangers.admit(NOW, v4(1)).1, Some(4));
    }

    #[test]
    fn data_connections_of_proven_clients_have_room_of_their_own() {
        let mut strangers = strangers(4, 2);
        let oldest = strangers.admit(NOW, v4(1)).0;
        strangers.admit(NOW, v4(1));
        strangers.expect(v4(1), 3);
        for _ in 0..3 {
            assert_eq!(strangers.admit(NOW, v4(1)).1, None);
        }
        assert_eq!(strangers.admit(NOW, v4(1)).1, Some(oldest));
        // Others do not push out what is expected.
        for last in 2..4 {
            assert_eq!(strangers.admit(NOW, v4(last)).1, None);
        }
        strangers.admit(NOW, v4(2));
        assert_eq!(strangers.waiting.len(), 7);
        strangers.expect_no_more(v4(1), 3);
        assert!(strangers.expected.is_empty());
        assert_eq!(strangers.admit(NOW, v4(3)).1, Some(2), "it holds most");
    }

    #[test]
    fn where_descriptors_are_short_one_goes_although_there_are_places() {
        let mut strangers = strangers(256, 64);
        assert_eq!(strangers.evict(NOW), None);
        let [first, second] = [v4(1), v4(2)].map(|at| strangers.come(at, Stage::Secured).0);
        assert_eq!(strangers.evict(NOW), Some(first));
        assert_eq!(strangers.evict(NOW), Some(second));
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
