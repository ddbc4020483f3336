//! The side that receives: hashes and writes groups on threads of its own, and does what the
//! [`IncomingCopy`] says with the destination.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_connection::{
    Begun, Counts, GroupPart, IncomingCopy, SinkMemory, Spent, Unplaceable, WholeGroup, let_in,
};
use longhaul_objects::{Action, Intake, SinkConfig, SinkStats, Verdict, hash};
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{ReceiverBounds, SourceMessage, SourceReport};

use crate::api::Failures;
use crate::budget::SINK_SPARE;
use crate::buffer::{Buffer, Pool, Reuse, lock};
use crate::carrier::Mailbox;
use crate::crew::Crew;
use crate::files::Target;
use crate::mailboxes::Mailboxes;

/// Drives an [`IncomingCopy`] over a destination.
pub(crate) struct SinkDriver {
    copy: Mutex<IncomingCopy>,
    tree: Target,
    pool: Pool,
    /// As [`IncomingCopy`] said last, for lanes that ask without its lock.
    credit: AtomicU64,
    bounds: Mutex<ReceiverBounds>,
    wants_messages: AtomicBool,
    /// What the source may send, and has begun to.
    intake: Mutex<Intake>,
    queue: Mutex<Queue>,
    work: Condvar,
    /// Held while an action is taken, and while one is done that has to be in order.
    acting: Mutex<()>,
    /// A thread found [`Self::acting`] taken.
    again: AtomicBool,
    mailboxes: Mailboxes,
    writers: Crew,
    cpu_at_start: Duration,
    stopped: AtomicBool,
    /// The transfer ends early: nothing more is taken.
    winding_up: AtomicBool,
    /// Groups that threads have taken from the queue and not dealt with.
    taken: AtomicUsize,
    /// Contents are hashed and compared.
    verify: bool,
}

#[derive(Default)]
struct Queue {
    groups: VecDeque<WholeGroup<Buffer>>,
    /// The sink may have actions.
    look: bool,
    /// Threads that are doing something.
    busy: usize,
    /// Since when there are any, and how long there were any before.
    busy_since: Instant,
    was_busy: Duration,
}

impl Queue {
    fn begin_work(&mut self) {
        if self.busy == 0 {
            self.busy_since = clock::now();
        }
        self.busy += 1;
    }

    fn end_work(&mut self) {
        self.busy -= 1;
        if self.busy == 0 {
            self.was_busy += clock::now() - self.busy_since;
        }
    }
}

const PATIENCE: Duration = Duration::from_millis(100);
/// How often is looked whether everything is durable.
const WIND_UP_LOOK: Duration = Duration::from_millis(2);

impl SinkDriver {
    /// A driver over `tree`, whose record said `resume`.
    pub fn new(
        tree: impl Into<Target>,
        config: SinkConfig,
        resume: longhaul_objects::ResumeState,
        verify: bool,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> Self {
        let pool = Pool::new(buffers(Bytes::new(config.capacity)), Reuse::Warm);
        let copy = IncomingCopy::new(config, resume);
        Self {
            credit: AtomicU64::new(copy.credit()),
            wants_messages: AtomicBool::new(true),
            copy: Mutex::new(copy),
            tree: tree.into(),
            pool,
            intake: Mutex::default(),
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            acting: Mutex::new(()),
            again: AtomicBool::new(false),
            mailboxes: Mailboxes::new(mailboxes),
            writers: Crew::default(),
            bounds: Mutex::default(),
            cpu_at_start: clock::process_cpu_time(),
            stopped: AtomicBool::new(false),
            winding_up: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            verify,
        }
    }

    /// Verifies, writes and acts until the driver is stopped. Any number of threads.
    ///
    /// # Errors
    /// The destination failed as a whole, in words.
    pub fn work(&self) -> Result<(), String> {
        let _joined = self.writers.join();
        lock(&self.queue).begin_work();
        let result = self.work_until_stopped();
        lock(&self.queue).end_work();
        result
    }

    fn work_until_stopped(&self) -> Result<(), String> {
        while !self.is_stopped() {
            let group = self.next_group();
            if let Some(group) = group {
                self.take_group(group);
                self.taken.fetch_sub(1, Ordering::Relaxed);
            }
            self.act()?;
        }
        Ok(())
    }

    fn next_group(&self) -> Option<WholeGroup<Buffer>> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(group) = queue.groups.pop_front() {
                // Under the lock, so that it is counted in one of the two places.
                self.taken.fetch_add(1, Ordering::Relaxed);
                return Some(group);
            }
            if std::mem::take(&mut queue.look) || self.is_stopped() {
                return None;
            }
            queue.end_work();
            let waited = self.writers.rest(|| self.work.wait_timeout(queue, PATIENCE));
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.begin_work();
            if timeout.timed_out() {
                return None;
            }
        }
    }

    fn take_group(&self, arrived: WholeGroup<Buffer>) {
        let WholeGroup { object, group, len, buffer } = arrived;
        let data = &buffer[..len as usize];
        let value = match self.verify {
            true => {
                let place = lock(&self.intake).objects().place(object, 0, 1);
                hash::group_chaining_value(data, group, place.is_ok_and(|place| place.only))
            }
            false => hash::UNHASHED,
        };
        let mut copy = lock(&self.copy);
        let verdict = copy.handle_group(object, group, value);
        self.publish(&mut copy);
        drop(copy);
        if let Verdict::Write(task) = verdict {
            let failed = self.tree.write(&task, data);
            drop(buffer);
            self.change(|copy| copy.group_written(&task, &failed));
        } else {
            self.mailboxes.wake_messages();
        }
    }

    /// Does what the sink says. Several threads may come here: actions that prepare are done in
    /// their order by one of them, the others by whoever takes them.
    fn act(&self) -> Result<(), String> {
        loop {
            self.again.store(false, Ordering::Relaxed);
            let Ok(acting) = self.acting.try_lock() else {
                // Whoever acts looks once more.
                self.again.store(true, Ordering::Relaxed);
                return Ok(());
            };
            let action = lock(&self.copy).poll_action(clock::now());
            let Some(action) = action else {
                drop(acting);
                if self.again.load(Ordering::Relaxed) {
                    continue;
                }
                return Ok(());
            };
            let rechecks = matches!(action, Action::RecheckGroups { .. });
            let kept = action.is_in_order().then_some(acting);
            let answer = self.tree.perform(action).map_err(|error| error.to_string())?;
            self.change(|copy| copy.handle_answer(answer));
            drop(kept);
            if rechecks {
                // There may be many, and groups that have arrived do not wait for all of them.
                self.look();
                return Ok(());
            }
        }
    }

    /// Changes the state of the copy; others may have something to do then.
    fn change<T>(&self, change: impl FnOnce(&mut IncomingCopy) -> T) -> T {
        let cpu_time = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        let mut copy = lock(&self.copy);
        copy.set_cpu_time(cpu_time);
        let result = change(&mut copy);
        self.publish(&mut copy);
        drop(copy);
        self.mailboxes.wake_messages();
        result
    }

    /// Tells lanes and their threads what they go by.
    fn publish(&self, copy: &mut IncomingCopy) {
        // Under the lock, so that lanes hear of asking and taking in that order.
        while let Some(repair) = copy.poll_repair() {
            self.mailboxes.post_repair(repair);
        }
        self.credit.store(copy.credit(), Ordering::Relaxed);
        self.wants_messages.store(copy.wants_messages(), Ordering::Relaxed);
        lock(&self.intake).set_objects(copy.objects());
    }

    fn look(&self) {
        lock(&self.queue).look = true;
        self.work.notify_one();
    }

    /// The source said something.
    pub fn handle(&self, message: SourceMessage) -> Result<(), String> {
        self.change(|copy| copy.handle_message(message)).map_err(|error| error.to_string())?;
        self.look();
        Ok(())
    }

    /// Whether more of what the source says is wanted.
    pub fn wants_messages(&self) -> bool {
        self.wants_messages.load(Ordering::Relaxed)
    }

    /// The next message for the source.
    pub fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let mut copy = lock(&self.copy);
        let waited = !self.wants_messages();
        let message = copy.poll_message();
        if message.is_some() {
            // Whoever is told to send may do so at once.
            self.publish(&mut copy);
        }
        drop(copy);
        if waited && self.wants_messages() {
            // Preparations and credit go on as well.
            self.look();
        }
        message.is_some_and(|message| message.encode(out).is_ok())
    }

    /// Memory for a group that the source begins to send.
    pub fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        let_in(&mut lock(&self.intake), part, self.credit(), || self.pool.try_take())
    }

    pub fn on_group(&self, whole: WholeGroup<Buffer>) {
        if self.winding_up.load(Ordering::Relaxed) {
            return;
        }
        lock(&self.queue).groups.push_back(whole);
        self.work.notify_one();
    }

    pub fn credit(&self) -> u64 {
        self.credit.load(Ordering::Relaxed)
    }

    /// What its threads have spent, and how long any of them had something to do.
    pub fn seen(&self) -> (Spent, Duration) {
        let queue = lock(&self.queue);
        let now = if queue.busy > 0 { clock::now() - queue.busy_since } else { Duration::ZERO };
        (self.writers.spent(), queue.was_busy + now)
    }

    /// What holds this side up, for the source.
    pub fn bounds(&self) -> ReceiverBounds {
        *lock(&self.bounds)
    }

    /// Sets what the source is to be told.
    pub fn set_bounds(&self, bounds: ReceiverBounds) {
        let mut copy = lock(&self.copy);
        copy.set_bounds(bounds);
        let bounds = copy.bounds();
        drop(copy);
        if std::mem::replace(&mut *lock(&self.bounds), bounds) != bounds {
            self.mailboxes.wake_all();
        }
    }

    /// Everything is settled and told.
    pub fn is_done(&self) -> bool {
        lock(&self.copy).is_done()
    }

    pub fn stats(&self) -> SinkStats {
        *lock(&self.copy).stats()
    }

    /// What grows while it goes on.
    pub fn counts(&self) -> Counts {
        lock(&self.copy).counts()
    }

    /// What the source said last of its sending.
    pub fn source_report(&self) -> Option<SourceReport> {
        lock(&self.copy).source_report().copied()
    }

    /// Entries that could not be copied.
    pub fn failures(&self) -> Failures {
        let copy = lock(&self.copy);
        Failures::default().plus(copy.stats().failed.into(), copy.failures())
    }

    /// Whether nothing of what arrives is kept.
    pub fn discards(&self) -> bool {
        self.tree.discards()
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// There is so much memory for groups that are being received or written.
    pub fn set_memory(&self, memory: Bytes) {
        if self.pool.grow(buffers(memory)) {
            self.change(|copy| copy.grow_memory(memory));
        }
    }

    /// Writes the groups that have arrived whole, and makes durable what is written and verified, for
    /// a later run. What comes from now on is dropped. Waits no longer than `patience`.
    pub fn wind_up(&self, patience: Duration) {
        self.winding_up.store(true, Ordering::Relaxed);
        let until = clock::now() + patience;
        loop {
            let left = lock(&self.queue).groups.len() + self.taken.load(Ordering::Relaxed);
            let mut copy = lock(&self.copy);
            if left == 0 {
                copy.wind_up();
                if copy.is_wound_up() {
                    return;
                }
            }
            drop(copy);
            if clock::now() >= until || self.is_stopped() {
                return;
            }
            self.look();
            std::thread::sleep(WIND_UP_LOOK);
        }
    }

    /// Ends all threads.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.pool.close();
        self.work.notify_all();
    }
}

/// Buffers for a promise of so many bytes.
fn buffers(promised: Bytes) -> usize {
    SinkMemory { promised, spare: SINK_SPARE }.buffers()
}

#[cfg(test)]
mod tests;
