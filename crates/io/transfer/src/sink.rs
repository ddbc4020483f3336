//! The side that receives: hashes and writes groups on threads of its own, and does what the
//! [`Sink`] says with the destination.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_connection::{Begun, GroupPart, Repairs, Spent, Unplaceable, WholeGroup, let_in};
use longhaul_objects::{Action, Intake, Sink, SinkConfig, SinkStats, Verdict, hash};
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{Bottleneck, ReceiverBounds, SinkMessage, SourceMessage, SourceReport};

use crate::api::Failures;
use crate::budget::{SINK_SPARE, groups};
use crate::buffer::{Buffer, Pool, Reuse, lock};
use crate::carrier::{Mailbox, post_repair, wake_messages};
use crate::crew::Crew;
use crate::files::Target;

/// Drives a [`Sink`] over a destination.
pub(crate) struct SinkDriver {
    sink: Mutex<Sink>,
    tree: Target,
    pool: Pool,
    credit: AtomicU64,
    /// As the sink said last.
    wants_messages: AtomicBool,
    /// What the source may send, and has begun to.
    intake: Mutex<Intake>,
    /// Taken under the sink's lock, so that lanes hear of asking and taking in that order.
    repairs: Mutex<Repairs>,
    queue: Mutex<Queue>,
    work: Condvar,
    /// Held while an action is taken, and while one is done that has to be in order.
    acting: Mutex<()>,
    /// A thread found [`Self::acting`] taken.
    again: AtomicBool,
    mailboxes: Vec<Arc<Mailbox>>,
    writers: Crew,
    /// What holds this side up, for the source.
    bounds: Mutex<ReceiverBounds>,
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
        let pool = Pool::new(buffers(config.capacity), Reuse::Warm);
        let sink = Sink::new(config, resume);
        Self {
            credit: AtomicU64::new(sink.credit()),
            wants_messages: AtomicBool::new(true),
            sink: Mutex::new(sink),
            tree: tree.into(),
            pool,
            intake: Mutex::default(),
            repairs: Mutex::default(),
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            acting: Mutex::new(()),
            again: AtomicBool::new(false),
            mailboxes,
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
        let mut sink = lock(&self.sink);
        let verdict = sink.group_received(object, group, value);
        if matches!(verdict, Verdict::Write(_))
            && let Some(repair) = lock(&self.repairs).take(object, group)
        {
            post_repair(&self.mailboxes, repair);
        }
        drop(sink);
        if let Verdict::Write(task) = verdict {
            let failures = self.tree.write(&task, data);
            let mut sink = lock(&self.sink);
            for (entry, reason) in failures {
                sink.write_failed(entry, &reason);
            }
            sink.group_written(object, group);
        }
        drop(buffer);
        self.after_change();
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
            let action = lock(&self.sink).poll_action(clock::now());
            let Some(action) = action else {
                drop(acting);
                if self.again.load(Ordering::Relaxed) {
                    continue;
                }
                return Ok(());
            };
            let ordered = matches!(
                action,
                Action::MakeDirectories(_) | Action::PrepareFile { .. } | Action::CheckPublished(_)
            );
            let rechecks = matches!(action, Action::RecheckGroups { .. });
            let kept = ordered.then_some(acting);
            self.tree.perform(action, &self.sink).map_err(|error| error.to_string())?;
            drop(kept);
            self.after_change();
            if rechecks {
                // There may be many, and groups that have arrived do not wait for all of them.
                self.look();
                return Ok(());
            }
        }
    }

    /// The sink's state moved: others may have something to do.
    fn after_change(&self) {
        let mut sink = lock(&self.sink);
        while let Some((object, group)) = sink.poll_anew() {
            post_repair(&self.mailboxes, lock(&self.repairs).ask(object, group));
        }
        let cpu = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        sink.set_cpu_time(cpu);
        self.credit.store(sink.credit(), Ordering::Relaxed);
        self.wants_messages.store(sink.wants_messages(), Ordering::Relaxed);
        lock(&self.intake).set_objects(sink.objects());
        drop(sink);
        wake_messages(&self.mailboxes);
    }

    fn look(&self) {
        lock(&self.queue).look = true;
        self.work.notify_one();
    }

    /// The source said something.
    pub fn handle(&self, message: SourceMessage) -> Result<(), String> {
        lock(&self.sink).handle(message).map_err(|error| error.to_string())?;
        self.after_change();
        self.look();
        Ok(())
    }

    /// Whether more of what the source says is wanted.
    pub fn wants_messages(&self) -> bool {
        self.wants_messages.load(Ordering::Relaxed)
    }

    /// The next message for the source.
    pub fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let mut sink = lock(&self.sink);
        let message = sink.poll_message();
        if let Some(SinkMessage::Accept { .. }) = &message {
            // Whoever is told to send may do so at once.
            lock(&self.intake).set_objects(sink.objects());
        }
        let again = sink.wants_messages() && !self.wants_messages.swap(true, Ordering::Relaxed);
        drop(sink);
        if again {
            // Preparations and credit go on as well.
            self.after_change();
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
    pub fn set_bounds(&self, mut bounds: ReceiverBounds) {
        if lock(&self.sink).is_rechecking() {
            bounds.storage = Bottleneck::ReceiverDisk;
        }
        if std::mem::replace(&mut *lock(&self.bounds), bounds) != bounds {
            self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
        }
    }

    /// Everything is settled and told.
    pub fn is_done(&self) -> bool {
        lock(&self.sink).is_done()
    }

    pub fn stats(&self) -> SinkStats {
        *lock(&self.sink).stats()
    }

    /// What the source said last of its sending.
    pub fn source_report(&self) -> Option<SourceReport> {
        lock(&self.sink).source_report().copied()
    }

    /// Entries that could not be copied.
    pub fn failures(&self) -> Failures {
        let sink = lock(&self.sink);
        Failures::default().plus(sink.stats().failed.into(), sink.failures())
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
        if self.pool.grow(buffers(memory.get())) {
            lock(&self.sink).grow_capacity(memory.get());
            self.after_change();
        }
    }

    /// Writes the groups that have arrived whole, and makes durable what is written and verified, for
    /// a later run. What comes from now on is dropped. Waits no longer than `patience`.
    pub fn wind_up(&self, patience: Duration) {
        self.winding_up.store(true, Ordering::Relaxed);
        let until = clock::now() + patience;
        loop {
            let left = lock(&self.queue).groups.len() + self.taken.load(Ordering::Relaxed);
            let mut sink = lock(&self.sink);
            if left == 0 {
                sink.wind_up();
                if sink.is_wound_up() {
                    return;
                }
            }
            drop(sink);
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
fn buffers(promised: u64) -> usize {
    groups(Bytes::new(promised) + SINK_SPARE)
}

#[cfg(test)]
mod tests;
