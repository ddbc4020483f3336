//! The side that has the files: reads and hashes groups on threads of its own and deals them to
//! the lanes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_connection::{Spent, Stage, Stages};
use longhaul_objects::{GroupTask, Source, SourceStats, hash};
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Extent, shown};
use longhaul_wire::{Entry, SinkMessage, SourceReport, Summary};

use crate::api::Failures;
use crate::budget::groups;
use crate::buffer::{Buffer, Pool, Reuse, lock};
use crate::carrier::Mailbox;
use crate::crew::Crew;
use crate::deal::Dealer;
use crate::files::{ScanFailure, Scanned, SourceTree};

/// Drives a [`Source`] over a file tree.
pub(crate) struct SourceDriver {
    source: Mutex<Source>,
    tree: SourceTree,
    /// What the scan could not take in.
    not_found: Mutex<Failures>,
    /// A message, credit or room: workers look again.
    work: Condvar,
    pool: Pool,
    credit: AtomicU64,
    /// Workers wait for the lanes to send what they have, or for the peer to acknowledge it.
    lanes_full: AtomicBool,
    /// Nothing can be dealt until the sink says more.
    drained: AtomicBool,
    stopped: AtomicBool,
    /// Groups that workers have and the lanes have not.
    reading: AtomicUsize,
    dealer: Dealer,
    stages: Mutex<Stages>,
    readers: Crew,
    cpu_at_start: Duration,
    /// Contents are hashed.
    verify: bool,
}

/// What is known of the bytes that are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// So many.
    Exactly(u64),
    /// So many, less what the sink turns out to have.
    AtMost(u64),
    /// The scan has found so many by now.
    NotLess(u64),
}

/// Entries found that are worth a wake-up of the lane that tells of them, where they make no object.
const ENTRIES_TOLD: u32 = 256;
/// Workers look again after this long, whatever they missed.
const PATIENCE: Duration = Duration::from_millis(20);

impl SourceDriver {
    /// A driver that deals to `mailboxes` what is in `memory`.
    pub fn new(
        tree: SourceTree,
        verify: bool,
        memory: Bytes,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> Self {
        Self {
            verify,
            source: Mutex::new(Source::new()),
            tree,
            not_found: Mutex::default(),
            work: Condvar::new(),
            pool: Pool::new(groups(memory), Reuse::Warm),
            credit: AtomicU64::new(0),
            lanes_full: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            reading: AtomicUsize::new(0),
            dealer: Dealer::new(mailboxes),
            stages: Mutex::new(Stages::new(clock::now())),
            readers: Crew::default(),
            cpu_at_start: clock::process_cpu_time(),
        }
    }

    /// See [`Dealer::awaits_circuit`].
    pub fn awaits_circuit(&self) -> bool {
        self.dealer.awaits_circuit()
    }

    /// See [`Dealer::set_awaits_circuit`].
    pub fn set_awaits_circuit(&self, awaits: bool) {
        self.dealer.set_awaits_circuit(awaits);
    }

    /// Bytes that the lanes have not sent yet.
    pub fn backlog(&self) -> u64 {
        self.dealer.backlog()
    }

    /// Nothing is dealt before [`Self::deal_to`].
    pub fn hold(&self) {
        self.dealer.hold();
    }

    /// See [`Dealer::deal_to`].
    pub fn deal_to(&self, lanes: Range<u16>) {
        self.dealer.deal_to(lanes);
        self.notify();
    }

    /// Bytes that are to be sent: exact once the sink has said what it has of each object. One that
    /// prepares a few files at a time says that of the last ones late: then as far as it is known.
    pub fn wanted(&self) -> Wanted {
        let source = lock(&self.source);
        match (source.wanted(), source.stats()) {
            (Some(bytes), _) => Wanted::Exactly(bytes),
            (None, stats) if stats.complete => {
                let left = stats.bytes.saturating_sub(stats.resumed_bytes);
                Wanted::AtMost(left)
            }
            (None, stats) => Wanted::NotLess(stats.bytes),
        }
    }

    /// Bytes of all entries, by a scan of its own.
    pub fn sum(&self) -> u64 {
        let size = |found| match found {
            Scanned::Entry(entry) => entry.size,
            Scanned::Failed(_) => 0,
        };
        self.tree.scan().map(size).sum()
    }

    /// Whether all groups were given to the lanes, and these have sent them.
    pub fn is_sent(&self) -> bool {
        lock(&self.source).is_dealt()
            && self.reading.load(Ordering::Relaxed) == 0
            && self.dealer.backlog() == 0
    }

    /// Finds the entries. Runs on a thread of its own.
    pub fn scan(&self) {
        let _joined = self.readers.join();
        let mut told = SourceStats::default();
        for found in self.tree.scan() {
            match found {
                Scanned::Entry(entry) => {
                    let mut source = lock(&self.source);
                    while !source.wants_entries() && !self.is_stopped() {
                        source = self.wait(source);
                    }
                    if self.is_stopped() {
                        return;
                    }
                    let path = entry.path.to_string();
                    if let Err(error) = source.push_entry(entry) {
                        lock(&self.not_found).push(path, error.to_string());
                    }
                }
                Scanned::Failed(failure) => self.note_scan_failure(failure),
            }
            let now = self.stats();
            if now.objects > told.objects || now.entries >= told.entries + ENTRIES_TOLD {
                told = now;
                self.dealer.wake_messages();
            }
        }
        lock(&self.source).finish_entries();
        self.dealer.wake_messages();
    }

    fn note_scan_failure(&self, failure: ScanFailure) {
        let mut source = lock(&self.source);
        let path = shown(&String::from_utf8_lossy(&failure.path));
        // The sink knows no path but the stand-in's.
        let is_named = |entry: &Entry| entry.path.as_bytes() == failure.path;
        let reason = match &failure.stand_in {
            Some(entry) if !is_named(entry) => format!("{}: {path}", failure.reason),
            _ => failure.reason,
        };
        match failure.stand_in.and_then(|entry| source.push_entry(entry).ok()) {
            Some(entry) => source.entry_failed(entry, &reason),
            None => lock(&self.not_found).push(path, reason),
        }
    }

    /// Reads, hashes and deals groups until the driver is stopped. Any number of threads.
    pub fn work(&self) {
        let _joined = self.readers.join();
        while let Some((task, mut buffer)) = self.next_task() {
            let len = task.len as usize;
            let failures = self.tree.read_group(&task, &mut buffer[..len]);
            let value = match self.verify {
                true => hash::group_chaining_value(&buffer[..len], task.group, task.only),
                false => hash::UNHASHED,
            };
            let mut source = lock(&self.source);
            for (entry, reason) in failures {
                source.entry_failed(entry, &reason);
            }
            source.group_hashed(task.object, task.group, value);
            drop(source);
            let extent = Extent { object: task.object, offset: task.offset, len: task.len.into() };
            self.dealer.wake_messages();
            self.dealer.deal(extent, Arc::new(buffer));
            self.reading.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A group to read, and memory for it.
    fn next_task(&self) -> Option<(GroupTask, Buffer)> {
        let mut source = lock(&self.source);
        loop {
            if self.is_stopped() {
                return None;
            }
            let full = self.dealer.is_full();
            let held = self.dealer.is_held();
            let buffer = if full || held { None } else { self.pool.try_take() };
            self.lanes_full.store(buffer.is_none() && !held, Ordering::Relaxed);
            let task = buffer.as_ref().and_then(|_| {
                let credit = self.credit.load(Ordering::Relaxed);
                source.next_group(credit)
            });
            let listing = !source.stats().complete && source.wants_entries();
            let reading = listing || self.reading.load(Ordering::Relaxed) > 0;
            let stage = match &buffer {
                None if held => Stage::Answer,
                None if !full => Stage::Memory,
                Some(_) if task.is_none() && source.has_unsent() => Stage::Credit,
                Some(_) if task.is_none() && !reading => Stage::Answer,
                _ => Stage::Reading,
            };
            lock(&self.stages).enter(clock::now(), stage, self.dealer.hungry());
            if let (Some(task), Some(buffer)) = (task, buffer) {
                self.drained.store(false, Ordering::Relaxed);
                self.reading.fetch_add(1, Ordering::Relaxed);
                return Some((task, buffer));
            }
            if !full && !held && !self.drained.swap(true, Ordering::Relaxed) {
                self.dealer.wake_all();
            }
            source = self.wait(source);
        }
    }

    fn wait<'s>(
        &self,
        source: std::sync::MutexGuard<'s, Source>,
    ) -> std::sync::MutexGuard<'s, Source> {
        let waited = self.readers.rest(|| self.work.wait_timeout(source, PATIENCE));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// How long it was at each stage, and what its threads have spent.
    pub fn seen(&self) -> (Stages, Spent) {
        let mut stages = lock(&self.stages);
        stages.update(clock::now(), self.dealer.hungry());
        (*stages, self.readers.spent())
    }

    /// Something that workers wait for has changed.
    fn notify(&self) {
        // Whoever has looked and is about to wait holds the lock.
        drop(lock(&self.source));
        self.work.notify_all();
    }

    /// The sink said something.
    pub fn handle(&self, message: SinkMessage) -> Result<(), String> {
        lock(&self.source).handle(message).map_err(|error| error.to_string())?;
        self.notify();
        Ok(())
    }

    /// Tells the sink how sending goes.
    pub fn report(&self, sending: SourceReport) {
        let cpu_time = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        lock(&self.source).report(SourceReport { cpu_time, ..sending });
        self.dealer.wake_messages();
    }

    /// The next message for the sink.
    pub fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let message = lock(&self.source).poll_message();
        // Messages that the source makes are within the limits of the wire.
        message.is_some_and(|message| message.encode(out).is_ok())
    }

    /// The sink promised more.
    pub fn on_credit(&self, credit: u64) {
        if self.credit.fetch_max(credit, Ordering::Relaxed) < credit {
            self.notify();
        }
    }

    /// A lane has sent some of what it had.
    pub fn on_room(&self) {
        let full = self.lanes_full.load(Ordering::Relaxed);
        if full && self.dealer.has_room() && self.pool.has_free() {
            self.lanes_full.store(false, Ordering::Relaxed);
            self.notify();
        }
    }

    /// Whether everything dealt so far was all that may be dealt.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    /// What the sink said at the end.
    pub fn result(&self) -> Option<Summary> {
        lock(&self.source).result().cloned()
    }

    pub fn stats(&self) -> SourceStats {
        *lock(&self.source).stats()
    }

    /// Entries that could not be copied.
    pub fn failures(&self) -> Failures {
        let source = lock(&self.source);
        let not_found = lock(&self.not_found).clone();
        not_found.plus(source.stats().failed.into(), source.failures())
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// There is so much memory for groups that are read and not acknowledged.
    pub fn set_memory(&self, memory: Bytes) {
        self.pool.grow(groups(memory));
    }

    /// Ends all threads.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.pool.close();
        self.notify();
    }
}
