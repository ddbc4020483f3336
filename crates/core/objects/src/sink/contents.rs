//! Files that are there with the size of the source's: their contents are compared, before anything of
//! them is accepted (docs/objects.md section "Equal contents").

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{EntryCode, RangeSet};
use longhaul_wire::{Entry, EntryEnd, FileHashes, SinkMessage};

use super::entries::{Entries, Slot, State};
use super::{Kept, Sink, SinkError, SourceKnows};
use crate::action::{Action, ComparedFile, EqualGroups, NamedEntry};
use crate::entry::EntryId;
use crate::hash::{ChainingValue, group_count};
use crate::limits::{
    ACTION_ENTRIES_MAX, COMPARING_BATCH, COMPARING_MAX, PAIRS_MAX, RECHECK_GROUPS,
};
use crate::record::Recorded;

/// Comparisons that are not over.
#[derive(Debug, Default)]
pub(super) struct Contents {
    files: BTreeMap<EntryId, File>,
    /// Those of them of which the source was not asked about all groups.
    unasked: BTreeSet<EntryId>,
    /// Those of them whose hashes have come for groups that were not given out to be compared.
    arrived: BTreeSet<EntryId>,
    /// Groups that the source was asked about and that are not compared.
    under_way: u64,
    /// Equal files that are to get mode and time.
    equal: Vec<EntryId>,
}

/// Progress of one.
#[derive(Debug)]
struct File {
    groups: u32,
    /// Groups below were asked for.
    asked: u32,
    /// Those of them that are not answered.
    pending: RangeSet,
    /// Those that are answered and not given out.
    values: Vec<(u32, ChainingValue)>,
    /// Groups that are being compared.
    given: u64,
    equal: Vec<Recorded>,
}

impl Contents {
    /// The file, which waits, is to be compared.
    fn begin(&mut self, id: EntryId, size: u64) {
        let groups = group_count(size);
        if groups == 0 {
            return self.equal.push(id);
        }
        let file = File {
            groups,
            asked: 0,
            pending: RangeSet::new(),
            values: Vec::new(),
            given: 0,
            equal: Vec::new(),
        };
        self.files.insert(id, file);
        self.unasked.insert(id);
    }

    /// True while the source has to speak before what is announced can be prepared.
    pub(super) fn is_awaited(&self) -> bool {
        !self.files.is_empty()
    }

    /// True if a file is being compared that was announced before this one.
    pub(super) fn is_before(&self, id: EntryId) -> bool {
        self.files.first_key_value().is_some_and(|(first, _)| *first < id)
    }

    /// True while files of this end are read for it.
    pub(super) fn is_reading(&self) -> bool {
        !self.arrived.is_empty() || self.files.values().any(|file| file.given > 0)
    }

    /// The entry has ended.
    pub(super) fn forget(&mut self, id: EntryId) {
        if let Some(file) = self.files.remove(&id) {
            self.unasked.remove(&id);
            self.arrived.remove(&id);
            self.under_way -= file.pending.total() + file.values.len() as u64;
        }
    }

    /// The next question. Each is made when it is asked for, so that none waits in memory.
    pub(super) fn poll_message(&mut self) -> Option<SinkMessage> {
        let free = COMPARING_MAX - self.under_way;
        if self.unasked.is_empty() || free < COMPARING_BATCH {
            return None;
        }
        let (mut files, mut left): (Vec<(u64, Range<u64>)>, _) = (Vec::new(), free);
        while left > 0
            && files.len() < PAIRS_MAX
            && let Some(id) = self.unasked.first().copied()
        {
            let Some(file) = self.files.get_mut(&id) else { break };
            let end = u64::from(file.groups).min(u64::from(file.asked) + left) as u32;
            let range = u64::from(file.asked)..u64::from(end);
            left -= range.end - range.start;
            file.pending.insert(range.clone());
            file.asked = end;
            if file.asked == file.groups {
                self.unasked.remove(&id);
            }
            files.push((id.as_wire(), range));
        }
        self.under_way += free - left;
        Some(SinkMessage::Compare(files))
    }

    /// True where the source was asked about these groups, and has not answered.
    fn awaits(&self, id: EntryId, groups: &Range<u64>) -> bool {
        self.files.get(&id).is_some_and(|file| file.pending.contains_range(groups))
    }

    /// The source has hashed groups of a file.
    fn answer(&mut self, id: EntryId, groups: Range<u64>, values: &[ChainingValue]) {
        if let Some(file) = self.files.get_mut(&id) {
            file.values.extend((groups.start as u32..).zip(values.iter().copied()));
            file.pending.remove(groups);
            self.arrived.insert(id);
        }
    }

    /// The next [`Action::CompareContents`] or [`Action::MendExisting`].
    pub(super) fn poll(&mut self, entries: &Entries) -> Option<Action> {
        let named = |id: EntryId| {
            let entry = entries.in_state(id, State::Waiting)?.entry()?.clone();
            Some(NamedEntry { id, entry })
        };
        if !self.equal.is_empty() {
            let count = self.equal.len().min(ACTION_ENTRIES_MAX);
            let batch: Vec<_> = self.equal.drain(..count).filter_map(named).collect();
            return Some(Action::MendExisting(batch));
        }
        let (mut batch, mut left) = (Vec::new(), RECHECK_GROUPS);
        while left > 0
            && let Some(id) = self.arrived.first().copied()
        {
            let (Some(file), Some(entry)) = (self.files.get_mut(&id), named(id)) else {
                self.arrived.remove(&id);
                continue;
            };
            let count = file.values.len().min(left);
            let groups: Vec<_> = file.values.drain(..count).collect();
            left -= count;
            file.given += count as u64;
            if file.values.is_empty() {
                self.arrived.remove(&id);
            }
            batch.push(ComparedFile { file: entry, groups });
        }
        (!batch.is_empty()).then_some(Action::CompareContents(batch))
    }

    /// So many groups of a file were compared. Returns those of it that are equal, and their number if it
    /// was whole, once all are compared or, if one is enough, one is not equal.
    fn compared(
        &mut self,
        EqualGroups { id, compared: count, equal, .. }: EqualGroups,
        one_is_enough: bool,
    ) -> Option<(Vec<Recorded>, u32)> {
        self.under_way -= count as u64;
        let file = self.files.get_mut(&id)?;
        file.given -= count as u64;
        let differs = equal.len() < count;
        file.equal.extend(equal.into_iter().map(|(group, value)| (group, value, None)));
        let is_over = file.asked == file.groups
            && file.pending.is_empty()
            && file.values.is_empty()
            && file.given == 0;
        let is_settled = is_over || differs && one_is_enough;
        if !is_settled {
            return None;
        }
        let (mut equal, groups) = (core::mem::take(&mut file.equal), file.groups);
        equal.sort_unstable_by_key(|(group, ..)| *group);
        self.forget(id);
        Some((equal, groups))
    }
}

/// Bytes of a file that are compared, if it is: with its holes, unless reading these takes long, and longer than
/// sending the data. None of one that is all holes: what is there shows by itself whether it is.
pub(super) fn compared_size(entry: &Entry) -> Option<u64> {
    let (size, data) = (entry.size, entry.data_len());
    match entry.attributes.data {
        None => Some(size),
        Some(_) if data == 0 => Some(0),
        Some(_) => (size <= HOLES_MOST || size / HOLES_READ <= data).then_some(size),
    }
}

/// Read and hashed at both ends within a second or so.
const HOLES_MOST: u64 = 1 << 30;
/// About as many bytes are read and hashed in the time in which one is sent.
const HOLES_READ: u64 = 16;

impl Sink {
    /// The contents of a file of the same size are to be compared.
    pub(super) fn compare_contents(&mut self, id: EntryId, size: u64) {
        self.setup.contents.begin(id, size);
    }

    fn stays(&mut self, id: EntryId, code: EntryCode) {
        self.unchanged.insert_one(u64::from(id.0));
        self.fail(id, EntryEnd::new(code, ""), SourceKnows::No, Kept::Untouched);
    }

    pub(super) fn handle_compared(&mut self, files: &[FileHashes]) -> Result<(), SinkError> {
        let mut answered: BTreeMap<EntryId, RangeSet> = BTreeMap::new();
        let groups = |file: &FileHashes| {
            file.first_group..file.first_group.saturating_add(file.values.len() as u64)
        };
        for file in files {
            let error = SinkError::Compared { entry: file.entry };
            if file.entry >= u64::from(self.entries.end()) {
                return Err(error);
            }
            let (id, groups) = (EntryId(file.entry as u32), groups(file));
            // What has ended here was perhaps hashed before the source knew.
            let slot = self.entries.get(id).filter(|slot| slot.state() != State::Settled);
            let known = answered.entry(id).or_default();
            let len = file.values.len() as u64;
            let is_asked = self.setup.contents.awaits(id, &groups) && known.insert(groups) == len;
            if slot.is_some() && !is_asked {
                return Err(error);
            }
        }
        for file in files {
            self.setup.contents.answer(EntryId(file.entry as u32), groups(file), &file.values);
            self.report.answered(file.values.len() as u64);
        }
        Ok(())
    }

    /// Answers [`Action::CompareContents`] for one of its files.
    pub(super) fn contents_compared(&mut self, mut compared: EqualGroups) {
        let (id, stays) = (compared.id, compared.stays.take());
        self.report.rechecked(compared.compared);
        let over = self.setup.contents.compared(compared, self.dry_run);
        let Some((equal, groups)) = over else { return };
        if equal.len() == groups as usize {
            self.setup.contents.equal.push(id);
            return;
        }
        match stays {
            Some(end) => self.fail(id, end, SourceKnows::No, Kept::Untouched),
            None if self.dry_run => self.stays(id, EntryCode::Differs),
            None => self.begin_with(id, equal),
        }
    }

    /// Answers [`Action::MendExisting`] for one of its files.
    pub(super) fn mended(&mut self, id: EntryId, code: Option<EntryCode>) {
        if self.entries.in_state(id, State::Waiting).is_none() {
            return;
        }
        match code {
            Some(code) => self.stays(id, code),
            None if self.dry_run => self.stays(id, EntryCode::Differs),
            None => self.begin_with(id, Vec::new()),
        }
    }

    /// The file is received, but for these groups, which are taken from the one that has its name, unless its object
    /// has others.
    fn begin_with(&mut self, id: EntryId, equal: Vec<Recorded>) {
        let Some(slot) = self.entries.in_state(id, State::Waiting) else { return };
        let has_holes = slot.entry().is_some_and(|entry| entry.attributes.data.is_some());
        let equal = if has_holes { Vec::new() } else { equal };
        if !slot.is_large() {
            self.entries.open(id);
            return self.advance();
        }
        let temp = slot.temp();
        self.earlier.take_over(id, temp, equal);
        self.setup.prepare(id, temp);
    }

    /// Recorded groups of the file that were taken over, once their copies are verified.
    pub(super) fn claim_taken(&mut self, id: EntryId) {
        for group in self.earlier.taken(id) {
            self.checkpoints.verified(self.entries.claim(id, group));
        }
    }

    /// True where the object is a file of which groups were taken over: the source has hashed these.
    pub(super) fn is_taken_over(&self, id: Option<EntryId>) -> bool {
        id.is_some_and(|id| {
            self.entries.get(id).is_some_and(Slot::is_large) && self.earlier.takes_over(id)
        })
    }
}
