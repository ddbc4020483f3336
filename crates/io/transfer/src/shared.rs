//! The shared half of a connection behind one lock, the memory of its transfer, and what wakes the
//! threads that wait for it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use longhaul_connection::{
    Begun, Gate, GivenUp, GroupPart, IncomingPipe, News, Part, SharedHalf, Standing, Transfer,
    Unplaceable, Violation, Watch, WholeGroup, Wish, Work, buffers,
};
use longhaul_engine::Closed;
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Extent};
use longhaul_wire::{CloseCode, HostAccount, Refused, SourceReport};

use crate::api::Failures;
use crate::budget::{Budget, SINK_SPARE};
use crate::buffer::{Buffer, Pool, lock};
use crate::carrier::{UpperLayer, join_all};
use crate::control::ControlEnd;
use crate::crew::Crew;
use crate::mailboxes::{GateSeen, Mailboxes};

/// The shared half, of buffers of this crate.
pub(crate) type Half = SharedHalf<Arc<Buffer>, Buffer>;

/// What starts a transfer when the client's request arrives, or says why not.
pub(crate) type Opener = Box<dyn FnOnce(&Arc<Shared>, &Wish) -> Result<(), Refused> + Send>;

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
    pub mailboxes: Mailboxes,
    /// The half as it was last, for lanes, which ask again and again and do not wait for its lock.
    seen: Mutex<Seen>,
    gate: GateSeen,
    /// Memory for groups.
    pub pool: Pool,
    memory: OnceLock<Memory>,
    /// The transfer's threads.
    pub crew: Crew,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stopped: AtomicBool,
    /// What this host could not even offer.
    not_offered: Mutex<Failures>,
    /// Of a pipe that comes from another client: the connection to that one, which promises memory as
    /// it comes free here.
    upstream: OnceLock<Weak<Self>>,
    /// Of a pipe that goes on to another client: the connection to that one.
    downstream: OnceLock<Arc<Self>>,
    cpu_at_start: Duration,
    /// How this host fares, as the carrier last knew.
    host: Mutex<HostAccount>,
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
    has_said_all: bool,
    /// Where what is promised depends on it: how often memory was given back.
    given_back: Option<u64>,
    /// What may be sent has to be read first, into memory.
    reads_first: bool,
    news: Milestones,
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
}

impl Milestones {
    fn of(half: &Half) -> Self {
        Self {
            validated: half.validated().is_some(),
            begun: half.transfer().is_some(),
            done: half.is_done(),
            over: half.end().is_some(),
        }
    }
}

/// What a pipe takes beyond what it promises: a repetition may take a buffer, too.
pub(crate) const PIPE_SPARE: Bytes = Bytes::from_mib(8);
/// How often is looked whether everything is durable.
const WIND_UP_LOOK: Duration = Duration::from_millis(2);
/// What a last checkpoint may take beyond the sync that cannot be interrupted. A user who does not
/// want to wait for it asks once more.
const WIND_UP_PATIENCE: Duration = Duration::from_secs(10);

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
            mailboxes,
            seen: Mutex::new(Seen { wants_messages: true, ..Seen::default() }),
            gate: GateSeen::default(),
            pool: Pool::new(0),
            memory: OnceLock::new(),
            crew: Crew::default(),
            threads: Mutex::default(),
            stopped: AtomicBool::new(false),
            not_offered: Mutex::default(),
            upstream: OnceLock::new(),
            downstream: OnceLock::new(),
            cpu_at_start: clock::process_cpu_time(),
            host: Mutex::default(),
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
        if let Memory::Own { spare } = memory {
            self.pool.grow(buffers(first + spare));
        }
        self.change(|half| half.begin(transfer, Watch::new(now, growing, patience)));
    }

    /// Runs `work` on a thread of the transfer. If it cannot go on, this host cannot.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Self>) -> Result<(), String> + Send + 'static,
    ) -> io::Result<()> {
        let shared = self.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let _joined = shared.crew.join();
            if let Err(reason) = work(&shared) {
                shared.fail(reason);
            }
        })?;
        lock(&self.threads).push(thread);
        Ok(())
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
            let _ = to.upstream.set(Arc::downgrade(self));
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
            Transfer::IncomingCopy(copy) => copy.set_host(self.host_account()),
            Transfer::OutgoingCopy(_) | Transfer::OutgoingPipe(_) => {}
        }
        None
    }

    /// How this host fares with it, and what it has spent.
    pub fn host_account(&self) -> HostAccount {
        let cpu_time = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        HostAccount { cpu_time, ..*lock(&self.host) }
    }

    /// The carrier knows that of this host.
    pub fn note_host(&self, account: HostAccount) {
        *lock(&self.host) = account;
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
        let news = Milestones::of(half);
        let seen = Seen {
            standing: half.standing(),
            wants_messages: half.wants_messages(),
            has_said_all: half.has_said_all(),
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
        let same = |half: &mut Half| Milestones::of(half) == *known;
        let waited = self.changed.wait_timeout_while(half, patience, same);
        *known = Milestones::of(&waited.unwrap_or_else(PoisonError::into_inner).0);
    }

    /// This host cannot go on.
    pub fn fail(&self, reason: String) {
        self.change(|half| half.fail(reason));
    }

    /// The control connection ended: so does the transfer.
    pub fn note_end(&self, end: &ControlEnd) {
        let closed = match end {
            ControlEnd::Closed { code, reason, by_peer } => {
                Closed { code: *code, reason: reason.clone(), by_peer: *by_peer }
            }
            ControlEnd::Lost(reason) => {
                Closed { code: CloseCode::TIMEOUT, reason: reason.clone(), by_peer: false }
            }
        };
        self.change(|half| half.handle_closed(closed));
    }

    // Its end.

    /// Whether its threads are to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the transfer's threads.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.pool.close();
        self.nudge();
    }

    /// The transfer ends early, its storage being sound: what has arrived is written and made durable,
    /// for a later run.
    pub fn wind_up(&self) {
        let until = clock::now() + WIND_UP_PATIENCE;
        while !self.is_stopped() && clock::now() < until {
            let wind_up = |half: &mut Half| half.incoming_copy().is_none_or(|copy| copy.wind_up());
            if self.change(wind_up) {
                return;
            }
            self.nudge();
            std::thread::sleep(WIND_UP_LOOK);
        }
    }

    /// Whether the transfer's threads have come to their end.
    pub fn threads_ended(&self) -> bool {
        lock(&self.threads).iter().all(JoinHandle::is_finished)
    }

    /// Waits for them.
    pub fn join(&self) {
        join_all(&mut lock(&self.threads));
    }

    /// Something could not even be offered.
    pub fn note_failure(&self, path: String, reason: String) {
        lock(&self.not_offered).push(path, reason);
    }

    /// What could not be copied.
    pub fn failures(&self) -> Failures {
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

    /// A source tells the sink how sending goes.
    pub fn report(&self, counts: SourceReport) {
        let host = self.host_account();
        self.change(|half| half.report(SourceReport { host, ..counts }));
    }

    /// At a server: starts what the client asks for, or says why not.
    fn open(&self, wish: &Wish) {
        let (opener, this) = (lock(&self.opener).take(), self.this.upgrade());
        let (Some(opener), Some(this)) = (opener, this) else { return };
        if let Err(refused) = opener(&this, wish) {
            self.change(|half| half.refuse(refused));
        }
    }

    /// Whoever waits for memory of ours, or for the end, looks again.
    fn tell_upstream(&self) {
        if let Some(upstream) = self.upstream.get().and_then(Weak::upgrade) {
            upstream.mailboxes.wake_messages();
            upstream.nudge();
        }
    }

    fn handle_news(&self, news: News<Buffer>) {
        let mut half = self.lock();
        self.update(&mut half, |half| half.handle_news(clock::now(), news));
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

impl UpperLayer for Shared {
    fn on_validated(&self) {
        self.handle_news(News::Validated);
    }

    fn on_stream_bytes(&self, bytes: &[u8]) -> Result<(), Violation> {
        self.lock().handle_bytes(bytes);
        loop {
            // What is heard may take long: meanwhile others may speak.
            let heard = self.change(|half| match half.poll_heard()? {
                Some(heard) => half.handle_heard(heard).map(Some),
                None => Ok(None),
            });
            match heard? {
                Some(Some(wish)) => self.open(&wish),
                Some(None) => {}
                None => break,
            }
        }
        self.work.notify_all();
        self.tell_upstream();
        Ok(())
    }

    fn wants_stream(&self) -> bool {
        lock(&self.seen).wants_messages
    }

    fn on_stream_end(&self) -> Result<(), Violation> {
        self.change(|half| half.handle_end())
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let mut half = self.lock();
        let given_back = self.refresh(&mut half);
        let waited = !half.wants_messages();
        let Some(message) = half.poll_message() else { return false };
        self.publish(&mut half, given_back);
        let wants = half.wants_messages();
        drop(half);
        if waited && wants {
            // Preparations and credit go on as well.
            self.work.notify_all();
        }
        // Ours are within the limits of the wire, but for a reason that is too long to be told.
        message.encode(out).is_ok()
    }

    fn is_finished(&self) -> bool {
        lock(&self.seen).has_said_all
    }

    fn on_credit(&self, credit: u64) {
        if self.gate.is_more(credit) {
            self.update(&mut self.lock(), |half| half.handle_credit(credit));
            self.work.notify_all();
        }
        // A piece that waits has its memory.
        let has_memory = || !lock(&self.seen).reads_first || self.pool.has_free();
        if self.gate.has_room(&self.mailboxes) && has_memory() {
            self.gate.take_room();
            self.update(&mut self.lock(), |_| ());
            self.work.notify_all();
        }
    }

    fn on_delivered(&self, _: Extent) {
        // A buffer may be free.
        self.tell_upstream();
    }

    fn on_withdrawn(&self, extent: Extent) {
        self.handle_news(News::Withdrawn(extent));
        // There is memory, and credit, for another group.
        self.work.notify_all();
    }

    fn on_closed(&self, closed: &Closed) {
        self.handle_news(News::Closed(closed.clone()));
    }

    fn standing(&self) -> Standing {
        let seen = *lock(&self.seen);
        if seen.given_back.is_none_or(|count| count == self.pool.given_back()) {
            return seen.standing;
        }
        self.update(&mut self.lock(), |half| half.standing())
    }

    fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        let mut half = self.lock();
        let given_back = self.refresh(&mut half);
        let begun = half.begin_group(part, || self.pool.try_take());
        if matches!(begun, Ok(Begun::Unneeded)) {
            // What nobody needs gives its credit back.
            self.publish(&mut half, given_back);
        }
        begun
    }

    fn on_group(&self, whole: WholeGroup<Buffer>) {
        self.handle_news(News::Arrived(whole));
        self.work.notify_one();
    }

    fn on_given_up(&self, given_up: GivenUp<Buffer>) {
        self.handle_news(News::GivenUp(given_up));
    }
}

/// A refusal in words for people.
pub(crate) fn refuse(code: CloseCode, reason: impl Into<String>) -> Refused {
    Refused { code, reason: reason.into() }
}

#[cfg(test)]
mod tests;
