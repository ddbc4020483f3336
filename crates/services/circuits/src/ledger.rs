//! The booking state machine: who holds what of which link, decided one order at a time.
//!
//! A [`Ledger`] wraps the calendar's book with projects, quotas, holds, series, idempotency keys
//! and usage. It has no clock and no store: [`Ledger::decide`] takes the tick, and returns what it
//! did as [`Event`]s. Two ways lead to the same ledger again: applying the recorded events
//! ([`Ledger::apply`], after a restart) and deciding the recorded orders again ([`audit`]). Both
//! are exact, because nothing enters a decision that is not in the record.

pub mod audit;
mod corrupt;
mod decide;
mod keys;
mod order;
mod quota;
mod replay;
mod snapshot;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_calendar::{Book, BookConfig, Booking, BookingId, Grid, LinkSet};
use longhaul_units::{Duration, Rate};

pub use self::corrupt::{Contradiction, Corrupt};
pub use self::decide::Decision;
use self::keys::Keys;
pub use self::order::{
    Ask, Chosen, Command, Event, Id, LinkSpec, Note, Order, Place, Placing, Quota, Ranges, Record,
    Refusal, Route, Rules,
};
pub use self::quota::{Allowance, Areas};
pub use self::usage::{Closed, Ending, Totals, price};

/// The ledger's part of an open booking; the calendar keeps the rest.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// The project it belongs to.
    pub project: String,
    /// The token that made it.
    pub actor: String,
    /// Its own words about itself.
    pub note: Note,
    /// First of its series.
    pub series: Option<Id>,
    /// It lapses at this tick unless it is committed.
    pub held_until: Option<u64>,
    /// When it was made.
    pub made: u64,
}

/// All bookings of a set of links, and who may make more.
#[derive(Clone, Debug)]
pub struct Ledger {
    rules: Rules,
    seq: u64,
    book: Book,
    links: Vec<LinkSpec>,
    projects: BTreeMap<String, Quota>,
    entries: BTreeMap<Id, Entry>,
    /// Held bookings by the tick at which they lapse.
    held: BTreeSet<(u64, Id)>,
    closed: BTreeMap<Id, Closed>,
    totals: BTreeMap<String, Totals>,
    areas: Areas,
    keys: Keys,
    /// Open bookings of each series, by its first.
    series: BTreeMap<Id, BTreeSet<Id>>,
}

impl Ledger {
    /// A ledger without links and projects at `tick`.
    pub fn new(rules: Rules, tick: u64) -> Self {
        let config =
            BookConfig { guard: rules.guard, horizon: rules.horizon, slack_ppm: rules.slack_ppm };
        Self {
            rules,
            seq: 0,
            book: Book::new(config, tick),
            links: Vec::new(),
            projects: BTreeMap::new(),
            entries: BTreeMap::new(),
            held: BTreeSet::new(),
            closed: BTreeMap::new(),
            totals: BTreeMap::new(),
            areas: BTreeMap::new(),
            keys: Keys::default(),
            series: BTreeMap::new(),
        }
    }

    /// The rules.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Time and rate of ticks and channels; `None` if the rules make no grid.
    pub fn grid(&self) -> Option<Grid> {
        grid(&self.rules)
    }

    /// Position of the last record.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// The current tick.
    pub const fn now(&self) -> u64 {
        self.book.now()
    }

    /// The links, by number.
    pub fn links(&self) -> &[LinkSpec] {
        &self.links
    }

    /// The projects.
    pub const fn projects(&self) -> &BTreeMap<String, Quota> {
        &self.projects
    }

    /// The free capacity; clone it for a snapshot.
    pub const fn capacity(&self) -> &LinkSet {
        self.book.links()
    }

    /// An open booking.
    pub fn get(&self, id: Id) -> Option<(&Entry, &Booking)> {
        Some((self.entries.get(&id)?, self.book.get(BookingId(id))?))
    }

    /// All open bookings, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &Entry, &Booking)> + '_ {
        self.entries.iter().filter_map(|(id, entry)| {
            self.book.get(BookingId(*id)).map(|booking| (*id, entry, booking))
        })
    }

    /// Number of open bookings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The fingerprint of the order that came under a project's idempotency key, and the bookings
    /// that it made or changed.
    pub fn known(&self, project: &str, key: &str) -> Option<&(String, Vec<Id>)> {
        self.keys.get(project, key)
    }

    /// A booking that ended, if it is among the last [`CLOSED_MAX`].
    pub fn closed(&self, id: Id) -> Option<&Closed> {
        self.closed.get(&id)
    }

    /// The bookings that ended last, oldest booking first.
    pub fn all_closed(&self) -> impl Iterator<Item = (Id, &Closed)> + '_ {
        self.closed.iter().map(|(id, closed)| (*id, closed))
    }

    /// Usage of each project in all.
    pub const fn totals(&self) -> &BTreeMap<String, Totals> {
        &self.totals
    }

    /// Capacity of each link that the open bookings of each project hold.
    pub const fn areas(&self) -> &Areas {
        &self.areas
    }

    /// True if another ledger has come to the same state.
    pub fn same(&self, other: &Self) -> bool {
        self.rules == other.rules
            && self.seq == other.seq
            && self.now() == other.now()
            && self.links == other.links
            && self.projects == other.projects
            && self.entries == other.entries
            && self.held == other.held
            && self.closed == other.closed
            && self.totals == other.totals
            && self.areas == other.areas
            && self.keys == other.keys
            && self.series == other.series
            && self.capacity().profiles() == other.capacity().profiles()
            && self.book.iter().eq(other.book.iter())
    }

    /// Moves time on: holds lapse, bookings finish. Returns those that ended. Time does not go
    /// back: an earlier `tick` has no effect. It does not matter in how many steps time passes.
    pub fn advance(&mut self, tick: u64) -> Vec<Id> {
        let mut ended = Vec::new();
        while let Some((until, id)) = self.held.first().copied().filter(|(until, _)| *until <= tick)
        {
            self.pass(until, &mut ended);
            if self.held.contains(&(until, id)) {
                self.end(id, Ending::Lapsed);
                ended.push(id);
            }
        }
        self.pass(tick, &mut ended);
        self.keys.forget(tick, self.rules.key_life);
        ended
    }

    /// Bookings that finish by `tick` end.
    fn pass(&mut self, tick: u64, ended: &mut Vec<Id>) {
        for (id, booking) in self.book.advance(tick) {
            let held = self.entries.get(&id.0).is_some_and(|entry| entry.held_until.is_some());
            let ending = if held { Ending::Lapsed } else { Ending::Finished };
            self.close(id.0, &booking, booking.vector.area(), ending);
            ended.push(id.0);
        }
    }

    /// Takes an open booking out and frees what it holds from now on.
    fn end(&mut self, id: Id, ending: Ending) {
        let Some(whole) = self.book.get(BookingId(id)).map(|booking| booking.vector.area()) else {
            return;
        };
        if let Ok(booking) = self.book.release(BookingId(id)) {
            self.close(id, &booking, whole, ending);
        }
    }

    /// Notes what a booking that was taken out of the book has held; `whole` is what it was to
    /// hold.
    fn close(&mut self, id: Id, booking: &Booking, whole: u64, ending: Ending) {
        let Some(entry) = self.entries.remove(&id) else { return };
        if let Some(until) = entry.held_until {
            self.held.remove(&(until, id));
        }
        if let Some(first) = entry.series
            && let Some(others) = self.series.get_mut(&first)
        {
            others.remove(&id);
            if others.is_empty() {
                self.series.remove(&first);
            }
        }
        for link in booking.path.links() {
            self.charge(&entry.project, link.0, whole, 0);
        }
        let closed = Closed::new(entry, booking, whole, ending, &self.links, grid(&self.rules));
        self.totals.entry(closed.entry.project.clone()).or_default().add(&closed);
        self.closed.insert(id, closed);
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop_first();
        }
    }

    /// Counts that the open bookings of a project hold `new` instead of `old` channel ticks.
    fn charge(&mut self, project: &str, link: u32, old: u64, new: u64) {
        let area = self.areas.entry((project.to_owned(), link)).or_default();
        *area = area.saturating_sub(old).saturating_add(new);
        if *area == 0 {
            self.areas.remove(&(project.to_owned(), link));
        }
    }

    /// Remembers what came of an order with a key.
    fn remember(&mut self, order: &Order, tick: u64, ids: Vec<Id>) {
        if let Some((key, fingerprint)) = &order.key {
            self.keys.insert(tick, &order.project, key, (fingerprint.clone(), ids));
        }
    }
}

/// Time and rate of ticks and channels; `None` if the rules make no grid.
pub fn grid(rules: &Rules) -> Option<Grid> {
    Grid::new(Duration::from_nanos(rules.tick_nanos), Rate::from_bps(rules.channel_bps))
}

/// Bookings that are remembered after they ended; the log keeps all.
pub const CLOSED_MAX: usize = 10_000;
