//! Files that the sink has with the same size: it asks for their hashes, by file, before it accepts
//! what it has not (docs/protocol.md section 7.4).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::ObjectId;
use longhaul_wire::{Entry, FileHashes, SourceMessage};

use super::{Comparison, EntryState, GroupTask, ReadPiece, Source, SourceError};
use crate::entry::EntryId;
use crate::hash::{ChainingValue, group_count, group_len};
use crate::limits::{COMPARING_FILES, COMPARING_MAX, GROUP_SIZE, HASHES_MAX};
use crate::tags::Belief;

/// Questions of the sink, and their answers.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    /// The request lets the sink ask.
    allowed: bool,
    /// Groups to be read.
    asked: VecDeque<(EntryId, Range<u32>)>,
    /// Groups of each file that were asked for and not answered, and their sum.
    open: BTreeMap<EntryId, u64>,
    total: u64,
    /// The last task was one of these: others have their turn.
    had_turn: bool,
    hashed: Vec<(EntryId, u32, ChainingValue)>,
}

impl Source {
    /// The sink may ask for hashes of what it has with the same size.
    pub fn allow_comparisons(&mut self) {
        self.comparisons.allowed = true;
    }

    /// COMPARE. What ends at either end takes its questions with it.
    pub(super) fn handle_compare(
        &mut self,
        files: Vec<(u64, Range<u64>)>,
    ) -> Result<(), SourceError> {
        let is_hashed = !matches!(self.belief, Belief::Unhashed);
        let (mut asked, mut total) = (BTreeMap::new(), self.comparisons.total);
        for (entry, groups) in &files {
            let error = SourceError::Compare { entry: *entry };
            total += groups.end - groups.start;
            let is_possible = self.comparisons.allowed && is_hashed && total <= COMPARING_MAX;
            if !is_possible || *entry >= u64::from(self.announced_entries) {
                return Err(error);
            }
            let id = EntryId(*entry as u32);
            let Some(slot) = self.entries.get(id.0) else {
                match self.failed_before.contains_key(&id) {
                    true => continue,
                    false => return Err(error),
                }
            };
            match slot.state {
                EntryState::Failed(_) => continue,
                EntryState::Open if slot.object >= self.accepted => {}
                _ => return Err(error),
            }
            // Each group is asked for once, in order.
            let next = asked.insert(id, groups.end).unwrap_or(slot.compared);
            let entry = slot.entry.as_ref().filter(|entry| entry.linked_to().is_none());
            let size = entry.map_or(0, |entry| entry.size);
            if groups.start < next || groups.end > group_count(size).into() {
                return Err(error);
            }
        }
        for (entry, groups) in files {
            let id = EntryId(entry as u32);
            if let Some(slot) = self.entries.get_mut(id.0).filter(|_| asked.contains_key(&id)) {
                slot.compared = groups.end;
                self.comparisons.ask(id, groups);
            }
        }
        Ok(())
    }

    /// A task that only reads what the sink has asked for, every second time at most while `others` wait.
    pub(super) fn next_asked(&mut self, others: bool) -> Option<GroupTask> {
        if core::mem::take(&mut self.comparisons.had_turn) && others {
            return None;
        }
        let mut pieces: Vec<ReadPiece> = Vec::new();
        let mut len = 0;
        while let Some((id, groups)) = self.comparisons.asked.front().cloned() {
            let entry = self.entry(id).filter(|_| !self.failed.contains_key(&id)).cloned();
            let Some(entry) = entry.filter(|_| !groups.is_empty()) else {
                self.comparisons.asked.pop_front();
                continue;
            };
            let more = group_len(entry.size, groups.start);
            if u64::from(len + more) > GROUP_SIZE || pieces.len() == COMPARING_FILES {
                break;
            }
            let file_offset = u64::from(groups.start) * GROUP_SIZE;
            pieces.push(ReadPiece { id, entry, file_offset, group_offset: len, len: more });
            len += more;
            if let Some((_, groups)) = self.comparisons.asked.front_mut() {
                groups.start += 1;
            }
        }
        self.comparisons.had_turn = !pieces.is_empty();
        self.comparisons.had_turn.then_some(GroupTask {
            object: ObjectId(0),
            group: 0,
            offset: 0,
            len,
            only: false,
            repair: false,
            compare: Some(Comparison::Files),
            pieces,
        })
    }

    /// The pieces of such a task were read, and these are their chaining values
    /// ([`GroupTask::file_hashes`]). Of files that could not be read it is called after
    /// [`Source::entry_failed`].
    pub fn files_hashed(&mut self, values: Vec<(EntryId, u32, ChainingValue)>) {
        for (id, group, value) in values {
            let slot = self.entries.get(id.0).filter(|slot| slot.state == EntryState::Open);
            let Some(slot) = slot.filter(|_| !self.failed.contains_key(&id)) else { continue };
            let has_holes = |entry: &Arc<Entry>| entry.attributes.data.is_some();
            // The sink may say that it has it, unless the object's groups are others.
            if let Some(object) = self.objects.get_mut(slot.object)
                && object.layout.is_large()
                && !slot.entry.as_ref().is_some_and(has_holes)
            {
                object.answered.insert_one(u64::from(group));
            }
            self.comparisons.hashed.push((id, group, value));
            self.stats.answered += 1;
        }
    }

    /// The next COMPARE.
    pub(super) fn poll_compared(&mut self) -> Option<SourceMessage> {
        let Comparisons { hashed, .. } = &mut self.comparisons;
        hashed.sort_unstable_by_key(|(id, group, _)| (*id, *group));
        let mut files: Vec<FileHashes> = Vec::new();
        let count = hashed.len().min(HASHES_MAX);
        for (id, group, value) in hashed.drain(..count) {
            let (entry, group) = (id.as_wire(), u64::from(group));
            match files.last_mut() {
                Some(last)
                    if last.entry == entry
                        && last.first_group + last.values.len() as u64 == group =>
                {
                    last.values.push(value);
                }
                _ => {
                    files.push(FileHashes { entry, first_group: group, values: Vec::from([value]) })
                }
            }
        }
        for FileHashes { entry, values, .. } in &files {
            self.comparisons.answered(EntryId(*entry as u32), values.len() as u64);
        }
        (!files.is_empty()).then_some(SourceMessage::Compared(files))
    }
}

impl Comparisons {
    fn ask(&mut self, id: EntryId, groups: Range<u64>) {
        let count = groups.end - groups.start;
        *self.open.entry(id).or_default() += count;
        self.total += count;
        self.asked.push_back((id, groups.start as u32..groups.end as u32));
    }

    fn answered(&mut self, id: EntryId, count: u64) {
        if let Some(open) = self.open.get_mut(&id) {
            *open -= count;
            self.total -= count;
            if *open == 0 {
                self.open.remove(&id);
            }
        }
    }

    /// The entry has ended.
    pub(super) fn forget(&mut self, id: EntryId) {
        if let Some(open) = self.open.remove(&id) {
            self.total -= open;
            self.hashed.retain(|(of, ..)| *of != id);
        }
    }
}

impl GroupTask {
    /// Chaining values of the pieces of a task that compares files, whose bytes are `data`.
    pub fn file_hashes(&self, data: &[u8]) -> Vec<(EntryId, u32, ChainingValue)> {
        let value = |piece: &ReadPiece| {
            let group = (piece.file_offset / GROUP_SIZE) as u32;
            let data = &data[piece.group_offset as usize..][..piece.len as usize];
            let only = group_count(piece.entry.size) == 1;
            (piece.id, group, crate::hash::group_chaining_value(data, group, only))
        };
        self.pieces.iter().map(value).collect()
    }
}
