//! The side of a copy that gets the files: it takes groups, and notifies lanes and source of them.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{
    Action, Announced, Answer, CarriedEntries, ChainingValue, Deletions, EndedEntry, EntryId,
    Intake, NameList, NamedChange, ResumeState, Sink, SinkConfig, SinkError, SinkStats, Verdict,
    WriteTask,
};
use longhaul_units::{Bytes, Instant, ObjectId, Rate};
use longhaul_wire::{
    Bottleneck, EntryEnd, HostAccount, ReceiverBounds, SinkMessage, SourceMessage, SourceReport,
};

use crate::half_messages::WholeGroup;
use crate::half_messages::{Over, Repair, Repairs};
use crate::incoming::{Begun, GroupPart, Unplaceable};
use crate::listed_names::NamesOut;
use crate::memory::Stored;
use crate::watchdog::Counts;

/// A [`Sink`] over a connection. Its driver hashes and writes, and does the actions on the storage.
/// Groups are in buffers of type `I`.
///
/// - *Groups*: [`begin`](Self::begin) gives memory out; those that came whole go to
///   [`handle_arrived`](Self::handle_arrived). What [`poll_arrived`](Self::poll_arrived) gives is hashed
///   for [`handle_hashed`](Self::handle_hashed), and once written goes to
///   [`group_written`](Self::group_written).
/// - *Storage*: [`poll_action`](Self::poll_action), answered by [`handle_answer`](Self::handle_answer).
/// - *Lanes*: after each call, [`poll_repair`](Self::poll_repair) until `None`, before anything else is
///   polled. All lanes get each, in this order.
/// - *Messages*: [`handle_message`](Self::handle_message) while it
///   [`wants_messages`](Self::wants_messages), [`poll_message`](Self::poll_message).
#[derive(Debug)]
pub struct IncomingCopy<I> {
    sink: Sink,
    /// Bytes that the source may send, and has begun to.
    intake: Intake,
    /// Whole groups that nobody looked at.
    arrived: VecDeque<WholeGroup<I>>,
    /// Groups that were given out to be hashed and written, and are not.
    in_hand: usize,
    /// An action is being done before which no other is begun.
    in_order: bool,
    /// Groups that are to be received again.
    repairs: Repairs,
    /// Notices for the lanes about those that have come.
    taken: VecDeque<Repair>,
    bounds: ReceiverBounds,
    /// It ends early: nothing more is taken.
    is_winding_up: bool,
    /// Where it wants some names only.
    names: Option<NamesOut>,
    /// The rate that the source was sent last, and the one that it is to have.
    rates: Option<[Option<Rate>; 2]>,
}

/// A group that came whole, to be hashed.
#[derive(Debug, PartialEq, Eq)]
pub struct ArrivedGroup<I> {
    /// The group.
    pub whole: WholeGroup<I>,
    /// True if it is the only one of its object.
    pub only: bool,
}

impl<I> IncomingCopy<I> {
    /// One that goes on from `resume`.
    pub fn new(config: SinkConfig, resume: ResumeState) -> Self {
        Self {
            sink: Sink::new(config, resume),
            intake: Intake::default(),
            arrived: VecDeque::new(),
            in_hand: 0,
            in_order: false,
            repairs: Repairs::default(),
            taken: VecDeque::new(),
            bounds: ReceiverBounds::NONE,
            is_winding_up: false,
            names: None,
            rates: None,
        }
    }

    // Groups.

    /// `memory` for a group of which the first authentic bytes have come, if the source may send it and
    /// its object is not over.
    ///
    /// # Errors
    /// See [`Unplaceable`]; nothing was taken then.
    pub fn begin(
        &mut self,
        part: &GroupPart,
        memory: impl FnOnce() -> Option<I>,
    ) -> Result<Begun<I>, Unplaceable> {
        self.intake.set_objects(self.sink.objects());
        let GroupPart { object, group, .. } = *part;
        let len = part.group_len(self.intake.objects())?;
        if !self.intake.allows(object, group, self.sink.credit()) {
            return Err(Unplaceable::BeyondCredit);
        }
        if self.sink.is_over(object) {
            if self.intake.begin(object, group) {
                self.sink.group_dropped(object, group);
            }
            return Ok(Begun::Unneeded);
        }
        let buffer = memory().ok_or(Unplaceable::NoMemory)?;
        self.intake.begin(object, group);
        Ok(Begun::Memory { buffer, len })
    }

    /// A group came whole. Once it is to be wound up nothing is taken any more.
    pub fn handle_arrived(&mut self, whole: WholeGroup<I>) {
        if !self.is_winding_up {
            self.arrived.push_back(whole);
        }
    }

    /// The next group to be hashed.
    #[must_use]
    pub fn poll_arrived(&mut self) -> Option<ArrivedGroup<I>> {
        let whole = self.arrived.pop_front()?;
        self.in_hand += 1;
        let only = self.intake.objects().place(whole.object, 0, 1).is_ok_and(|place| place.only);
        Some(ArrivedGroup { whole, only })
    }

    /// A group that was given out hashes to `value`. Once it is written,
    /// [`Self::group_written`] is called.
    pub fn handle_hashed(&mut self, object: ObjectId, group: u32, value: ChainingValue) -> Verdict {
        let verdict = self.sink.group_received(object, group, value);
        match verdict {
            Verdict::Write(_) => self.taken.extend(self.repairs.take(object, group)),
            _ => self.in_hand -= 1,
        }
        verdict
    }

    /// A group is where it belongs, except for what `failed`, each for its reason.
    pub fn group_written(&mut self, task: &WriteTask, failed: &[(EntryId, EntryEnd)]) {
        self.in_hand -= 1;
        self.sink.group_written(task, failed);
    }

    /// A lane gave up what it had of a group; its memory is free after this call.
    pub fn handle_given_up(&mut self, object: ObjectId, group: u32) {
        self.sink.group_dropped(object, group);
    }

    /// The next notice for every lane.
    #[must_use]
    pub fn poll_repair(&mut self) -> Option<Repair> {
        self.taken.pop_front().or_else(|| {
            if let Some((object, group)) = self.sink.poll_unverified() {
                return Some(self.repairs.ask(object, group));
            }
            let object = self.sink.poll_unneeded()?;
            self.repairs.forget(object);
            Some(Repair::Unneeded(object))
        })
    }

    /// Groups that were asked for again and have not come.
    pub fn repairs(&self) -> usize {
        self.repairs.len()
    }

    // Storage.

    /// The next action on the storage. Several may be done at a time; behind one that
    /// prepares ([`Action::is_in_order`]) none is given out before it was answered.
    #[must_use]
    pub fn poll_action(&mut self, now: Instant) -> Option<Action> {
        if self.in_order {
            return None;
        }
        let action = self.sink.poll_action(now)?;
        self.in_order = action.is_in_order();
        Some(action)
    }

    /// It was done.
    pub fn handle_answer(&mut self, answer: Answer) {
        self.in_order &= !answer.is_in_order();
        self.sink.handle_answer(answer);
    }

    /// When [`Self::poll_action`] may have something without anything else happening.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        // No action is given out before that one is answered.
        self.sink.next_timeout().filter(|_| !self.in_order)
    }

    /// The transfer ends early: nothing more is taken. What has come whole is written, and what is
    /// written and verified is then made durable. To be called again until it returns true: then that is
    /// done.
    pub fn wind_up(&mut self) -> bool {
        self.is_winding_up = true;
        if !self.arrived.is_empty() || self.in_hand > 0 {
            return false;
        }
        self.sink.wind_up();
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

    /// True if more of the source's messages are wanted; only [`Self::poll_message`] changes it to
    /// `true`.
    pub fn wants_messages(&self) -> bool {
        self.sink.wants_messages()
    }

    /// The source is sent a list of the names that are wanted.
    pub fn ask_names(&mut self, names: Arc<NameList>) {
        self.names = Some(NamesOut::new(names));
    }

    /// The source is to send no more than `rate`; it began with `first`. Returns whether that is news to it.
    pub fn steer(&mut self, first: Option<Rate>, rate: Option<Rate>) -> bool {
        let rates = self.rates.get_or_insert([first; 2]);
        rates[1] = rate;
        rates[0] != rates[1]
    }

    /// The next message for the source.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<SinkMessage> {
        if let Some(names) = self.names.as_mut().and_then(NamesOut::poll) {
            return Some(names);
        }
        if let Some([sent, wanted]) = &mut self.rates
            && sent != wanted
            && !self.sink.is_done()
        {
            *sent = *wanted;
            return Some(SinkMessage::Rate(*wanted));
        }
        self.sink.poll_message()
    }

    /// True if the result is the source's next message: [`Self::set_host`] comes before that.
    pub fn is_result_due(&self) -> bool {
        self.sink.is_result_due()
    }

    /// Sets this host's account, which goes to the source with the result.
    pub fn set_host(&mut self, host: HostAccount) {
        self.sink.set_host(host);
    }

    /// Notes for the source's user though nothing failed, as [`longhaul_wire::Summary::notes`] and
    /// [`longhaul_wire::Summary::not_kept`].
    pub fn set_notes(&mut self, notes: u64, not_kept: u64) {
        self.sink.set_notes(notes, not_kept);
    }

    /// The source's last report of its sending.
    pub fn source_report(&self) -> Option<&SourceReport> {
        self.sink.source_report()
    }

    // Promises.

    /// Object bytes that it takes in all. Never shrinks.
    pub fn credit(&self) -> u64 {
        self.sink.credit()
    }

    /// Bytes of groups that the source has begun to send, each once: once none is in flight, credit is
    /// above [`Self::capacity`] by these.
    pub fn begun(&self) -> u64 {
        self.intake.bytes()
    }

    /// Bytes of memory that it promises.
    pub fn capacity(&self) -> u64 {
        self.sink.capacity()
    }

    /// Groups that wait for its storage.
    pub fn stored(&self) -> Stored {
        // However short a group, it takes a whole buffer.
        let waiting = (self.arrived.len() + self.in_hand) as u64 * GROUP_SIZE;
        Stored { waiting, memory: self.capacity(), written: self.sink.stats().received_bytes }
    }

    /// See [`Sink::name_memory_wanted`].
    pub fn name_memory_wanted(&self) -> Option<u64> {
        self.sink.name_memory_wanted()
    }

    /// See [`Sink::grow_name_memory`].
    pub fn grow_name_memory(&mut self, capacity: u64) {
        self.sink.grow_name_memory(capacity);
    }

    /// It may use so much memory for groups from now on; less than before changes nothing.
    pub fn grow_memory(&mut self, memory: Bytes) {
        self.sink.grow_capacity(memory.get());
    }

    /// Sets this side's bottlenecks, as its threads show them.
    pub fn set_bounds(&mut self, bounds: ReceiverBounds) {
        self.bounds = bounds;
    }

    /// This side's bottlenecks, for the source.
    pub fn bounds(&self) -> ReceiverBounds {
        match self.sink.is_rechecking() {
            true => ReceiverBounds { storage: Bottleneck::ReceiverDisk, ..self.bounds },
            false => self.bounds,
        }
    }

    // How far it is.

    /// Groups that are of no use any more when they come.
    pub fn over(&self) -> Over {
        Over { objects: self.sink.over_below(), groups: 0 }
    }

    /// True if everything is settled, and the source has the result.
    pub fn is_done(&self) -> bool {
        self.sink.is_done()
    }

    /// Counts so far.
    pub fn stats(&self) -> &SinkStats {
        self.sink.stats()
    }

    /// See [`Sink::bytes_there`].
    pub fn bytes_there(&self) -> u64 {
        self.sink.bytes_there()
    }

    /// Paths that were asked for and that the source does not announce.
    pub fn unannounced(&self) -> Vec<String> {
        self.sink.unannounced()
    }

    /// See [`Sink::unannounced_of_list`].
    pub fn unannounced_of_list(&self) -> impl Iterator<Item = &[u8]> {
        self.sink.unannounced_of_list()
    }

    /// See [`Sink::announced`].
    pub fn announced(&self, path: &[u8]) -> Option<Announced> {
        self.sink.announced(path)
    }

    /// Entries that could not be copied, the first of them.
    pub fn failures(&self) -> &[EndedEntry] {
        self.sink.failures()
    }

    /// Entries that the source has skipped, the first of them.
    pub fn skipped(&self) -> &[EndedEntry] {
        self.sink.skipped()
    }

    /// See [`Sink::want_changes`].
    pub fn want_changes(&mut self) {
        self.sink.want_changes();
    }

    /// See [`Sink::carry`].
    pub fn carry(&mut self, earlier: CarriedEntries) {
        self.sink.carry(earlier);
    }

    /// See [`Sink::take_carried`].
    pub fn take_carried(&mut self) -> CarriedEntries {
        self.sink.take_carried()
    }

    /// See [`Sink::take_changes`].
    pub fn take_changes(&mut self) -> (Vec<NamedChange>, u64) {
        self.sink.take_changes()
    }

    /// Names that the sink was to delete.
    pub fn deletions(&self) -> &Deletions {
        self.sink.deletions()
    }

    /// Counts that grow while it goes on. Other work that takes long and moves nothing is to be counted
    /// as `other`.
    pub fn counts(&self) -> Counts {
        let stats = self.sink.stats();
        Counts {
            carried: 0,
            moved: stats.received_bytes + stats.resumed_bytes,
            entries: stats.entries.into(),
            settled: stats.settled().into(),
            other: stats.repairs
                + stats.checkpoints
                + stats.rechecked
                + stats.answered
                + self.names.as_ref().map_or(0, NamesOut::sent),
        }
    }
}

#[cfg(test)]
mod tests;
