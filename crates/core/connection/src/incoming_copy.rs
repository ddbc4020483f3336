//! The side of a copy that gets the files: what becomes of groups, and what lanes and source are
//! told of them.

use alloc::collections::VecDeque;
use alloc::string::String;

use longhaul_objects::{
    Action, Answer, ChainingValue, EntryId, Failure, ObjectTable, ResumeState, Sink, SinkConfig,
    SinkError, SinkStats, Verdict, WriteTask,
};
use longhaul_units::{Bytes, Duration, Instant, ObjectId};
use longhaul_wire::{Bottleneck, ReceiverBounds, SinkMessage, SourceMessage, SourceReport};

use crate::{Counts, Repair, Repairs};

/// A [`Sink`] over a connection. Whoever drives it hashes and writes, does what it says with the
/// storage, and owns the memory; [`let_in`](crate::let_in) gives that out.
///
/// - *Groups*: those that came whole go to [`handle_group`](Self::handle_group), once written to
///   [`group_written`](Self::group_written).
/// - *Storage*: [`poll_action`](Self::poll_action), answered by [`handle_answer`](Self::handle_answer).
/// - *Lanes*: after each call, [`poll_repair`](Self::poll_repair) until `None`, before anything else is
///   polled. All lanes are told, in this order.
/// - *Messages*: [`handle_message`](Self::handle_message) while it
///   [`wants_messages`](Self::wants_messages), [`poll_message`](Self::poll_message).
#[derive(Debug)]
pub struct IncomingCopy {
    sink: Sink,
    /// Groups that are to be received anew.
    repairs: Repairs,
    /// Of those that have come: what the lanes are to know.
    taken: VecDeque<Repair>,
    bounds: ReceiverBounds,
}

impl IncomingCopy {
    /// One that goes on from `resume`.
    pub fn new(config: SinkConfig, resume: ResumeState) -> Self {
        Self {
            sink: Sink::new(config, resume),
            repairs: Repairs::default(),
            taken: VecDeque::new(),
            bounds: ReceiverBounds::NONE,
        }
    }

    // Groups.

    /// A group came whole, and hashes to `value`.
    pub fn handle_group(&mut self, object: ObjectId, group: u32, value: ChainingValue) -> Verdict {
        let verdict = self.sink.group_received(object, group, value);
        if matches!(verdict, Verdict::Write(_)) {
            self.taken.extend(self.repairs.take(object, group));
        }
        verdict
    }

    /// A group is where it belongs, except for what `failed`, each for its reason.
    pub fn group_written(&mut self, task: &WriteTask, failed: &[(EntryId, String)]) {
        self.sink.group_written(task, failed);
    }

    /// What every lane is to know next of a group that was found to be wrong.
    #[must_use]
    pub fn poll_repair(&mut self) -> Option<Repair> {
        self.taken.pop_front().or_else(|| {
            let (object, group) = self.sink.poll_anew()?;
            Some(self.repairs.ask(object, group))
        })
    }

    /// Groups that were asked for again and have not come.
    pub fn repairs(&self) -> usize {
        self.repairs.len()
    }

    // Storage.

    /// What is to be done with the storage.
    #[must_use]
    pub fn poll_action(&mut self, now: Instant) -> Option<Action> {
        self.sink.poll_action(now)
    }

    /// It was done.
    pub fn handle_answer(&mut self, answer: Answer) {
        self.sink.handle_answer(answer);
    }

    /// When [`Self::poll_action`] may have something without anything else happening.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.sink.next_timeout()
    }

    /// The transfer ends early: what is written and verified is to be made durable.
    pub fn wind_up(&mut self) {
        self.sink.wind_up();
    }

    /// Whether that was done.
    pub fn is_wound_up(&self) -> bool {
        self.sink.is_wound_up()
    }

    // Messages.

    /// Takes in what the source says.
    ///
    /// # Errors
    /// It makes no sense: the peer broke the protocol.
    pub fn handle_message(&mut self, message: SourceMessage) -> Result<(), SinkError> {
        self.sink.handle(message)
    }

    /// Whether more of what the source says is wanted; changes to `true` by
    /// [`Self::poll_message`] only.
    pub fn wants_messages(&self) -> bool {
        self.sink.wants_messages()
    }

    /// The next message for the source.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<SinkMessage> {
        self.sink.poll_message()
    }

    /// This host has spent so much: what the source is told at the end.
    pub fn set_cpu_time(&mut self, cpu_time: Duration) {
        self.sink.set_cpu_time(cpu_time);
    }

    /// What the source said last of its sending.
    pub fn source_report(&self) -> Option<&SourceReport> {
        self.sink.source_report()
    }

    // Promises.

    /// Objects that the source may send.
    pub fn objects(&self) -> &ObjectTable {
        self.sink.objects()
    }

    /// Object bytes that it takes in all. Never shrinks.
    pub fn credit(&self) -> u64 {
        self.sink.credit()
    }

    /// It may use so much memory for groups from now on; less than before changes nothing.
    pub fn grow_memory(&mut self, memory: Bytes) {
        self.sink.grow_capacity(memory.get());
    }

    /// What holds this side up, as its threads show.
    pub fn set_bounds(&mut self, bounds: ReceiverBounds) {
        self.bounds = bounds;
    }

    /// What holds this side up, for the source.
    pub fn bounds(&self) -> ReceiverBounds {
        match self.sink.is_rechecking() {
            true => ReceiverBounds { storage: Bottleneck::ReceiverDisk, ..self.bounds },
            false => self.bounds,
        }
    }

    // How far it is.

    /// Whether everything is settled, and the source was told.
    pub fn is_done(&self) -> bool {
        self.sink.is_done()
    }

    /// Counts so far.
    pub fn stats(&self) -> &SinkStats {
        self.sink.stats()
    }

    /// Entries that could not be copied, the first of them.
    pub fn failures(&self) -> &[Failure] {
        self.sink.failures()
    }

    /// What grows while it goes on. Whatever else takes long and moves nothing here is to be counted
    /// as `other`.
    pub fn counts(&self) -> Counts {
        let stats = self.sink.stats();
        Counts {
            carried: 0,
            moved: stats.received_bytes + stats.resumed_bytes,
            entries: stats.entries.into(),
            settled: u64::from(stats.confirmed) + u64::from(stats.failed),
            other: stats.repairs + stats.checkpoints + stats.rechecked,
        }
    }
}
