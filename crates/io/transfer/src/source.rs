//! The side that has the files: reads and hashes groups on threads of its own and deals them to
//! the lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_connection::{Counts, Gate, OutgoingCopy, Spent, Stages, Wanted, buffers};
use longhaul_objects::{GroupTask, SourceStats, hash};
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Extent, shown};
use longhaul_wire::{Bottleneck, Entry, SinkMessage, SourceReport, Summary};

use crate::api::Failures;
use crate::buffer::{Buffer, Pool, Reuse, lock};
use crate::carrier::Mailbox;
use crate::crew::Crew;
use crate::files::{ScanFailure, Scanned, SourceTree};
use crate::mailboxes::{GateSeen, Mailboxes};

/// Drives an [`OutgoingCopy`] over a file tree.
pub(crate) struct SourceDriver {
    copy: Mutex<OutgoingCopy>,
    tree: SourceTree,
    /// What the scan could not take in.
    not_found: Mutex<Failures>,
    /// A message, credit or room: workers look again.
    work: Condvar,
    pool: Pool,
    mailboxes: Mailboxes,
    gate: GateSeen,
    /// As [`OutgoingCopy`] says, for lanes that ask without its lock.
    drained: AtomicBool,
    stopped: AtomicBool,
    readers: Crew,
    cpu_at_start: Duration,
    /// Contents are hashed.
    verify: bool,
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
        let mailboxes = Mailboxes::new(mailboxes);
        let copy = OutgoingCopy::new(clock::now(), mailboxes.count());
        Self {
            verify,
            tree,
            not_found: Mutex::default(),
            work: Condvar::new(),
            pool: Pool::new(buffers(memory), Reuse::Warm),
            mailboxes,
            gate: GateSeen::new(&copy.gate),
            drained: AtomicBool::new(false),
            copy: Mutex::new(copy),
            stopped: AtomicBool::new(false),
            readers: Crew::default(),
            cpu_at_start: clock::process_cpu_time(),
        }
    }

    /// Changes where groups go.
    pub fn direct(&self, change: impl FnOnce(&mut Gate)) {
        let mut copy = lock(&self.copy);
        change(&mut copy.gate);
        self.gate.note_dealing(&copy.gate);
        drop(copy);
        self.work.notify_all();
    }

    /// See [`OutgoingCopy::wanted`].
    pub fn wanted(&self) -> Wanted {
        lock(&self.copy).wanted()
    }

    /// Bytes of all entries, by a scan of its own.
    pub fn sum(&self) -> u64 {
        let size = |found| match found {
            Scanned::Entry(entry) => entry.size,
            Scanned::Failed(_) => 0,
        };
        self.tree.scan().map(size).sum()
    }

    /// See [`OutgoingCopy::is_sent`].
    pub fn is_sent(&self) -> bool {
        lock(&self.copy).is_sent(&self.mailboxes)
    }

    /// Finds the entries. Runs on a thread of its own.
    pub fn scan(&self) {
        let _joined = self.readers.join();
        let mut told = SourceStats::default();
        for found in self.tree.scan() {
            match found {
                Scanned::Entry(entry) => {
                    let mut copy = lock(&self.copy);
                    while !copy.wants_entries() && !self.is_stopped() {
                        copy = self.wait(copy);
                    }
                    if self.is_stopped() {
                        return;
                    }
                    let path = entry.path.to_string();
                    if let Err(error) = copy.push_entry(entry) {
                        lock(&self.not_found).push(path, error.to_string());
                    }
                }
                Scanned::Failed(failure) => self.note_scan_failure(failure),
            }
            let now = self.stats();
            if now.objects > told.objects || now.entries >= told.entries + ENTRIES_TOLD {
                told = now;
                self.mailboxes.wake_messages();
            }
        }
        lock(&self.copy).finish_entries();
        self.mailboxes.wake_messages();
    }

    fn note_scan_failure(&self, failure: ScanFailure) {
        let mut copy = lock(&self.copy);
        let path = shown(&String::from_utf8_lossy(&failure.path));
        // The sink knows no path but the stand-in's.
        let is_named = |entry: &Entry| entry.path.as_bytes() == failure.path;
        let reason = match &failure.stand_in {
            Some(entry) if !is_named(entry) => format!("{}: {path}", failure.reason),
            _ => failure.reason,
        };
        match failure.stand_in.and_then(|entry| copy.push_entry(entry).ok()) {
            Some(entry) => copy.entry_failed(entry, &reason),
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
            let mut copy = lock(&self.copy);
            for (entry, reason) in failures {
                copy.entry_failed(entry, &reason);
            }
            copy.group_hashed(task.object, task.group, value);
            let lane = copy.deal(&self.mailboxes);
            drop(copy);
            let extent = Extent { object: task.object, offset: task.offset, len: task.len.into() };
            self.mailboxes.wake_messages();
            self.mailboxes.offer(lane, extent, Arc::new(buffer));
        }
    }

    /// A group to read, and memory for it.
    fn next_task(&self) -> Option<(GroupTask, Buffer)> {
        let mut copy = lock(&self.copy);
        loop {
            if self.is_stopped() {
                return None;
            }
            let next = copy.next_group(clock::now(), &self.mailboxes, || self.pool.try_take());
            self.gate.note_answer(&copy.gate);
            let drained = copy.is_drained();
            if self.drained.swap(drained, Ordering::Relaxed) != drained && drained {
                self.mailboxes.wake_all();
            }
            if next.is_some() {
                return next;
            }
            copy = self.wait(copy);
        }
    }

    fn wait<'s>(&self, copy: MutexGuard<'s, OutgoingCopy>) -> MutexGuard<'s, OutgoingCopy> {
        let waited = self.readers.rest(|| self.work.wait_timeout(copy, PATIENCE));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// How long it was at each stage, and what its threads have spent.
    pub fn seen(&self) -> (Stages, Spent) {
        let stages = lock(&self.copy).gate.stages(clock::now(), &self.mailboxes);
        (stages, self.readers.spent())
    }

    /// Something that workers wait for has changed.
    fn notify(&self) {
        // Whoever has looked and is about to wait holds the lock.
        drop(lock(&self.copy));
        self.work.notify_all();
    }

    /// The sink said something.
    pub fn handle(&self, message: SinkMessage) -> Result<(), String> {
        lock(&self.copy).handle_message(message).map_err(|error| error.to_string())?;
        self.notify();
        Ok(())
    }

    /// Tells the sink how sending goes.
    pub fn report(&self, sending: SourceReport) {
        let cpu_time = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        lock(&self.copy).report(SourceReport { cpu_time, ..sending });
        self.mailboxes.wake_messages();
    }

    /// The next message for the sink.
    pub fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let message = lock(&self.copy).poll_message();
        // Messages that the source makes are within the limits of the wire.
        message.is_some_and(|message| message.encode(out).is_ok())
    }

    /// The sink promised more.
    pub fn on_credit(&self, credit: u64) {
        if self.gate.is_more(credit) {
            lock(&self.copy).gate.handle_credit(credit);
            self.work.notify_all();
        }
    }

    /// A lane has sent some of what it had.
    pub fn on_room(&self) {
        if self.gate.has_room(&self.mailboxes) && self.pool.has_free() {
            self.gate.take_room();
            self.notify();
        }
    }

    /// Whether everything dealt so far was all that may be dealt.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    /// What the sink said at the end.
    pub fn result(&self) -> Option<Summary> {
        lock(&self.copy).result().copied()
    }

    pub fn stats(&self) -> SourceStats {
        *lock(&self.copy).stats()
    }

    /// What grows while it goes on.
    pub fn counts(&self) -> Counts {
        lock(&self.copy).counts()
    }

    /// Whether nothing may leave before a circuit is booked or begins.
    pub fn awaits_circuit(&self) -> bool {
        lock(&self.copy).gate.awaits_circuit()
    }

    /// See [`OutgoingCopy::idles`].
    pub fn idles(&self, bound: Bottleneck) -> bool {
        lock(&self.copy).idles(bound, &self.mailboxes)
    }

    /// Entries that could not be copied.
    pub fn failures(&self) -> Failures {
        let copy = lock(&self.copy);
        let not_found = lock(&self.not_found).clone();
        not_found.plus(copy.stats().failed.into(), copy.failures())
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// There is so much memory for groups that are read and not acknowledged.
    pub fn set_memory(&self, memory: Bytes) {
        self.pool.grow(buffers(memory));
    }

    /// Ends all threads.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.pool.close();
        self.notify();
    }
}
