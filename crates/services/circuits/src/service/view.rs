use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use longhaul_calendar::{Booking, Grid, LinkSet};
use longhaul_units::{Duration, Rate};

use super::config::Config;
use crate::clock::Clock;
use crate::ledger::{
    self, Allowance, Areas, Closed, Entry, Event, Id, Ledger, LinkSpec, Quota, Refusal, Rules,
    Totals,
};

/// An open booking.
#[derive(Clone, Debug)]
pub struct Open {
    /// The ledger's part.
    pub entry: Entry,
    /// The calendar's part.
    pub booking: Booking,
}

/// Something that happened to a booking.
#[derive(Clone, Debug)]
pub struct Change {
    /// Counted on from a number of the leader's epoch, so that none stands for two changes.
    pub number: u64,
    /// The booking.
    pub id: Id,
    /// In a word: booked, held, committed, modified, extended, released, cancelled, replanned,
    /// finished, lapsed.
    pub what: &'static str,
    /// Its owner.
    pub project: String,
}

/// The durable state, for everybody to read.
#[derive(Debug)]
pub struct View {
    /// Position of the log's last record.
    pub seq: u64,
    /// The rules.
    pub rules: Rules,
    /// Units.
    pub grid: Grid,
    /// The links, by number.
    pub links: Vec<LinkSpec>,
    /// The projects.
    pub projects: BTreeMap<String, Quota>,
    /// The free capacity. Cloning it is cheap.
    pub capacity: LinkSet,
    /// Open bookings.
    pub open: BTreeMap<Id, Arc<Open>>,
    /// Bookings that ended last.
    pub closed: BTreeMap<Id, Arc<Closed>>,
    /// Usage of each project in all.
    pub totals: BTreeMap<String, Totals>,
    /// Capacity of each link that the open bookings of each project hold.
    areas: Arc<Areas>,
    /// The service's time.
    pub clock: Clock,
    changes: VecDeque<Change>,
    latest: u64,
}

impl View {
    /// Nothing, under the rules of a configuration.
    pub(crate) fn empty(config: &Config) -> Self {
        let rules = config.rules.clone();
        let least = Grid::new(Duration::from_millis(1), Rate::from_mbps(1));
        // The configuration was checked to make a grid; the other exists by its own numbers.
        let grid = ledger::grid(&rules).or(least).expect("a millisecond and a megabit make a grid");
        Self {
            seq: 0,
            capacity: LinkSet::new(rules.guard),
            rules,
            grid,
            links: Vec::new(),
            projects: BTreeMap::new(),
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            totals: BTreeMap::new(),
            areas: Arc::default(),
            clock: Clock::start(0),
            changes: VecDeque::new(),
            latest: 0,
        }
    }

    /// The view without its bookings: a cheap snapshot for plans.
    pub fn without_bookings(&self) -> Self {
        Self {
            seq: self.seq,
            rules: self.rules.clone(),
            grid: self.grid,
            links: self.links.clone(),
            projects: self.projects.clone(),
            capacity: self.capacity.clone(),
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            totals: BTreeMap::new(),
            areas: Arc::clone(&self.areas),
            clock: self.clock,
            changes: VecDeque::new(),
            latest: self.latest,
        }
    }

    /// Limits on further bookings of a project now.
    pub fn allowance<'a>(&'a self, project: &'a str) -> Result<Allowance<'a>, Refusal> {
        let (projects, areas) = (&self.projects, &self.areas);
        Allowance::of(project, projects, &self.rules, &self.links, areas, self.now())
    }

    /// The tick that is now.
    pub fn now(&self) -> u64 {
        self.clock.nanos() / self.rules.tick_nanos.max(1)
    }

    /// When a tick begins.
    pub(crate) fn timestamp(&self, tick: u64) -> Timestamp {
        let nanos = self.grid.instant(tick).as_nanos();
        Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::MAX)
    }

    /// A rate in bits per second.
    pub(crate) fn bps(&self, channels: u32) -> u64 {
        self.grid.rate(channels).as_bps()
    }

    /// Number of the latest change.
    pub const fn latest_change(&self) -> u64 {
        self.latest
    }

    /// The changes after number `after`; `None` if some of them are forgotten.
    pub fn changes_after(&self, after: u64) -> Option<impl Iterator<Item = &Change>> {
        let first = self.changes.front().map_or(self.latest + 1, |change| change.number);
        let next = after.saturating_add(1);
        let known = next >= first && after <= self.latest;
        // They are numbered without gaps.
        let skipped = usize::try_from(next.saturating_sub(first)).unwrap_or(usize::MAX);
        known.then(|| self.changes.iter().skip(skipped))
    }

    /// Shows a ledger as it is when a leader of this epoch begins.
    pub(super) fn reset(&mut self, ledger: &Ledger, clock: Clock, epoch: u64) {
        if let Some(grid) = ledger.grid() {
            self.grid = grid;
        }
        self.rules = ledger.rules().clone();
        self.clock = clock;
        self.open = ledger
            .iter()
            .map(|(id, entry, booking)| {
                (id, Arc::new(Open { entry: entry.clone(), booking: booking.clone() }))
            })
            .collect();
        self.closed =
            ledger.all_closed().map(|(id, closed)| (id, Arc::new(closed.clone()))).collect();
        self.refresh(ledger);
        self.projects.clone_from(ledger.projects());
        self.totals.clone_from(ledger.totals());
        // What came between is not known: watchers must look at everything again.
        self.latest = (self.latest + 1).max(epoch.saturating_mul(CHANGES_OF_AN_EPOCH));
        self.changes.clear();
    }

    /// Takes over what changes with every decision.
    pub(super) fn refresh(&mut self, ledger: &Ledger) {
        self.seq = ledger.seq();
        self.capacity = ledger.capacity().clone();
        if *self.areas != *ledger.areas() {
            self.areas = Arc::new(ledger.areas().clone());
        }
        if self.links.len() != ledger.links().len() {
            self.links = ledger.links().to_vec();
        }
    }

    /// Shows what became of a booking.
    pub(super) fn update(&mut self, ledger: &Ledger, id: Id, what: &'static str) {
        let project = if let Some((entry, booking)) = ledger.get(id) {
            let open = Open { entry: entry.clone(), booking: booking.clone() };
            self.open.insert(id, Arc::new(open));
            entry.project.clone()
        } else if let Some(closed) = ledger.closed(id) {
            self.open.remove(&id);
            self.closed.insert(id, Arc::new(closed.clone()));
            while self.closed.len() > ledger::CLOSED_MAX {
                self.closed.pop_first();
            }
            let project = closed.entry.project.clone();
            if let Some(totals) = ledger.totals().get(&project) {
                self.totals.insert(project.clone(), *totals);
            }
            project
        } else {
            self.open.remove(&id);
            return;
        };
        self.note(id, what, &project);
    }

    /// Notes a change for the watchers.
    pub(crate) fn note(&mut self, id: Id, what: &'static str, project: &str) {
        self.latest += 1;
        self.changes.push_back(Change { number: self.latest, id, what, project: project.into() });
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
    }

    /// Shows what an event did.
    pub(super) fn happened(&mut self, ledger: &Ledger, event: &Event) {
        match event {
            Event::Set => self.projects.clone_from(ledger.projects()),
            Event::LinkAdded { .. } => self.links = ledger.links().to_vec(),
            Event::Booked { id, held_until: Some(_), .. } => self.update(ledger, *id, "held"),
            Event::Booked { id, .. } => self.update(ledger, *id, "booked"),
            Event::Committed { id } => self.update(ledger, *id, "committed"),
            Event::Modified { id, .. } => self.update(ledger, *id, "modified"),
            Event::Extended { id, .. } => self.update(ledger, *id, "extended"),
            Event::Released { id } => self.update(ledger, *id, "released"),
            Event::Cancelled { id } => self.update(ledger, *id, "cancelled"),
            Event::Replanned { moved } => {
                for (id, _) in moved {
                    self.update(ledger, *id, "replanned");
                }
            }
        }
    }
}

/// Numbers that changes of one epoch have to themselves.
const CHANGES_OF_AN_EPOCH: u64 = 1 << 40;
/// Changes that are kept for late watchers.
const CHANGES_MAX: usize = 10_000;
