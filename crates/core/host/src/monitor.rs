use crate::announcement::Announcement;
use alloc::collections::BTreeMap;

use longhaul_units::{Duration, Instant, Rate};

use crate::attribution::{Attribution, StallCause};
use crate::paptc::Paptc;
use crate::prediction::Prediction;
use crate::rapid::{Rapid, RapidConfig};
use crate::service::ServiceConfig;
use crate::signals::{Batch, Disk, Socket, ThreadId, Turn};
use crate::stalls::{StallSummary, Stalls};
use crate::suspend::{SuspendState, Suspends};

mod limit;
mod proven;
mod reader;
mod storage;

pub use limit::Limits;

use limit::LimitState;
use reader::{Over, Reader};
use storage::Storage;

/// Watches one end of a connection, and says what the other one should know before data is lost.
#[derive(Clone, Debug)]
pub struct Monitor {
    config: MonitorConfig,
    round_trip: Duration,
    readers: BTreeMap<ThreadId, Reader>,
    storage: Storage,
    /// The scheduler says whom it let wait.
    has_turns: bool,
    attribution: Attribution,
    /// Stalls of all readers, for the report.
    stalls: Stalls,
    limit: LimitState,
    suspend: SuspendState,
    /// A sample came on which it depends whether silence is needed.
    suspend_due: bool,
    /// The capacity that was announced last.
    capacity: Option<Rate>,
    /// Time of the next look at everything, and of the last sample.
    next_look: Option<Instant>,
    last_sample: Instant,
}

/// Configuration of a [`Monitor`]; docs/host-awareness.md has the reasons for the defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MonitorConfig {
    /// The share of what arrives that stalls may cost by overflow.
    pub overflow: f64,
    /// Bytes that the socket charges for a byte of data, in 1/1024.
    pub charge: u32,
    /// Age of a standing queue above which more comes than is processed.
    pub sojourn: Duration,
    /// An absence that is shorter is no reason for SUSPEND.
    pub patience: Duration,
    /// Measurement and prediction of service.
    pub service: ServiceConfig,
    /// Part that makes announcements.
    pub part: Part,
}

/// Part that makes announcements to the other end: a profile names it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Part {
    /// The monitor itself, by its own rules.
    #[default]
    Limits,
    /// RAPID's performance monitor, one for each reader.
    Rapid(RapidConfig),
    /// PAPTC's model; what all readers will process together is the capacity.
    Paptc,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self {
            overflow: 0.000_5,
            charge: 1_045,
            sojourn: Duration::from_millis(2),
            patience: Duration::from_millis(8),
            service: ServiceConfig::default(),
            part: Part::Limits,
        }
    }
}

/// Observations and announcements of a [`Monitor`], for the report.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Stalls of all readers.
    pub stalls: StallSummary,
    /// Causes of the stalls, with number and time.
    pub causes: Attribution,
    /// The limits announced.
    pub limits: Limits,
    /// The suspends announced.
    pub suspends: Suspends,
    /// Rate that the readers will process one feedback delay ahead, in bits per second.
    pub service: Option<Prediction>,
}

impl Monitor {
    /// Reader threads that are watched.
    pub const MOST_THREADS: usize = 256;

    /// One that has seen nothing.
    pub fn new(now: Instant, config: MonitorConfig) -> Self {
        Self {
            config,
            round_trip: Duration::ZERO,
            readers: BTreeMap::new(),
            storage: Storage::new(now),
            has_turns: false,
            attribution: Attribution::default(),
            stalls: Stalls::new(now),
            limit: LimitState::new(now),
            suspend: SuspendState::default(),
            suspend_due: false,
            capacity: None,
            next_look: None,
            last_sample: now,
        }
    }

    /// Sets the time that an announcement takes to show: smoothed round trip of the path.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
        for reader in self.readers.values_mut() {
            reader.set_round_trip(round_trip);
        }
    }

    /// Takes run time and waits of a reader.
    pub fn handle_turn(&mut self, now: Instant, thread: ThreadId, turn: Turn) {
        self.has_turns = true;
        let Some(reader) = self.reader(now, thread) else { return };
        let (unexplained, over) = (reader.unexplained_wait(&turn), reader.on_turn(now, &turn));
        self.attribution.tell(now, StallCause::Preempted, unexplained);
        self.book(now, over);
    }

    /// A reader read.
    pub fn handle_batch(&mut self, now: Instant, thread: ThreadId, batch: Batch) {
        let reader = self.reader(now, thread);
        let was_absent = reader.as_ref().is_some_and(|reader| reader.is_absent());
        let over = reader.and_then(|reader| reader.on_batch(now, &batch));
        self.book(now, over);
        if was_absent {
            self.handle_return(now, thread);
        }
    }

    /// Takes a look at a reader's socket, by any thread.
    pub fn handle_socket(&mut self, now: Instant, thread: ThreadId, socket: Socket) {
        if let Some(reader) = self.reader(now, thread) {
            reader.on_socket(now, &socket);
        }
        self.suspend_due = true;
    }

    /// A reader has had no processor since then, and has not now, though it has work.
    pub fn handle_absence(&mut self, now: Instant, thread: ThreadId, since: Instant) {
        if let Some(reader) = self.reader(now, thread) {
            reader.on_absence(since);
        }
        self.suspend_due = true;
    }

    /// It is back.
    pub fn handle_return(&mut self, now: Instant, thread: ThreadId) {
        let returned = self.reader(now, thread).and_then(|reader| reader.on_return(now));
        if let Some((away, over)) = returned {
            self.attribution.tell(now, StallCause::Preempted, away);
            self.book(now, over);
        }
        self.suspend_due = true;
    }

    /// The readers' control group was held back for its quota.
    pub fn handle_throttled(&mut self, now: Instant, time: Duration) {
        self.attribution.tell(now, StallCause::Quota, time);
    }

    /// The hypervisor ran something else.
    pub fn handle_steal(&mut self, now: Instant, time: Duration) {
        self.attribution.tell(now, StallCause::Stolen, time);
    }

    /// Some thread on this host waited for a processor (PSI `some`). The signal does not name readers, so
    /// it counts only where no [`Turn`] does.
    pub fn handle_pressure(&mut self, now: Instant, time: Duration) {
        if !self.has_turns {
            self.attribution.tell(now, StallCause::Preempted, time);
        }
    }

    /// A look at what waits for storage.
    pub fn handle_disk(&mut self, now: Instant, disk: Disk) {
        self.storage.on_disk(now, &disk);
        self.wake(now);
    }

    /// Returns the next message for the other end; to be called until there is none.
    pub fn poll_announcement(&mut self, now: Instant) -> Option<Announcement> {
        if self.next_look.is_some_and(|look| look <= now) {
            self.look(now);
        }
        if core::mem::take(&mut self.suspend_due) {
            self.judge_suspend(now);
        }
        match self.config.part {
            Part::Limits => {
                self.suspend.poll(now).or_else(|| self.limit.poll(now, self.round_trip))
            }
            Part::Rapid(_) => {
                let announcement =
                    self.rapids_mut().find_map(|rapid| rapid.poll_announcement(now))?;
                self.suspend.note(now, &announcement);
                Some(announcement)
            }
            Part::Paptc => self.poll_capacity(),
        }
    }

    fn rapids_mut(&mut self) -> impl Iterator<Item = &mut Rapid> {
        self.readers.values_mut().filter_map(|reader| reader.rapid.as_mut())
    }

    fn poll_capacity(&mut self) -> Option<Announcement> {
        let rates = self.readers.values().filter_map(|reader| Paptc::capacity(&reader.service));
        let rate = rates.reduce(|sum, rate| sum + rate)?;
        let announced = self.capacity.unwrap_or(Rate::ZERO).as_bps();
        // FEEDBACK repeats it; what is new is worth waking somebody for.
        let is_new = rate.as_bps().abs_diff(announced) > announced / 64;
        is_new.then(|| {
            self.capacity = Some(rate);
            Announcement::Capacity { rate }
        })
    }

    /// Returns when to poll, at the latest; nothing is due where nothing happens.
    pub fn next_timeout(&self) -> Option<Instant> {
        let look = self.next_look?;
        let rapids = self.readers.values().filter_map(|reader| reader.rapid.as_ref());
        Some(rapids.filter_map(Rapid::next_timeout).fold(look, Instant::min))
    }

    /// Observations and announcements so far.
    pub fn summary(&self, now: Instant) -> Summary {
        let (mut stalls, mut causes) = (self.stalls.clone(), self.attribution.clone());
        for over in self.readers.values().filter_map(Reader::open_gap) {
            book(now, &over, &mut stalls, &mut causes);
        }
        Summary {
            stalls: stalls.summary(),
            causes,
            limits: self.limit.summary(now),
            suspends: self.suspend.summary(now),
            service: self.service(),
        }
    }

    /// Rate that all readers together will process.
    fn service(&self) -> Option<Prediction> {
        let parts = self.readers.values().filter_map(|reader| reader.service.predict());
        parts.reduce(|a, b| Prediction {
            value: a.value + b.value,
            lower: a.lower + b.lower,
            upper: a.upper + b.upper,
        })
    }

    fn reader(&mut self, now: Instant, thread: ThreadId) -> Option<&mut Reader> {
        if !self.readers.contains_key(&thread) {
            if self.readers.len() >= Self::MOST_THREADS {
                return None;
            }
            let reader = Reader::new(now, &self.config, self.round_trip);
            self.readers.insert(thread, reader);
        }
        self.wake(now);
        self.readers.get_mut(&thread)
    }

    fn wake(&mut self, now: Instant) {
        self.last_sample = now;
        self.next_look.get_or_insert(now + LOOK);
    }

    /// Books a gap that is over.
    fn book(&mut self, now: Instant, over: Option<Over>) {
        if let Some(over) = over {
            book(now, &over, &mut self.stalls, &mut self.attribution);
        }
    }

    fn look(&mut self, now: Instant) {
        for reader in self.readers.values_mut() {
            reader.look(now, &self.config, self.round_trip);
        }
        if self.config.part == Part::Limits {
            self.judge_limit(now);
        }
        self.suspend_due = true;
        let active = now - self.last_sample < SILENCE || self.suspend.is_on(now);
        self.next_look = active.then(|| now + LOOK);
    }

    fn judge_limit(&mut self, now: Instant) {
        let total = self.arrivals(now);
        let readers = self.readers.values().filter_map(|reader| {
            let (rate, cause) = reader.limit(now, &self.config)?;
            Some((reader.whole(now, rate, total)?, cause))
        });
        // What nobody comes near is not worth a word. Storage has a limit only where much waits for it.
        let readers = readers.filter(|(rate, _)| *rate <= total.scale(FAR, 1));
        self.limit.set(readers.chain(self.storage.limit()).min_by_key(|(rate, _)| *rate));
    }

    fn arrivals(&self, now: Instant) -> Rate {
        self.readers.values().fold(Rate::ZERO, |sum, reader| sum + reader.arrivals(now))
    }

    fn judge_suspend(&mut self, now: Instant) {
        if self.config.part != Part::Limits {
            return;
        }
        let (mut stalled, mut left) = (Rate::ZERO, None);
        for reader in self.readers.values() {
            if let Some(needs) = reader.needs_silence(now, &self.config, self.round_trip) {
                stalled = stalled + reader.arrivals(now);
                left = left.max(Some(needs));
            }
        }
        // One reader of many is not worth the silence of all.
        let left = left.filter(|_| stalled + stalled >= self.arrivals(now));
        let still = self.readers.values().any(|reader| reader.is_behind(now));
        self.suspend.judge(now, self.round_trip, left, still);
    }
}

fn book(now: Instant, over: &Over, stalls: &mut Stalls, causes: &mut Attribution) {
    stalls.add(now, over.length);
    if over.length >= Stalls::NOTABLE {
        causes.attribute(now, over.length, over.busy);
    }
}

/// Everything is looked at that often (end-system.md 1.3): a tenth of the time that a limit lasts, and
/// a few turns of a scheduler.
const LOOK: Duration = Duration::from_millis(10);
/// A limit of more times what arrives is far: start-up multiplies its rate by less in a round trip.
const FAR: u32 = 16;
/// Behind so long a silence nothing is due.
const SILENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
