//! The sentinel, which looks at the lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use longhaul_connection::Stored;
use longhaul_engine::Suspension;
use longhaul_host::{
    Announcement, Attribution, Disk, Monitor, MonitorConfig, Part, Socket, StallCause, Summary,
    ThreadId, Turn,
};
use longhaul_rate_control::HostLimit;
use longhaul_sys::clock;
use longhaul_sys::host::{Scheduling, Switch};
use longhaul_units::{Bottleneck, Duration, Instant};
use longhaul_wire::{HostAccount, StallTimes};

use super::announced::{Announced, AnnouncementCell};
use super::log::LaneLog;
use super::machine::{self, Totals};
use crate::damaged::Damaged;
use crate::upper_layer::Mailbox;

/// Looks at the lanes of a connection whenever it is due, from the thread of the monitor's lane.
pub struct Sentinel {
    monitor: Monitor,
    lanes: Vec<Watched>,
    sinks: AnnouncementSinks,
    announced: Announced,
    /// The remedies that the sentinel got of those that it asked for.
    remedies: u64,
    /// Totals of all threads of this host, as they were last.
    machine: Totals,
    /// Datagrams that sockets count as dropped though the network had damaged them.
    damaged: Damaged,
    /// Bytes that storage had written.
    written: u64,
    /// Time at which something last came to a lane.
    active: Instant,
    /// Time at which a lane had last been without a processor for longer than other threads of this process
    /// keep it.
    troubled: Instant,
    due: Instant,
    turns_due: Instant,
    host_due: Instant,
    account_due: Instant,
}

/// The receivers of the sentinel's announcements, and what it asks.
pub struct AnnouncementSinks {
    pub mailboxes: Vec<Arc<Mailbox>>,
    pub announced: Arc<AnnouncementCell>,
    pub account: Arc<Mutex<HostAccount>>,
    pub speaks: Arc<AtomicBool>,
    pub stored: StoredLook,
}

/// A look at what waits for storage, if anything is stored. It does not wait.
pub type StoredLook = Box<dyn Fn() -> Option<Stored> + Send>;

/// A lane, as it was last seen.
struct Watched {
    id: ThreadId,
    log: Arc<LaneLog>,
    scheduling: Option<Scheduling>,
    drops: Option<u32>,
    /// Time since which it has had no processor although it has something to do, by its own switches.
    preempted: Option<Instant>,
    /// Time at which it last got one, by the same.
    resumed: Option<Instant>,
    /// Time since which the monitor counts the lane as away.
    away: Option<Instant>,
    /// Its socket held something at the last look, and it slept.
    slept_on: Option<Instant>,
}

impl Sentinel {
    /// One that watches the lanes of these `logs`.
    pub fn new(logs: Vec<Arc<LaneLog>>, part: Part, sinks: AnnouncementSinks) -> Self {
        let now = clock::now();
        let lanes = (0..).map(ThreadId).zip(logs).map(|(id, log)| Watched::new(id, log));
        Self {
            monitor: Monitor::new(now, MonitorConfig { part, ..MonitorConfig::default() }),
            lanes: lanes.collect(),
            sinks,
            announced: Announced::default(),
            remedies: 0,
            machine: machine::totals(now),
            damaged: Damaged::since_now(),
            written: 0,
            active: now,
            troubled: now,
            due: now,
            turns_due: now,
            host_due: now,
            account_due: now,
        }
    }

    /// These remedies are in force for the sentinel.
    pub fn note(&mut self, remedies: u64) {
        self.remedies = remedies;
    }

    /// The time of the next look.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Looks at everything that is due.
    pub fn look(&mut self, now: Instant) {
        let turns = now >= self.turns_due;
        if turns {
            self.turns_due = now + TURNS;
        }
        for lane in &mut self.lanes {
            if lane.look(now, &mut self.monitor, &mut self.damaged) {
                self.active = now;
            }
            if lane.away.is_some_and(|since| now - since >= QUIET_TICK) {
                self.troubled = now;
            }
            if turns {
                lane.look_at_turns(now, &mut self.monitor);
            }
        }
        if turns {
            self.look_at_storage(now);
        }
        if now >= self.host_due {
            self.host_due = now + HOST;
            self.look_at_machine(now);
            let trips = self.lanes.iter().map(|lane| lane.log.round_trip());
            self.monitor.set_round_trip(trips.max().unwrap_or_default());
        }
        self.say(now);
        if now >= self.account_due {
            self.account_due = now + ACCOUNT;
            self.tell_account(now);
        }
        let tick = match (now - self.active, now - self.troubled) {
            (active, _) if active >= REST_AFTER => REST_TICK,
            (_, troubled) if troubled >= REST_AFTER => QUIET_TICK,
            _ => TICK,
        };
        self.due = (self.due + tick).max(now);
    }

    fn look_at_storage(&mut self, now: Instant) {
        let Some(Stored { waiting, memory, written }) = (self.sinks.stored)() else { return };
        let fresh = written.saturating_sub(std::mem::replace(&mut self.written, written));
        if waiting > 0 || fresh > 0 {
            self.monitor.handle_disk(now, Disk { backlog: waiting, memory, written: fresh });
        }
    }

    fn look_at_machine(&mut self, now: Instant) {
        let totals = machine::totals(now);
        let Totals { waited, throttled, stolen, .. } =
            totals.since(&std::mem::replace(&mut self.machine, totals));
        self.monitor.handle_pressure(now, waited);
        self.monitor.handle_throttled(now, throttled);
        self.monitor.handle_steal(now, stolen);
    }

    fn say(&mut self, now: Instant) {
        let before = self.announced;
        while let Some(announcement) = self.monitor.poll_announcement(now) {
            let order = self.announced.suspension.map_or(0, |last| last.order) + 1;
            match announcement {
                Announcement::Limit { rate, cause, lasts } => {
                    self.announced.limit = Some(HostLimit { rate, cause, until: now + lasts });
                }
                Announcement::Suspend { lasts } => {
                    self.announced.suspension = Some(Suspension { order, until: now + lasts });
                }
                Announcement::Resume => {
                    self.announced.suspension = Some(Suspension { order, until: now });
                }
                Announcement::Capacity { rate } => self.announced.capacity = Some(rate),
            }
        }
        self.announced.limit = self.announced.limit.filter(|limit| limit.until > now);
        if self.announced != before && self.sinks.speaks.load(Ordering::Relaxed) {
            self.sinks.announced.write(&self.announced);
            // A lane that has a processor sends it.
            self.sinks.mailboxes.iter().for_each(|mailbox| mailbox.wake());
        }
    }

    /// Publishes the account. If its lock is held, that happens in the next round.
    pub fn tell_account(&self, now: Instant) {
        let account = self.sum_up(&self.monitor.summary(now));
        match self.sinks.account.try_lock() {
            Ok(mut last) => *last = account,
            Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner() = account,
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn sum_up(&self, summary: &Summary) -> HostAccount {
        let Summary { stalls, causes, limits, suspends, .. } = summary;
        let by = Bottleneck::ALL.into_iter().zip(limits.time);
        let by = by.filter(|(_, time)| !time.is_zero()).max_by_key(|(_, time)| *time);
        let missed = self.lanes.iter().map(|lane| lane.log.missed());
        let (missed, missed_time) = missed
            .fold((0, Duration::ZERO), |(count, time), (more, longer)| {
                (count + more, time + longer)
            });
        let remedies = self.lanes.iter().map(|lane| lane.log.remedies());
        HostAccount {
            stalls: stalls.count,
            stalled: stalls.total,
            longest_stall: stalls.longest,
            stalled_by: stalled_by(causes),
            limits: limits.count,
            limited: limits.total(),
            limited_by: by.map_or(Bottleneck::Unknown, |(cause, _)| cause),
            suspends: suspends.count,
            suspended: suspends.total,
            missed,
            missed_time,
            remedies: remedies.fold(self.remedies | HostAccount::WATCHES, |all, more| all | more),
            ..HostAccount::default()
        }
    }
}

impl Watched {
    fn new(id: ThreadId, log: Arc<LaneLog>) -> Self {
        Self {
            id,
            log,
            scheduling: None,
            drops: None,
            preempted: None,
            resumed: None,
            away: None,
            slept_on: None,
        }
    }

    /// Looks at the lane; true if something came to it.
    fn look(&mut self, now: Instant, monitor: &mut Monitor, damaged: &mut Damaged) -> bool {
        let mut any = false;
        while let Some((at, batch)) = self.log.poll_batch() {
            any = true;
            monitor.handle_batch(at.min(now), self.id, batch);
        }
        let memory = self.log.memory(|memory| memory.sample().ok()).flatten();
        let queued = memory.is_some_and(|memory| memory.receive_used > 0);
        if let Some(memory) = memory
            && (any || queued)
        {
            let before = self.drops.replace(memory.drops).unwrap_or(memory.drops);
            let dropped = memory.drops.wrapping_sub(before).into();
            let socket = Socket {
                queued: memory.receive_used.into(),
                limit: memory.receive_limit.into(),
                drops: dropped - damaged.among(now, dropped),
            };
            monitor.handle_socket(now, self.id, socket);
        }
        self.look_for_absence(now, queued, monitor);
        any
    }

    /// The lane is away where it has something to do and no processor.
    fn look_for_absence(&mut self, now: Instant, queued: bool, monitor: &mut Monitor) {
        let records = self.follow_switches();
        let beat = self.log.last_beat();
        self.slept_on = match beat {
            None if queued => self.slept_on.or(Some(now)),
            _ => None,
        };
        // A lane's work between two beats takes less than that.
        let silent = beat.or(self.slept_on).filter(|since| now - *since >= SILENT);
        let since = match (self.preempted, records) {
            (Some(since), _) => Some(since),
            // It runs, or sleeps; where it sleeps on data it waits to wake up.
            (None, true) if beat.is_some() => None,
            _ => silent.filter(|_| self.is_ready()),
        };
        match since {
            Some(since) => {
                self.away = Some(since);
                monitor.handle_absence(now, self.id, since);
            }
            None => {
                if let Some(since) = self.away.take() {
                    // A look comes later.
                    let resumed = self.resumed.filter(|at| *at > since);
                    monitor.handle_return(resumed.unwrap_or(now), self.id);
                }
            }
        }
    }

    /// Brings `preempted` up to date; true if the kernel records the lane's switches.
    fn follow_switches(&mut self) -> bool {
        let Some(samplers) = self.log.samplers() else { return false };
        let Ok(mut recorder) = samplers.switches.try_lock() else { return false };
        let Some(recorder) = recorder.as_mut() else { return false };
        let (preempted, resumed) = (&mut self.preempted, &mut self.resumed);
        recorder.drain(&mut |Switch { at, on, preempted: by_others, .. }| {
            *preempted = by_others.then_some(at);
            if on {
                *resumed = Some(at);
            }
        });
        true
    }

    fn is_ready(&self) -> bool {
        let sampler = self.log.samplers().and_then(|samplers| samplers.scheduling.as_ref());
        sampler.is_some_and(|sampler| sampler.is_ready().unwrap_or(false))
    }

    fn look_at_turns(&mut self, now: Instant, monitor: &mut Monitor) {
        let sampler = self.log.samplers().and_then(|samplers| samplers.scheduling.as_ref());
        let Some(Ok(scheduling)) = sampler.map(|sampler| sampler.sample()) else { return };
        if let Some(before) = self.scheduling.replace(scheduling)
            && before != scheduling
        {
            let Scheduling { run, wait, turns } = scheduling.since(before);
            monitor.handle_turn(now, self.id, Turn { run, wait, turns });
        }
    }
}

fn stalled_by(causes: &Attribution) -> StallTimes {
    let mut times = StallTimes::default();
    for (cause, _, time) in causes.sums() {
        match cause {
            StallCause::Preempted => times.preempted = time,
            StallCause::Quota => times.quota = time,
            StallCause::Stolen => times.stolen = time,
            StallCause::Busy => times.busy = time,
            StallCause::Unknown => {}
        }
    }
    times
}

/// A stall that is under way is known within two of these. With looks half as often a receiver beside loops takes 5 to
/// 8 % less.
const TICK: Duration = Duration::from_millis(1);
/// Interval of looks while no lane has lost its processor for long: waking up is most of what a look costs.
const QUIET_TICK: Duration = Duration::from_millis(2);
/// Interval of looks while nothing comes.
const REST_TICK: Duration = Duration::from_millis(20);
const REST_AFTER: Duration = Duration::from_millis(500);
/// A burst of reading and all that follows takes less, unless the lane has no processor.
const SILENT: Duration = Duration::from_millis(3);
/// A few of the scheduler's turns.
const TURNS: Duration = Duration::from_millis(10);
const HOST: Duration = Duration::from_millis(50);
/// So that the account of a short copy is whole.
const ACCOUNT: Duration = Duration::from_millis(10);
