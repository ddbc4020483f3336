//! The shared half of a connection behind one lock, the memory of its transfer, and what wakes the
//! threads that wait for it.

mod life;

pub use life::ThreadError;
mod upper;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use longhaul_carriers::buffer::{Buffer, Pool};
use longhaul_carriers::carrier::HostView;
use longhaul_carriers::mailboxes::{GateSeen, Mailboxes};
use longhaul_carriers::thread_group::ThreadGroup;
use longhaul_connection::{
    Gate, IncomingPipe, Part, SharedHalf, Standing, Stored, Transfer, Watch, Wish, Work, buffers,
};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{Bytes, Duration, RangeSet, without_numbers};
use longhaul_wire::{AskedPart, CloseCode, EntryEnd, HostAccount, Refused, SourceReport};

use crate::api::EndedEntries;
use crate::memory::budget::{Budget, SINK_SPARE};
use crate::memory::lease::Lease;

/// The shared half, of buffers of this crate.
pub(crate) type Half = SharedHalf<Arc<Buffer>, Buffer>;

/// What starts a transfer when the client's request arrives, or says why not.
pub(crate) type Opener = Box<dyn FnOnce(&Arc<Shared>, &Wish) -> Result<(), Refused> + Send>;

/// Counts entries whose attributes are not kept; see [`Shared::count_missed`].
type MissedCounter = Box<dyn Fn(&RangeSet) -> (u64, u64) + Send + Sync>;

/// What all threads of a connection share.
pub(crate) struct Shared {
    this: Weak<Self>,
    half: Mutex<Half>,
    /// The transfer's threads wait here for something to do.
    work: Condvar,
    /// Whoever watches the connection waits here for something to happen.
    changed: Condvar,
    /// At a server, until the client asks.
    opener: Mutex<Option<Opener>>,
    /// That is under way: messages wait in their lane.
    opening: AtomicBool,
    pub mailboxes: Mailboxes,
    /// The half as it was last, for lanes, which ask again and again and do not wait for its lock.
    seen: Mutex<Seen>,
    gate: GateSeen,
    /// Memory for groups.
    pub pool: Pool,
    memory: OnceLock<Memory>,
    /// What names may take, unless it is leased.
    name_memory: OnceLock<Bytes>,
    /// The transfer's threads.
    pub crew: ThreadGroup,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stopped: AtomicBool,
    /// What this host could not even offer.
    not_offered: Mutex<EndedEntries>,
    /// Most entries that may fail.
    errors_most: OnceLock<u64>,
    /// Of a pipe that comes from another client: the connection to that one, which promises memory as
    /// it comes free here.
    upstream: Mutex<Weak<Self>>,
    /// Of a pipe that goes on to another client: the connection to that one.
    downstream: OnceLock<Arc<Self>>,
    cpu_at_start: Duration,
    /// How this host fares, as its carrier knows.
    host: OnceLock<HostView>,
    /// What the threads of the transfer do so that lanes are not late.
    remedies: AtomicU64,
    /// What the user should know of a copy that came here, as `Summary::notes`.
    notes: AtomicU64,
    /// Entries of it whose attributes could not all be kept.
    not_kept: AtomicU64,
    /// Counts files with access lists and with extended attributes that the request does not keep.
    missed: OnceLock<MissedCounter>,
    /// What waits for storage, for the monitor of this host.
    stored: StoredSeen,
}

/// What memory a transfer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// That of the groups that it reads, or receives, and so many more.
    Own {
        /// What it takes beyond what it counts.
        spare: Bytes,
    },
    /// None: what it sends was received by another connection.
    None,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    standing: Standing,
    wants_messages: bool,
    has_sent_all: bool,
    /// Where what is promised depends on it: how often memory was given back.
    given_back: Option<u64>,
    /// What may be sent has to be read first, into memory.
    reads_first: bool,
    news: Milestones,
}

/// What waits for storage as it was last, for a thread that waits for no lock.
#[derive(Debug, Default)]
struct StoredSeen {
    waiting: AtomicU64,
    /// Zero where nothing is stored.
    memory: AtomicU64,
    written: AtomicU64,
}

impl StoredSeen {
    fn note(&self, stored: &Stored) {
        self.waiting.store(stored.waiting, Ordering::Relaxed);
        self.written.store(stored.written, Ordering::Relaxed);
        self.memory.store(stored.memory, Ordering::Relaxed);
    }

    /// The three may be of different moments: by a group or two.
    fn read(&self) -> Option<Stored> {
        let [waiting, memory, written] =
            [&self.waiting, &self.memory, &self.written].map(|of| of.load(Ordering::Relaxed));
        (memory > 0).then_some(Stored { waiting, memory, written })
    }
}

/// What those wait for who watch a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Milestones {
    /// A lane may carry data.
    pub validated: bool,
    /// It is known what this end does.
    pub begun: bool,
    /// Everything is done.
    pub done: bool,
    /// The connection may be closed.
    pub over: bool,
    /// The other end has set a rate, which this one does not keep to yet.
    pub steered: bool,
    /// More entries have failed than may.
    pub too_many_failed: bool,
}

/// Entries that have failed, where those are more than `most`.
fn failed_beyond(half: &Half, most: Option<u64>) -> Option<u64> {
    let most = most?;
    let failed = half.transfer()?.failures().0;
    // Others may fail before the copy ends for that.
    (failed > most).then(|| most + 1)
}

impl Milestones {
    fn of(half: &Half, errors_most: Option<u64>) -> Self {
        Self {
            too_many_failed: failed_beyond(half, errors_most).is_some(),
            validated: half.validated().is_some(),
            begun: half.transfer().is_some(),
            done: half.is_done(),
            over: half.end().is_some(),
            steered: matches!(half.transfer(), Some(Transfer::OutgoingCopy(copy)) if copy.has_rate()),
        }
    }
}

/// What a pipe takes beyond what it promises: a repetition may take a buffer, too.
pub(crate) const PIPE_SPARE: Bytes = Bytes::from_mib(8);
impl Shared {
    /// That of a client, which begins with `wish`.
    pub fn client(wish: &Wish, mailboxes: Mailboxes) -> Arc<Self> {
        Self::new(Half::client(wish), None, mailboxes)
    }

    /// That of a server: `opener` starts what the client asks for.
    pub fn server(opener: Opener, mailboxes: Mailboxes) -> Arc<Self> {
        Self::new(Half::server(), Some(opener), mailboxes)
    }

    fn new(half: Half, opener: Option<Opener>, mailboxes: Mailboxes) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            half: Mutex::new(half),
            work: Condvar::new(),
            changed: Condvar::new(),
            opener: Mutex::new(opener),
            opening: AtomicBool::new(false),
            mailboxes,
            seen: Mutex::new(Seen { wants_messages: true, ..Seen::default() }),
            gate: GateSeen::default(),
            pool: Pool::new(0),
            memory: OnceLock::new(),
            name_memory: OnceLock::new(),
            crew: ThreadGroup::default(),
            threads: Mutex::default(),
            stopped: AtomicBool::new(false),
            not_offered: Mutex::default(),
            errors_most: OnceLock::new(),
            upstream: Mutex::default(),
            downstream: OnceLock::new(),
            cpu_at_start: clock::process_cpu_time(),
            host: OnceLock::new(),
            remedies: AtomicU64::new(0),
            notes: AtomicU64::new(0),
            not_kept: AtomicU64::new(0),
            missed: OnceLock::new(),
            stored: StoredSeen::default(),
        })
    }

    // The transfer.

    /// Does `transfer` from now on, within `budget`; it may stand still for `patience`, zero is for
    /// ever.
    pub fn begin(
        &self,
        transfer: Transfer<Arc<Buffer>, Buffer>,
        memory: Memory,
        budget: Budget,
        patience: Duration,
    ) {
        let now = clock::now();
        let (first, growing) = match transfer.part() {
            Part::Source => (budget.of_source(), budget.growing_of_source(now)),
            Part::Sink => (budget.of_sink(), budget.growing_of_sink(now)),
        };
        let _ = self.memory.set(memory);
        let _ = self.name_memory.set(budget.of_names());
        if let Memory::Own { spare } = memory {
            self.pool.grow(buffers(first + spare));
        }
        self.change(|half| half.begin(transfer, Watch::new(now, growing, patience)));
    }

    /// Changes where data goes.
    pub fn direct(&self, change: impl FnOnce(&mut Gate)) {
        self.change(|half| half.transfer_mut().and_then(Transfer::gate).map(change));
        self.work.notify_all();
    }

    /// Whether everything was given to the lanes, and these have sent it.
    pub fn is_sent(&self) -> bool {
        self.lock().transfer().is_some_and(|transfer| transfer.is_sent(&self.mailboxes))
    }

    /// The pipe that comes in here goes on over `to`.
    pub fn pass_on(self: &Arc<Self>, to: &Arc<Self>) {
        if self.downstream.set(to.clone()).is_ok() {
            *lock(&to.upstream) = Arc::downgrade(self);
            self.change(|half| half.incoming_pipe().map(IncomingPipe::accept));
            self.nudge();
        }
    }

    /// Of a pipe that goes on to another client: the connection to that one.
    pub fn downstream(&self) -> Option<&Arc<Self>> {
        self.downstream.get()
    }

    // The lock.

    /// Access to the half, for a look at it.
    pub fn lock(&self) -> MutexGuard<'_, Half> {
        lock(&self.half)
    }

    /// Changes the half: lanes and whoever waits for its end hear of it, and there may be something to
    /// say.
    pub fn change<T>(&self, change: impl FnOnce(&mut Half) -> T) -> T {
        let result = self.update(&mut self.lock(), change);
        self.mailboxes.wake_messages();
        result
    }

    /// The same for whoever has the lock, and wakes no lane to say something.
    pub fn update<T>(&self, half: &mut Half, change: impl FnOnce(&mut Half) -> T) -> T {
        let given_back = self.refresh(half);
        let result = change(half);
        self.publish(half, given_back);
        result
    }

    /// Tells the half what it cannot see: time, and memory that was given back. Returns how often that
    /// was, where what is promised depends on it.
    fn refresh(&self, half: &mut Half) -> Option<u64> {
        match half.transfer_mut()? {
            Transfer::IncomingPipe(pipe) => {
                let given_back = self.pool.given_back();
                pipe.set_given_back(given_back);
                return Some(given_back);
            }
            // Once: it costs a call of the system.
            Transfer::IncomingCopy(copy) if copy.is_result_due() => {
                copy.set_host(self.host_account());
                copy.set_notes(self.notes(), self.not_kept());
            }
            _ => {}
        }
        None
    }

    /// How this host fares with it, and what it has spent.
    pub fn host_account(&self) -> HostAccount {
        let cpu_time = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        let account = self.host.get().map(HostView::account).unwrap_or_default();
        let remedies = account.remedies | self.remedies.load(Ordering::Relaxed);
        HostAccount { cpu_time, remedies, ..account }
    }

    /// Its threads do so.
    pub fn note_remedies(&self, remedies: u64) {
        self.remedies.fetch_or(remedies, Ordering::Relaxed);
    }

    /// What the user should know of a copy that came here, as [`longhaul_wire::Summary::notes`].
    pub fn notes(&self) -> u64 {
        self.notes.load(Ordering::Relaxed)
    }

    /// The user should know this, too.
    pub fn note(&self, notes: u64) {
        self.notes.fetch_or(notes, Ordering::Relaxed);
    }

    /// Entries of a copy that came here whose attributes could not all be kept.
    pub fn not_kept(&self) -> u64 {
        self.not_kept.load(Ordering::Relaxed)
    }

    /// There are so many of them by now.
    pub fn note_not_kept(&self, count: u64) {
        self.not_kept.fetch_max(count, Ordering::Relaxed);
    }

    /// Entries sent from here with access lists and with extended attributes that the request does not keep.
    pub fn missed(&self) -> (u64, u64) {
        let Some(counter) = self.missed.get() else { return (0, 0) };
        match self.lock().transfer() {
            Some(Transfer::OutgoingCopy(copy)) => counter(copy.would_change()),
            _ => (0, 0),
        }
    }

    /// They are counted by `counter`, which gets the numbers of those that would change in a dry run.
    pub fn count_missed(&self, counter: impl Fn(&RangeSet) -> (u64, u64) + Send + Sync + 'static) {
        let _ = self.missed.set(Box::new(counter));
    }

    /// The carrier knows that of this host, as long as it lives.
    pub fn follow_host(&self, host: HostView) {
        let _ = self.host.set(host);
    }

    /// Tells everybody else what they go by. Under the lock, so that lanes hear of asking and taking
    /// in that order, and before the peer hears of it.
    fn publish(&self, half: &mut Half, given_back: Option<u64>) {
        while let Some(repair) = half.poll_repair() {
            self.mailboxes.post_repair(repair);
        }
        while let Some(object) = half.poll_withdrawn() {
            self.mailboxes.withdraw(object);
        }
        if let Some(pipe) = half.outgoing_pipe() {
            while let Some(offer) = pipe.poll_offer(clock::now(), &self.mailboxes) {
                self.mailboxes.offer(offer.lane, offer.extent, offer.bytes);
            }
        }
        if let Some(gate) = half.transfer_mut().and_then(Transfer::gate) {
            self.gate.note(gate);
        }
        if let Some(stored) = half.transfer().and_then(Transfer::stored) {
            self.stored.note(&stored);
        }
        let news = Milestones::of(half, self.errors_most.get().copied());
        let seen = Seen {
            standing: half.standing(),
            wants_messages: half.wants_messages(),
            has_sent_all: half.has_sent_all(),
            given_back,
            reads_first: matches!(half.transfer(), Some(Transfer::OutgoingCopy(_))),
            news,
        };
        let before = std::mem::replace(&mut *lock(&self.seen), seen);
        if seen.standing.drained && !before.standing.drained
            || seen.standing.bounds != before.standing.bounds
        {
            self.mailboxes.wake_all();
        }
        if seen.wants_messages && !before.wants_messages {
            self.mailboxes.wake_messages();
        }
        if seen.news != before.news {
            self.changed.notify_all();
        }
    }

    // Waiting.

    /// Waits for work, at most for `patience`.
    pub fn rest<'s>(&self, half: MutexGuard<'s, Half>, patience: Duration) -> MutexGuard<'s, Half> {
        let rested = self.crew.rest(|| self.work.wait_timeout(half, patience));
        rested.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The transfer's threads look again.
    pub fn nudge(&self) {
        // Whoever has looked and is about to wait holds the lock.
        drop(self.lock());
        self.work.notify_all();
    }

    /// One of them looks again: there may be more to do than for the one that calls.
    pub fn hint(&self) {
        self.work.notify_one();
    }

    /// Waits until more has happened than was `known`, at most for `patience`.
    pub fn await_news(&self, known: &mut Milestones, patience: Duration) {
        let half = self.lock();
        let most = self.errors_most.get().copied();
        let same = |half: &mut Half| Milestones::of(half, most) == *known;
        let waited = self.changed.wait_timeout_while(half, patience, same);
        *known = Milestones::of(&waited.unwrap_or_else(PoisonError::into_inner).0, most);
    }

    /// So many entries may fail: one more is news.
    pub fn bear_errors(&self, most: u64) {
        let _ = self.errors_most.set(most);
    }

    /// Entries that have failed, up to the one too many, if there is one.
    pub fn too_many_failed(&self) -> Option<u64> {
        failed_beyond(&self.lock(), self.errors_most.get().copied())
    }

    /// Something could not even be offered.
    pub fn note_failure(&self, path: &str, end: &EntryEnd) {
        lock(&self.not_offered).push(path, end);
    }

    /// Entries that are not to be copied.
    pub fn skipped(&self) -> EndedEntries {
        let half = self.lock();
        let Some((count, sample)) = half.transfer().map(Transfer::skipped) else {
            return EndedEntries::default();
        };
        EndedEntries::default().plus(count, sample)
    }

    /// Entries that could not be copied.
    pub fn failures(&self) -> EndedEntries {
        let half = self.lock();
        let not_offered = lock(&self.not_offered).clone();
        let Some(transfer) = half.transfer() else { return not_offered };
        let (count, sample) = transfer.failures();
        not_offered.plus(count, sample)
    }

    // Looking at it.

    /// What its threads have done.
    pub fn work_done(&self) -> Work {
        let output_waits = self.downstream.get().is_some_and(|downstream| {
            downstream.lock().outgoing_pipe().is_some_and(|pipe| pipe.is_under_way())
        });
        Work { spent: self.crew.spent(), busy: self.crew.busy(), output_waits }
    }

    /// What it takes beyond what it counts; nothing where it takes no memory of its own.
    pub fn spare(&self) -> Option<Bytes> {
        match self.memory.get()? {
            Memory::Own { spare } => Some(*spare),
            Memory::None => None,
        }
    }

    /// There is so much memory from now on for what it counts.
    pub fn grow_memory(&self, memory: Bytes) {
        if let Some(spare) = self.spare()
            && self.pool.grow(buffers(memory + spare))
        {
            self.change(|half| half.grow_memory(memory));
            self.work.notify_all();
        }
    }

    /// Gives it more memory for names, if it would have more, and there is more to lease.
    pub fn grow_name_memory(&self, lease: Option<&Lease>) {
        let wanted = self.lock().name_memory_wanted().map(Bytes::new);
        if let Some((wanted, most)) = wanted.zip(self.name_memory.get().copied()) {
            let granted = lease.map_or(wanted.min(most), |lease| lease.grow_names(wanted));
            self.change(|half| half.grow_name_memory(granted.get()));
            self.work.notify_all();
        }
    }

    /// A source tells the sink how sending goes.
    pub fn report(&self, counts: SourceReport) {
        let host = self.host_account();
        let (access_lists, xattrs) = self.missed();
        self.change(|half| half.report(SourceReport { access_lists, xattrs, host, ..counts }));
    }
}

impl Memory {
    /// That of whoever reads what it sends.
    pub const OF_SOURCE: Self = Self::Own { spare: Bytes::ZERO };
    /// That of a copy's sink.
    pub const OF_SINK: Self = Self::Own { spare: SINK_SPARE };
    /// That of whoever receives from a pipe.
    pub const OF_DRAIN: Self = Self::Own { spare: PIPE_SPARE };
}

/// A refusal in words for people.
pub(crate) fn refuse(code: CloseCode, reason: impl Into<String>) -> Refused {
    Refused { code, reason: without_numbers(&reason.into()), part: None }
}

/// One for what is at `path`, the first of the request, or begins that.
pub(crate) fn refuse_at(path: &[u8], code: CloseCode, reason: impl Into<String>) -> Refused {
    Refused { part: Some(AskedPart::all_of(0, path)), ..refuse(code, reason) }
}

#[cfg(test)]
mod tests;
