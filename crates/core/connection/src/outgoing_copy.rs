//! The side of a copy that has the files: which group is read next, and on which lane it goes.

use alloc::vec::Vec;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{
    Belief, CarriedEntries, ChainingValue, Deletions, EndedEntry, EntryId, GroupTask, NameList,
    NamedChange, PushError, Source, SourceError, SourceStats,
};
use longhaul_units::{Extent, Instant, ObjectId, RangeSet, Rate};
use longhaul_wire::{
    Bottleneck, Entry, EntryEnd, SinkMessage, SourceMessage, SourceReport, Summary,
};

use crate::diagnosis::Stage;
use crate::gate::{Gate, Lanes};
use crate::listed_names::NamesIn;
use crate::watchdog::Counts;

/// A [`Source`] over a connection. Its driver finds the entries, reads and hashes, and owns
/// the memory.
///
/// - *Entries*: [`push_entry`](Self::push_entry) while it [`wants_entries`](Self::wants_entries),
///   [`finish_entries`](Self::finish_entries).
/// - *Groups*: [`next_group`](Self::next_group) gives what to read; what was read goes to
///   [`deal`](Self::deal), and to [`group_hashed`](Self::group_hashed), before or after, or to
///   [`files_hashed`](Self::files_hashed). After each call
///   all lanes get [`poll_withdrawn`](Self::poll_withdrawn), and what comes of that goes to
///   [`handle_withdrawn`](Self::handle_withdrawn).
/// - *Messages*: [`handle_message`](Self::handle_message), [`poll_message`](Self::poll_message).
#[derive(Debug)]
pub struct OutgoingCopy {
    source: Source,
    /// Where groups go.
    pub gate: Gate,
    /// Groups that were given out to be read, and not dealt.
    reading: usize,
    drained: bool,
    /// Where the sink lists the names that it wants.
    names: Option<NamesIn>,
    /// The rate that the sink has set and that nobody has taken; none for no limit.
    rate: Option<Option<Rate>>,
}

/// Knowledge of the bytes that are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// So many.
    Exactly(u64),
    /// So many, less what the sink turns out to have.
    AtMost(u64),
    /// The scan has found so many by now.
    NotLess(u64),
}

impl OutgoingCopy {
    /// One without entries, over so many lanes, which believes so much of what the sink says to have.
    pub fn new(now: Instant, lanes: u16, belief: Belief) -> Self {
        let (source, gate) = (Source::new(belief), Gate::new(now, lanes));
        Self { source, gate, reading: 0, drained: false, names: None, rate: None }
    }

    /// See [`Source::begin_dry_run`].
    pub fn begin_dry_run(&mut self) {
        self.source.begin_dry_run();
    }

    /// See [`Source::would_change`].
    pub fn would_change(&self) -> &RangeSet {
        self.source.would_change()
    }

    /// See [`Source::keep_newer`].
    pub fn keep_newer(&mut self) {
        self.source.keep_newer();
    }

    /// See [`Source::expect_deletions`].
    pub fn expect_deletions(&mut self) {
        self.source.expect_deletions();
    }

    /// See [`Source::allow_comparisons`].
    pub fn allow_comparisons(&mut self) {
        self.source.allow_comparisons();
    }

    /// See [`Source::want_changes`].
    pub fn want_changes(&mut self) {
        self.source.want_changes();
    }

    /// See [`Source::carry`].
    pub fn carry(&mut self, earlier: CarriedEntries) {
        self.source.carry(earlier);
    }

    /// See [`Source::take_carried`].
    pub fn take_carried(&mut self) -> CarriedEntries {
        self.source.take_carried()
    }

    /// See [`Source::take_changes`].
    pub fn take_changes(&mut self) -> (Vec<NamedChange>, u64) {
        self.source.take_changes()
    }

    /// True if the sink has set a rate that [`Self::take_rate`] gives.
    pub fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// The rate that the sink has set since the last call; none for no limit.
    pub fn take_rate(&mut self) -> Option<Option<Rate>> {
        self.rate.take()
    }

    /// The sink sends a list of the names that it wants, for [`Self::take_names`].
    pub fn expect_names(&mut self) {
        self.names = Some(NamesIn::default());
    }

    /// That list, once, when all of it has come.
    pub fn take_names(&mut self) -> Option<NameList> {
        self.names.as_mut()?.take()
    }

    // Entries.

    /// True if another entry may be pushed now.
    pub fn wants_entries(&self) -> bool {
        self.source.wants_entries()
    }

    /// See [`Source::name_memory_wanted`].
    pub fn name_memory_wanted(&self) -> Option<u64> {
        self.source.name_memory_wanted()
    }

    /// See [`Source::grow_name_memory`].
    pub fn grow_name_memory(&mut self, capacity: u64) {
        self.source.grow_name_memory(capacity);
    }

    /// The next entry found.
    ///
    /// # Errors
    /// See [`Source::push_entry`].
    pub fn push_entry(&mut self, entry: Entry) -> Result<Option<EntryId>, PushError> {
        self.source.push_entry(entry)
    }

    /// All entries were found.
    pub fn finish_entries(&mut self) {
        self.source.finish_entries();
    }

    /// An entry cannot be read, or is skipped.
    pub fn entry_failed(&mut self, entry: EntryId, end: EntryEnd) {
        self.source.entry_failed(entry, end);
    }

    // Groups.

    /// The next group to read, if one may be sent, and `memory` for it. Asked again after credit,
    /// a message, room, memory, or an entry.
    pub fn next_group<B>(
        &mut self,
        now: Instant,
        lanes: &impl Lanes,
        memory: impl FnOnce() -> Option<B>,
    ) -> Option<(GroupTask, B)> {
        let (full, held) = (self.gate.is_full(lanes), self.gate.is_held());
        let buffer = if full || held { None } else { memory() };
        self.gate.set_wants_room(buffer.is_none() && !held);
        let task = buffer.as_ref().and_then(|_| self.source.next_group(self.gate.credit()));
        let listing = !self.source.stats().complete && self.source.wants_entries();
        let stage = match &buffer {
            None if held => Stage::Answer,
            None if !full => Stage::Memory,
            Some(_) if task.is_none() && self.source.has_unsent() => Stage::Credit,
            Some(_) if task.is_none() && !listing && self.reading == 0 => Stage::Answer,
            _ => Stage::Reading,
        };
        self.gate.enter(now, stage, lanes);
        let given = task.zip(buffer);
        self.reading += usize::from(given.is_some());
        self.drained = given.is_none() && !full && !held && self.reading == 0;
        given
    }

    /// A group that was read is to be dealt: the lane for it, unless the sink has it to compare, or
    /// nobody needs it any more. It is
    /// offered to that lane as a whole, before [`Self::poll_withdrawn`] is asked again.
    pub fn deal(&mut self, task: &GroupTask, lanes: &impl Lanes) -> Option<usize> {
        self.reading -= 1;
        if task.compare.is_some() {
            return None;
        }
        if !self.source.is_wanted(task.object) {
            self.source.group_withdrawn(task.object, task.group, task.len);
            return None;
        }
        Some(self.gate.next_lane(lanes))
    }

    /// An object that every lane is to send no more of.
    #[must_use]
    pub fn poll_withdrawn(&mut self) -> Option<ObjectId> {
        self.source.poll_withdrawn()
    }

    /// A lane sends nothing of a group that was withdrawn.
    pub fn handle_withdrawn(&mut self, extent: Extent) {
        let group = (extent.offset / GROUP_SIZE) as u32;
        self.source.group_withdrawn(extent.object, group, extent.len as u32);
    }

    /// Takes the hash of a group that was read.
    pub fn group_hashed(&mut self, object: ObjectId, group: u32, value: ChainingValue) {
        self.source.group_hashed(object, group, value);
    }

    /// Takes the hashes of a task that compares files.
    pub fn files_hashed(&mut self, values: Vec<(EntryId, u32, ChainingValue)>) {
        self.source.files_hashed(values);
    }

    /// True if everything that may be sent now was dealt.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    // Messages.

    /// Takes in what the sink says.
    ///
    /// # Errors
    /// It makes no sense: the peer broke the protocol.
    pub fn handle_message(&mut self, message: SinkMessage) -> Result<(), SourceError> {
        match (message, &mut self.names) {
            (SinkMessage::Names { names, is_last }, Some(here)) => {
                here.handle(&names, is_last).map_err(SourceError::Names)
            }
            (SinkMessage::Rate(rate), _) => {
                self.rate = Some(rate);
                Ok(())
            }
            (message, _) => self.source.handle(message),
        }
    }

    /// The next message for the sink.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<SourceMessage> {
        self.source.poll_message()
    }

    /// Tells the sink how sending goes.
    pub fn report(&mut self, sending: SourceReport) {
        self.source.report(sending);
    }

    // How far it is.

    /// The sink's result.
    pub fn result(&self) -> Option<&Summary> {
        self.source.result()
    }

    /// True once the sink has reported that everything is settled.
    pub fn is_done(&self) -> bool {
        self.source.is_done()
    }

    /// Counts so far.
    pub fn stats(&self) -> &SourceStats {
        self.source.stats()
    }

    /// Entries that could not be copied, the first of them: path, and why.
    pub fn failures(&self) -> &[EndedEntry] {
        self.source.failures()
    }

    /// Entries that were skipped, the first of them.
    pub fn skipped(&self) -> &[EndedEntry] {
        self.source.skipped()
    }

    /// Names that the sink was to delete.
    pub fn deletions(&self) -> &Deletions {
        self.source.deletions()
    }

    /// Bytes that are to be sent: exact once the sink has reported what it has of each object. One that
    /// prepares a few files at a time reports the last ones late: then as far as it is known.
    pub fn wanted(&self) -> Wanted {
        match (self.source.wanted(), self.source.stats()) {
            (Some(bytes), _) => Wanted::Exactly(bytes),
            (None, stats) if stats.complete => {
                Wanted::AtMost(stats.bytes.saturating_sub(stats.resumed_bytes))
            }
            (None, stats) => Wanted::NotLess(stats.bytes),
        }
    }

    /// True once all groups were given to the lanes, and these have sent them.
    pub fn is_sent(&self, lanes: &impl Lanes) -> bool {
        self.source.is_dealt() && self.reading == 0 && self.gate.backlog(lanes) == 0
    }

    /// Counts that grow while it goes on.
    pub fn counts(&self) -> Counts {
        let stats = self.source.stats();
        Counts {
            carried: 0,
            moved: stats.sent_bytes + stats.resumed_bytes,
            entries: stats.entries.into(),
            settled: stats.settled().into(),
            other: stats.repairs
                + stats.answered
                + self.names.as_ref().map_or(0, NamesIn::received),
        }
    }

    /// True if nothing is to be expected of it now, however long that takes; `bound` is what seems
    /// to hold it up.
    pub fn idles(&self, bound: Bottleneck, lanes: &impl Lanes) -> bool {
        // Between two ranges of a booking nothing may leave.
        self.gate.awaits_circuit()
            || bound == Bottleneck::Reservation && self.gate.backlog(lanes) > 0
    }
}

#[cfg(test)]
mod tests;
