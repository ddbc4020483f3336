//! Carrying bookings out: one thread per driven link, which sleeps until the next boundary.

mod inbox;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_calendar::{Allocation, Booking};

use self::inbox::{Inbox, Received, Sender, inbox};
use super::config::DriverSpec;
use super::{Shared, StartError};
use longhaul_sys::threads;

use crate::clock::Clock;
use crate::drivers::{Command, Driver, DriverError, Htb, Lease, Switch};
use crate::ledger::{Entry, Event, Id, Ledger};

/// The threads of all driven links.
pub(super) struct Drive {
    links: Vec<Lane>,
}

struct Lane {
    /// Its name in the ledger.
    link: String,
    tasks: Sender<Task>,
    thread: Option<JoinHandle<()>>,
}

enum Task {
    /// Begin from nothing, by this clock, for as long as this leader may.
    Reset(Clock, Lease),
    /// Forget everything and touch nothing: another node leads.
    Forget,
    /// This is what a booking holds.
    Hold(Id, Carried),
    /// A booking has ended.
    End(Id),
}

/// A booking, as a thread knows it.
struct Carried {
    project: String,
    label: String,
    destination: Option<std::net::IpAddr>,
    ranges: Vec<Allocation>,
    /// The rate that the driver was last asked to set, in channels.
    last_rate: u32,
}

impl Carried {
    /// Ticks at which its rate may change: at once, for what it holds may have changed, and wherever
    /// a range begins or ends.
    fn boundaries(&self) -> impl Iterator<Item = u64> {
        [AT_ONCE].into_iter().chain(self.ranges.iter().flat_map(|range| [range.start, range.end]))
    }
}

impl Drive {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, StartError> {
        let mut links = Vec::new();
        for (link, spec) in &shared.config.drivers {
            let driver: Box<dyn Driver> = match spec {
                DriverSpec::Htb { interface } => {
                    let own = shared.config.links.iter().find(|spec| spec.name == *link);
                    let channels = own.map_or(0, |spec| u64::from(spec.capacity));
                    let capacity = channels.saturating_mul(shared.config.rules.channel_bps);
                    Box::new(Htb::new(interface, capacity)?)
                }
                DriverSpec::Command { program } => Box::new(Command::new(link, program)?),
            };
            let (tasks, inbox) = inbox();
            let switcher = Switcher {
                link: link.clone(),
                driver,
                shared: shared.clone(),
                leader: None,
                carried: BTreeMap::new(),
                due: BTreeSet::new(),
            };
            let thread = threads::spawn(format!("drive {link}"), move || switcher.run(&inbox))?;
            links.push(Lane { link: link.clone(), tasks, thread: Some(thread) });
        }
        Ok(Self { links })
    }

    /// Begins with all that a ledger holds.
    pub(super) fn reset(&self, ledger: &Ledger, clock: Clock, lease: &Lease) {
        self.send_to_all(|| Task::Reset(clock, lease.clone()));
        for (id, entry, booking) in ledger.iter() {
            self.hold(ledger, id, entry, booking);
        }
    }

    /// Follows what events did.
    pub(super) fn changed(&self, ledger: &Ledger, events: &[Event]) {
        if self.links.is_empty() {
            return;
        }
        for event in events {
            match event {
                Event::Booked { id, .. }
                | Event::Committed { id }
                | Event::Modified { id, .. }
                | Event::Extended { id, .. } => self.follow(ledger, *id),
                Event::Replanned { moved } => {
                    moved.iter().for_each(|(id, _)| self.follow(ledger, *id));
                }
                Event::Released { id } | Event::Cancelled { id } => {
                    self.send_to_all(|| Task::End(*id));
                }
                Event::Set | Event::LinkAdded { .. } => {}
            }
        }
    }

    pub(super) fn ended(&self, ids: &[Id]) {
        ids.iter().for_each(|id| self.send_to_all(|| Task::End(*id)));
    }

    /// Carries nothing out: another node does.
    pub(super) fn idle(&self) {
        self.send_to_all(|| Task::Forget);
    }

    /// Leaves the links as they are and ends.
    pub(super) fn stop(&mut self) {
        for mut lane in self.links.drain(..) {
            drop(lane.tasks);
            if let Some(thread) = lane.thread.take() {
                // A thread that panicked has reported it.
                let _ = thread.join();
            }
        }
    }

    fn follow(&self, ledger: &Ledger, id: Id) {
        if let Some((entry, booking)) = ledger.get(id) {
            // It may have moved to another path.
            self.end_on_others(ledger, booking, id);
            self.hold(ledger, id, entry, booking);
        }
    }

    fn hold(&self, ledger: &Ledger, id: Id, entry: &Entry, booking: &Booking) {
        if entry.held_until.is_some() {
            return;
        }
        for lane in &self.links {
            if on(ledger, booking, &lane.link) {
                let carried = Carried {
                    project: entry.project.clone(),
                    label: entry.note.label.clone(),
                    destination: entry.note.destination,
                    ranges: booking.vector.merged().collect(),
                    last_rate: 0,
                };
                lane.tasks.send(Task::Hold(id, carried));
            }
        }
    }

    fn end_on_others(&self, ledger: &Ledger, booking: &Booking, id: Id) {
        for lane in self.links.iter().filter(|lane| !on(ledger, booking, &lane.link)) {
            lane.tasks.send(Task::End(id));
        }
    }

    fn send_to_all(&self, task: impl Fn() -> Task) {
        for lane in &self.links {
            lane.tasks.send(task());
        }
    }
}

/// True if a booking takes a link.
fn on(ledger: &Ledger, booking: &Booking, link: &str) -> bool {
    let name = |id: &longhaul_calendar::LinkId| ledger.links().get(id.0 as usize);
    booking.path.links().iter().filter_map(name).any(|spec| spec.name == link)
}

/// The thread of one link.
struct Switcher {
    link: String,
    driver: Box<dyn Driver>,
    shared: Arc<Shared>,
    leader: Option<(Clock, Lease)>,
    carried: BTreeMap<Id, Carried>,
    /// Boundaries to come, in ticks.
    due: BTreeSet<(u64, Id)>,
}

impl Switcher {
    fn run(mut self, inbox: &Inbox<Task>) {
        if let Err(why) = self.driver.begin() {
            notice(&self.shared, &self.link, &why);
        }
        loop {
            let wait = self.wait();
            match inbox.receive(wait) {
                Received::Message(task) => self.take(task),
                Received::Nothing => {}
                Received::End => return,
            }
            self.switch();
        }
    }

    /// Time until the next boundary.
    fn wait(&self) -> Duration {
        let (Some((clock, lease)), Some((tick, _))) = (&self.leader, self.due.first()) else {
            return LONG;
        };
        if !lease.holds() {
            return GLANCE;
        }
        let at = tick.saturating_mul(self.tick_nanos());
        Duration::from_nanos(at.saturating_sub(clock.nanos())).min(LONG)
    }

    fn tick_nanos(&self) -> u64 {
        self.shared.config.rules.tick_nanos
    }

    fn take(&mut self, task: Task) {
        match task {
            Task::Reset(clock, lease) => {
                self.carried.clear();
                self.due.clear();
                let done = self.driver.reset(&lease);
                self.leader = Some((clock, lease));
                report(&self.shared, &self.link, done);
            }
            Task::Forget => {
                self.leader = None;
                self.carried.clear();
                self.due.clear();
            }
            Task::Hold(id, mut carried) => {
                if let Some(old) = self.carried.remove(&id) {
                    for tick in old.boundaries() {
                        self.due.remove(&(tick, id));
                    }
                    carried.last_rate = old.last_rate;
                }
                self.due.extend(carried.boundaries().map(|tick| (tick, id)));
                self.carried.insert(id, carried);
            }
            Task::End(id) => {
                let now =
                    self.leader.as_ref().map_or(0, |(clock, _)| clock.nanos() / self.tick_nanos());
                if let Some(carried) = self.carried.get_mut(&id) {
                    let (come, ahead): (Vec<_>, Vec<_>) =
                        carried.boundaries().map(|tick| (tick, id)).partition(|(at, _)| *at <= now);
                    for boundary in ahead {
                        self.due.remove(&boundary);
                    }
                    // If its time has come, that is when this was due; else it is due at once.
                    if !come.iter().any(|boundary| self.due.contains(boundary)) {
                        self.due.insert((AT_ONCE, id));
                    }
                    carried.ranges.clear();
                }
            }
        }
    }

    /// Does what is due, giving before taking, so that the link is never promised twice. Without a
    /// lease it stays due, in case the store agrees late.
    fn switch(&mut self) {
        let leader = self.leader.as_ref().filter(|(_, lease)| lease.holds());
        let Some(clock) = leader.map(|(clock, _)| *clock) else { return };
        let now = clock.nanos() / self.tick_nanos();
        let mut changes = Vec::new();
        while let Some((tick, id)) = self.due.first().copied().filter(|(tick, _)| *tick <= now) {
            self.due.remove(&(tick, id));
            let Some(carried) = self.carried.get_mut(&id) else { continue };
            let range = carried.ranges.iter().find(|r| r.start <= now && now < r.end);
            let rate = range.map_or(0, |range| range.rate);
            let next = carried.ranges.iter().flat_map(|r| [r.start, r.end]).find(|at| *at > now);
            if rate != carried.last_rate {
                let from = std::mem::replace(&mut carried.last_rate, rate);
                let nanos = |tick: u64| tick.saturating_mul(self.shared.config.rules.tick_nanos);
                let channel = self.shared.config.rules.channel_bps;
                changes.push((
                    rate > from,
                    Switch {
                        link: self.link.clone(),
                        booking: id,
                        project: carried.project.clone(),
                        label: carried.label.clone(),
                        rate_bps: channel.saturating_mul(u64::from(rate)),
                        due_nanos: (tick != AT_ONCE).then(|| nanos(tick)),
                        until_nanos: next.map(nanos),
                        destination: carried.destination,
                    },
                ));
            }
            if next.is_none() {
                self.carried.remove(&id);
            }
        }
        changes.sort_by_key(|(more, _)| *more);
        let switches: Vec<_> = changes.into_iter().map(|(_, switch)| switch).collect();
        let shared = &self.shared;
        self.driver.set(&switches, &mut |switch, done| {
            if let Some(due) = switch.due_nanos {
                let late = clock.nanos().saturating_sub(due);
                shared.metrics.switched(Duration::from_nanos(late));
            }
            report(shared, &self.link, done);
        });
    }
}

fn report(shared: &Shared, link: &str, done: Result<(), DriverError>) {
    if let Err(why) = done {
        shared.metrics.driver_failed();
        notice(shared, link, &why);
    }
}

fn notice(shared: &Shared, link: &str, why: &DriverError) {
    (shared.notice)(&format!("link {link}: {why}"));
}

/// The tick of what is due without having been planned for one.
const AT_ONCE: u64 = 0;
/// Pause between looks at a lease that is over.
const GLANCE: Duration = Duration::from_millis(20);
/// Sleep when nothing is planned.
const LONG: Duration = Duration::from_secs(3600);
