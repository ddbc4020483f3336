mod answers;
mod compare;
mod directories;
mod later_names;
mod manifest;
mod offers;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::{ObjectId, RangeSet};
use longhaul_wire::{Entry, EntryCode, EntryEnd, SourceMessage, SourceReport, Summary};

use self::compare::Comparisons;
use self::directories::Directories;
use self::later_names::LaterNames;
use crate::carried::CarriedEntries;
use crate::changes::{Changes, NamedChange};
use crate::ended::{Deletions, EndedEntries, EndedEntry, Stayed};
use crate::entry::{EntryError, EntryId};
use crate::hash::ChainingValue;
use crate::layout::Layout;
use crate::limits::{GROUP_SIZE, HASHES_MAX};
use crate::name_list::NameListError;
use crate::tags::{Belief, Tag};
use crate::window::Window;

/// The side that holds the files: makes objects of them, says what is to be read and sent, and
/// takes in what the sink answers (docs/protocol.md section 7).
///
/// The driver
/// * calls [`Source::push_entry`] for each entry of its scan, parents first, pausing while
///   [`Source::wants_entries`] is false, then [`Source::finish_entries`];
/// * sends what [`Source::poll_message`] gives while the stream has room, and hands what arrives
///   to [`Source::handle`]; any call may make messages;
/// * reads, hashes and sends each group that [`Source::next_group`] gives, repairs included, unless it is
///   not [wanted](Source::is_wanted) any more, or [withdrawn](Source::poll_withdrawn), and calls
///   [`Source::group_hashed`]; where a file cannot be read, or is found changed, it calls
///   [`Source::entry_failed`] **before** `group_hashed` of the last group read from it, and sends
///   zeros for the bytes it does not have. So an entry that failed is never published: the sink
///   can verify the group only after it has read of the failure.
///
/// Nothing here depends on time, and memory depends on the entries that are not settled.
#[derive(Debug)]
pub struct Source {
    entries: Window<EntrySlot>,
    /// Of the entries that are forgotten there: directories that are not settled, and what failed here.
    directories: Directories,
    failed_before: BTreeMap<EntryId, (u64, EntryCode)>,
    objects: Window<Object>,
    /// Object that collects small files.
    bundle: Option<Bundle>,
    later: LaterNames,
    finished: bool,
    /// Entries and objects below these numbers were announced.
    announced_entries: u32,
    announced_objects: u32,
    end_announced: bool,
    /// Memory of files and links announced and not settled, and of entries not announced.
    unsettled: u64,
    unannounced: u64,
    /// Entries that the sink has unchanged, in objects that it has neither offered nor accepted.
    unchanged: RangeSet,
    /// Objects below may be sent.
    accepted: u32,
    /// The object that the next first-sent group belongs to.
    dealing: u32,
    belief: Belief,
    /// The sink says what a copy would change.
    dry_run: bool,
    /// Entries that a copy would change, in a dry run.
    would_change: RangeSet,
    /// The sink deletes, and says what.
    deletes: bool,
    /// Groups of objects that are not accepted: those that the sink is to know as believed, and those
    /// that are to be read and compared.
    believed: BTreeMap<ObjectId, RangeSet>,
    unread: BTreeMap<ObjectId, RangeSet>,
    /// Files whose hashes the sink wants.
    comparisons: Comparisons,
    repairs: VecDeque<(ObjectId, u32)>,
    repair_counts: BTreeMap<(ObjectId, u32), u8>,
    /// Objects of which the lanes are to send no more.
    withdrawn: VecDeque<ObjectId>,
    /// Groups of such objects that were sent, and asked for again.
    sent_before: BTreeSet<(ObjectId, u32)>,
    hashes: Vec<(ObjectId, u32, ChainingValue, Option<Tag>)>,
    /// Those whose tags were sent.
    next_hashes: Option<SourceMessage>,
    /// Failures not sent to the sink yet.
    failed: BTreeMap<EntryId, EntryEnd>,
    ended: EndedEntries,
    deletions: Deletions,
    changes: Changes,
    stats: SourceStats,
    /// Not sent to the sink yet; and whether one was the last thing that was.
    report: Option<SourceReport>,
    has_reported: bool,
    result: Option<Summary>,
}

/// A group to read, hash and send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTask {
    /// The object.
    pub object: ObjectId,
    /// The group.
    pub group: u32,
    /// Its offset within the object.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
    /// True if the object has no other group (for [`crate::hash::group_chaining_value`]).
    pub only: bool,
    /// True if it was sent before and did not verify.
    pub repair: bool,
    /// It is hashed and not sent: the sink says that it has it.
    pub compare: Option<Comparison>,
    /// Where its bytes come from, in order. Bytes of no piece are sent as zeros: their file has
    /// failed or was refused.
    pub pieces: Vec<ReadPiece>,
}

/// Kind of a task whose bytes are hashed and not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// A group of an object, for [`Source::group_hashed`].
    Group,
    /// Groups of files, one in each piece, for [`Source::files_hashed`]. Object and group mean nothing.
    Files,
}

/// Bytes of a group that come from one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPiece {
    /// Number of the entry.
    pub id: EntryId,
    /// The entry.
    pub entry: Arc<Entry>,
    /// Offset within the file.
    pub file_offset: u64,
    /// Offset within the group.
    pub group_offset: u32,
    /// Bytes.
    pub len: u32,
}

/// Counters of a source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Entries found.
    pub entries: u32,
    /// Objects made of them.
    pub objects: u32,
    /// Bytes found.
    pub bytes: u64,
    /// True if the scan is finished, so that these three are final.
    pub complete: bool,
    /// Bytes given out by [`Source::next_group`] for the first time. What counts against credit is these
    /// less the withdrawn ones.
    pub sent_bytes: u64,
    /// Bytes of these of which nothing was sent, since their files failed.
    pub withdrawn_bytes: u64,
    /// Bytes given out, or that the sink has, of files that are not settled, or that the sink could not give their names
    /// and keeps for a later run.
    pub held_bytes: u64,
    /// Bytes that the sink has already.
    pub resumed_bytes: u64,
    /// Groups that the sink wants again.
    pub repairs: u64,
    /// Groups that the sink has offered and that were believed, or read and hashed for it.
    pub answered: u64,
    /// Entries confirmed.
    pub confirmed: u32,
    /// Bytes of the confirmed files.
    pub confirmed_bytes: u64,
    /// Entries that failed, here or at the sink.
    pub failed: u32,
    /// Entries that were skipped: they are not to be copied.
    pub skipped: u32,
    /// Entries that stay as the sink had them: unchanged, or newer ones.
    pub unchanged: u32,
    /// Their bytes.
    pub unchanged_bytes: u64,
    /// Kinds of them.
    pub stayed: Stayed,
    /// In a dry run: those of them that a copy would change, and their bytes.
    pub would_change: (u32, u64),
    /// Those of them that earlier connections of the command have brought, and their bytes.
    pub carried: (u32, u64),
}

impl SourceStats {
    /// Entries of which nothing more is to come.
    pub fn settled(&self) -> u32 {
        self.confirmed + self.failed + self.skipped + self.unchanged
    }

    /// Entries that ended with `code`, or likewise.
    fn ended(&mut self, code: EntryCode) -> &mut u32 {
        match code {
            EntryCode::Skipped => &mut self.skipped,
            code if code.stays() => &mut self.unchanged,
            _ => &mut self.failed,
        }
    }
}

/// A message of the sink is not true or not allowed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// ACCEPT goes back, or names objects that were not announced.
    #[error("ACCEPT of {objects} objects is not possible")]
    Accept {
        /// Values of ACCEPT.
        objects: u64,
    },
    /// OFFER of an object that was not announced or is accepted, or of groups that are not, or were
    /// offered before, or too many ranges; or nothing of this copy is compared.
    #[error("OFFER of {object:?} is not possible")]
    Offer {
        /// The object.
        object: ObjectId,
    },
    /// HAVE names groups that are not, or in no ascending order, or too many ranges, or were not offered
    /// and answered.
    #[error("HAVE of {object:?} is not possible")]
    Have {
        /// The object.
        object: ObjectId,
    },
    /// Names were deleted, and nobody had asked for that.
    #[error("it says that it has deleted something, which it was not asked for")]
    Deleted,
    /// COMPARE of what is no file, was not announced, has ended or is accepted, of groups that are not or were
    /// asked for before, or of too many; or the request lets nothing be compared.
    #[error("COMPARE of entry {entry} is not possible")]
    Compare {
        /// The entry.
        entry: u64,
    },
    /// RATE for a source that is the user's own.
    #[error("RATE is not possible: this end's user sets its rate")]
    Rate,
    /// NAMES that the request does not announce, that are in no order, or too many.
    #[error("NAMES is not possible: {0}")]
    Names(NameListError),
    /// REPAIR of a group that was not sent, or too often.
    #[error("REPAIR of group {group} of {object:?} is not possible")]
    Repair {
        /// The object.
        object: ObjectId,
        /// The group.
        group: u64,
    },
    /// CONFIRM of an entry that was not sent whole, or is settled already.
    #[error("CONFIRM of entry {entry} is not possible")]
    Confirm {
        /// The entry.
        entry: u64,
    },
    /// ELSEWHERE of an entry that is no first name of a file, or has no others that were named; that was not
    /// announced, has ended, or is in an object that is accepted.
    #[error("ELSEWHERE of entry {entry} is not possible")]
    Elsewhere {
        /// The entry.
        entry: u64,
    },
    /// ENTRY_REFUSED for an entry that was not announced or is settled already.
    #[error("refusal of entry {entry} is not possible")]
    Refuse {
        /// The entry.
        entry: u64,
    },
    /// RESULT before everything is settled, or with other counts.
    #[error("RESULT is not possible")]
    Result,
    /// A message after RESULT.
    #[error("a message after RESULT")]
    AfterResult,
}

/// Why an entry cannot be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The entry itself.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// More than [`crate::limits::ENTRIES_MAX`], or more bytes than 62 bits can count.
    #[error("too many entries")]
    TooMany,
    /// A directory for whose name there is no memory: nothing in it may be pushed.
    #[error(
        "the sending side has no memory left for another directory (--memory); copy it in parts"
    )]
    NoMemory,
    /// After [`Source::finish_entries`].
    #[error("the manifest is finished")]
    Finished,
}

#[derive(Debug)]
struct EntrySlot {
    /// `None` when settled, and for directories that were announced.
    entry: Option<Arc<Entry>>,
    /// Number of its object, [`NO_OBJECT`] without one.
    object: u32,
    /// Of its contents; 0 where the sink has them elsewhere.
    size: u64,
    /// The sink has asked for hashes of the groups below.
    compared: u64,
    state: EntryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    Open,
    /// Failed here; the sink may have confirmed it before it knew.
    Failed(EntryCode),
    Confirmed,
    Refused(EntryCode),
}

#[derive(Debug)]
struct Object {
    first: EntryId,
    entries: u32,
    layout: Layout,
    /// Groups below were dealt, where the sink did not have them.
    next_group: u32,
    have: RangeSet,
    /// Groups that the sink has offered, and those that it knows the source's word of.
    offered: RangeSet,
    answered: RangeSet,
    /// Files that are neither failed nor settled; none: nothing more is sent.
    live: u32,
}

#[derive(Debug)]
struct Bundle {
    first: EntryId,
    last: EntryId,
    layout: Layout,
    /// Memory of the entries since the first that are not settled without it, perhaps.
    cost: u64,
}

impl Object {
    /// True if every group with bytes of this file was sent or is at the sink.
    fn is_dealt(&self, file: EntryId) -> bool {
        let Some(index) = self.layout.index_of(file) else {
            return false;
        };
        let groups = self.layout.groups_of(index);
        let left = u64::from(groups.start.max(self.next_group))..u64::from(groups.end);
        self.have.contains_range(&left)
    }

    /// Bytes of this file that were given out, or that the sink has.
    fn held(&self, file: EntryId) -> u64 {
        let is_held = |group| group < self.next_group || self.have.contains(u64::from(group));
        self.layout.bytes_of(file, is_held)
    }
}

impl Source {
    /// A source without entries.
    pub fn new(belief: Belief) -> Self {
        Self {
            entries: Window::new(),
            directories: Directories::new(),
            failed_before: BTreeMap::new(),
            objects: Window::new(),
            bundle: None,
            later: LaterNames::default(),
            finished: false,
            announced_entries: 0,
            announced_objects: 0,
            end_announced: false,
            unsettled: 0,
            unannounced: 0,
            unchanged: RangeSet::new(),
            accepted: 0,
            dealing: 0,
            belief,
            dry_run: false,
            would_change: RangeSet::new(),
            deletes: false,
            believed: BTreeMap::new(),
            unread: BTreeMap::new(),
            comparisons: Comparisons::default(),
            repairs: VecDeque::new(),
            repair_counts: BTreeMap::new(),
            withdrawn: VecDeque::new(),
            sent_before: BTreeSet::new(),
            hashes: Vec::new(),
            next_hashes: None,
            failed: BTreeMap::new(),
            ended: EndedEntries::default(),
            deletions: Deletions::default(),
            changes: Changes::default(),
            stats: SourceStats::default(),
            report: None,
            has_reported: false,
            result: None,
        }
    }

    /// Nothing is copied: the sink says what a copy would change. Without, it may not say so.
    pub fn begin_dry_run(&mut self) {
        self.dry_run = true;
    }

    /// In a dry run: numbers of the entries that the sink would change; where it keeps the first name of a file, which
    /// is newer, and changes another, of both.
    pub fn would_change(&self) -> &RangeSet {
        &self.would_change
    }

    /// The sink was asked to delete what is not announced. Without, it may not say that it has.
    pub fn expect_deletions(&mut self) {
        self.deletes = true;
    }

    /// The sink keeps newer files: which name of one is the first depends on its word about those before.
    pub fn keep_newer(&mut self) {
        self.later.await_word();
    }

    /// The next message for stream 0. Polled only while the stream has room, so that what is
    /// waiting stays here, where it is bounded.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<SourceMessage> {
        // Nothing comes between tags and their hashes but failures. Those come before hashes: see the
        // contract above.
        if let Some(first) = self.failed.first_entry()
            && first.key().0 < self.announced_entries
        {
            let (entry, end) = first.remove_entry();
            self.settle(entry, EntryState::Failed(end.code));
            self.push_decided();
            self.has_reported = false;
            return Some(SourceMessage::EntryFailed { entry: entry.as_wire(), end });
        }
        // Where messages take longer than the time between two reports, these would leave no room for
        // what the copy needs: it has every second place.
        if self.has_reported
            && let Some(message) = self.poll_hashes().or_else(|| self.poll_manifest())
        {
            self.has_reported = false;
            return Some(message);
        }
        if let Some(report) = self.report.take() {
            self.has_reported = true;
            return Some(SourceMessage::Report(report.into()));
        }
        self.poll_hashes().or_else(|| self.poll_manifest())
    }

    /// The next group to read and send: repairs first, then in the order of the manifest, as far
    /// as the sink accepted objects and `credit` (absolute, docs/protocol.md section 5.4) allows.
    ///
    /// `None` until a message or credit arrives.
    #[must_use]
    pub fn next_group(&mut self, credit: u64) -> Option<GroupTask> {
        while let Some((id, group)) = self.repairs.pop_front() {
            if self.objects.get(id.0).is_some_and(|object| object.live > 0) {
                return self.task(id, group, true);
            }
        }
        if let Some(task) = self.next_compared().or_else(|| self.next_asked(true)) {
            return Some(task);
        }
        self.next_sent(credit).or_else(|| self.next_asked(false))
    }

    /// The next group that is sent for the first time.
    fn next_sent(&mut self, credit: u64) -> Option<GroupTask> {
        while self.dealing < self.accepted {
            let number = self.dealing;
            let Some(object) = self.objects.get_mut(number).filter(|object| object.live > 0) else {
                self.dealing += 1;
                continue;
            };
            let groups = object.layout.groups();
            let after_have = object
                .have
                .iter_from(u64::from(object.next_group))
                .next()
                .filter(|range| range.start <= u64::from(object.next_group))
                .map_or(object.next_group, |range| range.end as u32);
            object.next_group = after_have;
            if after_have == groups {
                self.dealing += 1;
                continue;
            }
            let len = object.layout.group_len(after_have);
            let counted = self.stats.sent_bytes - self.stats.withdrawn_bytes;
            if counted + u64::from(len) > credit {
                return None;
            }
            object.next_group += 1;
            self.stats.sent_bytes += u64::from(len);
            self.hold(ObjectId(number), after_have);
            let task = self.task(ObjectId(number), after_have, false)?;
            for piece in &task.pieces {
                self.changes.carried.begin(piece.entry.path.as_bytes());
            }
            return Some(task);
        }
        None
    }

    /// The group was given out, or the sink has it.
    fn hold(&mut self, object: ObjectId, group: u32) {
        let parts = self.objects.get(object.0).into_iter().flat_map(|it| it.layout.parts(group));
        let is_open = |entry: EntryId| {
            self.entries.get(entry.0).is_some_and(|slot| slot.state == EntryState::Open)
        };
        let open = parts.filter(|part| is_open(part.entry));
        self.stats.held_bytes += open.map(|part| u64::from(part.len)).sum::<u64>();
    }

    /// True if the rest of the object is still needed. Once all of its files have failed, were refused or
    /// are confirmed it is not: a group that was read meanwhile is not to be sent, but passed to
    /// [`Source::group_withdrawn`].
    pub fn is_wanted(&self, object: ObjectId) -> bool {
        self.objects.get(object.0).is_some_and(|object| object.live > 0)
    }

    /// An object that the lanes are to send no more of: all of its files have failed, or were refused.
    #[must_use]
    pub fn poll_withdrawn(&mut self) -> Option<ObjectId> {
        self.withdrawn.pop_front()
    }

    /// A group that was given out was withdrawn, and nothing of it was sent: unless it was a repair, it
    /// does not count against credit.
    pub fn group_withdrawn(&mut self, object: ObjectId, group: u32, len: u32) {
        if !self.sent_before.contains(&(object, group)) {
            self.stats.withdrawn_bytes += u64::from(len);
        }
    }

    /// True if accepted objects have groups that were not given out. Where [`Source::next_group`]
    /// gives none all the same, credit is missing.
    pub fn has_unsent(&self) -> bool {
        self.dealing < self.accepted
    }

    /// Bytes that are still to be given out for the first time: known once all entries were found
    /// and the sink has reported of every object what it has.
    pub fn wanted(&self) -> Option<u64> {
        let known = self.stats.complete && self.accepted == self.stats.objects;
        let stats = &self.stats;
        let settled = stats.sent_bytes + stats.resumed_bytes + stats.unchanged_bytes;
        known.then(|| self.stats.bytes.saturating_sub(settled))
    }

    /// True if every group was given out; a repair may still be asked for.
    pub fn is_dealt(&self) -> bool {
        self.stats.complete && self.dealing == self.stats.objects && self.repairs.is_empty()
    }

    /// The group was read and has this chaining value
    /// ([`crate::hash::group_chaining_value`], zeros where nothing could be read).
    pub fn group_hashed(&mut self, object: ObjectId, group: u32, value: ChainingValue) {
        let tag = match &self.belief {
            Belief::Tags(key) => self.contents(object, group).map(|of| key.tag(&of, &value)),
            _ => None,
        };
        self.hashes.push((object, group, value, tag));
        if object.0 >= self.accepted
            && let Some(object) = self.objects.get_mut(object.0)
        {
            object.answered.insert_one(u64::from(group));
            self.stats.answered += 1;
        }
    }

    /// The entry cannot be read (any more), was found changed while it was read, or is skipped.
    pub fn entry_failed(&mut self, id: EntryId, end: EntryEnd) {
        let Some(slot) = self.entries.get_mut(id.0) else {
            return;
        };
        if slot.state != EntryState::Open || self.failed.contains_key(&id) {
            return;
        }
        let end = EntryEnd::new(end.code.of_source(), &end.reason);
        if let Some(entry) = &slot.entry {
            self.ended.note(id, &entry.path, &end);
        }
        self.failed.insert(id, end);
    }

    /// Tells the sink how sending goes (REPORT); one that was not sent yet is replaced. The driver
    /// does so now and then, and when it has the [`Source::result`].
    pub fn report(&mut self, report: SourceReport) {
        self.report = Some(report);
    }

    /// The entry, while it is not settled.
    pub fn entry(&self, id: EntryId) -> Option<&Arc<Entry>> {
        self.entries.get(id.0)?.entry.as_ref()
    }

    /// True if the sink has reported the end. Stream 0 can be closed.
    pub fn is_done(&self) -> bool {
        self.result.is_some()
    }

    /// Summary that the sink reported at the end.
    pub fn result(&self) -> Option<&Summary> {
        self.result.as_ref()
    }

    /// Counts so far.
    pub fn stats(&self) -> &SourceStats {
        &self.stats
    }

    /// Entries that failed, here or at the sink: the first [`crate::limits::FAILURES_MAX`] of them.
    pub fn failures(&self) -> &[EndedEntry] {
        &self.ended.failed
    }

    /// See [`crate::Sink::want_changes`].
    pub fn want_changes(&mut self) {
        self.changes.want();
    }

    /// Counts over connections: behind those that `earlier` is of.
    pub fn carry(&mut self, earlier: CarriedEntries) {
        self.changes.carried = earlier;
    }

    /// Entries that it has brought, for the next connection.
    pub fn take_carried(&mut self) -> CarriedEntries {
        core::mem::take(&mut self.changes.carried).after_connection()
    }

    /// See [`crate::Sink::take_changes`].
    pub fn take_changes(&mut self) -> (Vec<NamedChange>, u64) {
        self.changes.take()
    }

    /// Entries that were skipped: as many.
    pub fn skipped(&self) -> &[EndedEntry] {
        &self.ended.skipped
    }

    /// Names that the sink was to delete, since they were not announced.
    pub fn deletions(&self) -> &Deletions {
        &self.deletions
    }

    fn poll_hashes(&mut self) -> Option<SourceMessage> {
        if let Some(hashes) = self.next_hashes.take() {
            return Some(hashes);
        }
        if let Some(compared) = self.poll_compared() {
            return Some(compared);
        }
        if let Some((object, groups)) = self.believed.pop_first() {
            return Some(self.say_believed(object, groups));
        }
        if self.hashes.is_empty() {
            return None;
        }
        // Hashing on several threads delivers a little out of order; runs save message heads. A
        // repair may bring a group again: a stable sort keeps the later value behind.
        self.hashes.sort_by_key(|(object, group, ..)| (*object, *group));
        let (object, first, _, tag) = self.hashes[0];
        let len = self
            .hashes
            .iter()
            .zip(first..)
            .take(HASHES_MAX)
            .take_while(|(hash, group)| (hash.0, hash.1) == (object, *group))
            .take_while(|(hash, _)| hash.3.is_some() == tag.is_some())
            .count();
        let (values, tags): (_, Vec<_>) =
            self.hashes.drain(..len).map(|hash| (hash.2, hash.3)).unzip();
        let tags: Vec<Tag> = tags.into_iter().flatten().collect();
        let first_group = u64::from(first);
        let hashes = SourceMessage::Hashes { object, first_group, values };
        if tags.is_empty() {
            return Some(hashes);
        }
        self.next_hashes = Some(hashes);
        Some(SourceMessage::Tags { object, first_group, tags })
    }

    fn task(&self, id: ObjectId, group: u32, repair: bool) -> Option<GroupTask> {
        let layout = &self.objects.get(id.0)?.layout;
        let mut pieces = Vec::new();
        for part in layout.parts(group).filter(|part| !self.failed.contains_key(&part.entry)) {
            let Some(entry) = self.entry(part.entry) else { continue };
            pieces.extend(part.pieces(entry).map(|(file_offset, group_offset, len)| ReadPiece {
                id: part.entry,
                entry: Arc::clone(entry),
                file_offset,
                group_offset,
                len,
            }));
        }
        Some(GroupTask {
            object: id,
            group,
            offset: u64::from(group) * GROUP_SIZE,
            len: layout.group_len(group),
            only: layout.groups() == 1,
            repair,
            compare: None,
            pieces,
        })
    }
}

impl Default for Source {
    fn default() -> Self {
        Self::new(Belief::default())
    }
}

const NO_OBJECT: u32 = u32::MAX;
