//! Answers of the sink, checked against what was announced and sent.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{Bytes, EntryCode, ObjectId, shown};
use longhaul_wire::{Entry, EntryEnd, EntryKind, EntryPath, SinkMessage, Summary};

use super::{EntryState, NO_OBJECT, Source, SourceError};
use crate::action::Deletion;
use crate::entry::EntryId;
use crate::entry::cost;
use crate::limits::{GROUP_SIZE, HAVE_RANGES_MAX, REPAIRS_MAX};
use crate::name_list::NameListError;
use crate::tags::Belief;

impl Source {
    /// Takes in what the sink says.
    ///
    /// # Errors
    /// When it cannot be true; nothing is changed then, and the connection should be closed
    /// with `protocol-violation`.
    pub fn handle(&mut self, message: SinkMessage) -> Result<(), SourceError> {
        if self.result.is_some() {
            return Err(SourceError::AfterResult);
        }
        self.take_in(message)?;
        self.push_decided();
        Ok(())
    }

    fn take_in(&mut self, message: SinkMessage) -> Result<(), SourceError> {
        match message {
            SinkMessage::Accept { objects } => self.handle_accept(objects),
            SinkMessage::Offer { object, groups } => self.handle_offer(object, groups),
            SinkMessage::Have { object, groups } => self.handle_have(object, &groups),
            SinkMessage::Repair { object, group } => self.handle_repair(object, group),
            SinkMessage::Confirm { entries } => self.handle_confirm(&entries),
            SinkMessage::Elsewhere { entries } => self.handle_elsewhere(&entries),
            SinkMessage::EntryRefused { entry, end } => {
                let code = match end.code.would_change() && !self.dry_run {
                    true => EntryCode::Failed,
                    false => end.code,
                };
                self.handle_refused(entry, &EntryEnd::new(code, &shown(&end.reason)))
            }
            SinkMessage::Deleted { .. } | SinkMessage::NotDeleted { .. } if !self.deletes => {
                Err(SourceError::Deleted)
            }
            SinkMessage::Deleted { paths } => {
                for path in paths {
                    self.changes.deleted(&path);
                    self.deletions.note(&Deletion { path, result: Ok(()) });
                }
                Ok(())
            }
            SinkMessage::NotDeleted { path, end } => {
                let end = EntryEnd::new(end.code, &shown(&end.reason));
                self.deletions.note(&Deletion { path, result: Err(end) });
                Ok(())
            }
            SinkMessage::Compare(files) => self.handle_compare(files),
            // Nobody but a server sends at the rate of its peer.
            SinkMessage::Rate(_) => Err(SourceError::Rate),
            // The request announces none.
            SinkMessage::Names { .. } => Err(SourceError::Names(NameListError::Unasked)),
            SinkMessage::Result(summary) => self.handle_result(*summary),
        }
    }

    fn handle_accept(&mut self, objects: u64) -> Result<(), SourceError> {
        match u32::try_from(objects) {
            Ok(accepted) if (self.accepted..=self.announced_objects).contains(&accepted) => {
                (self.accepted..accepted).for_each(|object| self.leave_out_unchanged(object));
                self.accepted = accepted;
                Ok(())
            }
            _ => Err(SourceError::Accept { objects }),
        }
    }

    /// Leaves the entries that the sink has unchanged out of an object that is not accepted: it knows
    /// of all of them when it speaks of the object. What is behind them moves up.
    pub(super) fn leave_out_unchanged(&mut self, number: u32) {
        if let Some(object) = self.objects.get_mut(number).filter(|_| number >= self.accepted) {
            let entries = u64::from(object.first.0)..u64::from(object.first.0 + object.entries);
            object.layout.leave_out(entries, &mut self.unchanged);
        }
    }

    fn handle_have(&mut self, id: ObjectId, ranges: &[Range<u64>]) -> Result<(), SourceError> {
        self.leave_out_unchanged(id.0);
        let error = SourceError::Have { object: id };
        let open = (self.accepted..self.announced_objects).contains(&id.0);
        let object = self.objects.get_mut(id.0).filter(|_| open).ok_or(error)?;
        let is_believed = matches!(self.belief, Belief::Everything);
        let slots = &self.entries;
        let is_open =
            |id: EntryId| slots.get(id.0).is_some_and(|slot| slot.state == EntryState::Open);
        let groups = u64::from(object.layout.groups());
        if !ascending(ranges, groups)
            || object.have.range_count() + ranges.len() > HAVE_RANGES_MAX
            || !is_believed && !ranges.iter().all(|range| object.may_have(range, is_open))
        {
            return Err(error);
        }
        if groups == 0 {
            return Ok(());
        }
        let had_last = object.have.contains(groups - 1);
        let mut new = Vec::new();
        for range in ranges {
            new.extend(object.have.gaps(range.clone()));
            self.stats.resumed_bytes += object.have.insert(range.clone()) * GROUP_SIZE;
        }
        if object.have.contains(groups - 1) && !had_last {
            let last = object.layout.group_len(object.layout.groups() - 1);
            self.stats.resumed_bytes -= GROUP_SIZE - u64::from(last);
        }
        new.into_iter().flatten().for_each(|group| self.hold(id, group as u32));
        Ok(())
    }

    fn handle_repair(&mut self, id: ObjectId, group: u64) -> Result<(), SourceError> {
        let error = SourceError::Repair { object: id, group };
        let Some(object) = self.objects.get(id.0) else {
            // Of an object that is over: the sink asked before it knew.
            return if id.0 < self.announced_objects { Ok(()) } else { Err(error) };
        };
        if group >= u64::from(object.next_group) || object.have.contains(group) {
            return Err(error);
        }
        let group = group as u32;
        let count = self.repair_counts.get(&(id, group)).copied().unwrap_or(0);
        if count >= REPAIRS_MAX {
            return Err(error);
        }
        self.repair_counts.insert((id, group), count + 1);
        self.repairs.push_back((id, group));
        self.stats.repairs += 1;
        Ok(())
    }

    fn handle_confirm(&mut self, ranges: &[Range<u64>]) -> Result<(), SourceError> {
        if let Some(entry) = self.impossible(ranges, Self::may_be_confirmed) {
            return Err(SourceError::Confirm { entry });
        }
        for number in ranges.iter().cloned().flatten() {
            self.settle(EntryId(number as u32), EntryState::Confirmed);
        }
        self.forget();
        Ok(())
    }

    fn may_be_confirmed(&self, number: u32) -> bool {
        let Some(slot) = self.entries.get(number) else {
            return self.is_kept(EntryId(number));
        };
        match slot.state {
            EntryState::Open if slot.size == 0 => true,
            EntryState::Open => {
                slot.object < self.accepted
                    && self
                        .objects
                        .get(slot.object)
                        .is_some_and(|object| object.is_dealt(EntryId(number)))
            }
            EntryState::Failed(_) => true,
            EntryState::Confirmed | EntryState::Refused(_) => false,
        }
    }

    /// The first entry of these ranges that was not announced, or of which a message is not possible.
    fn impossible(
        &self,
        ranges: &[Range<u64>],
        is_possible: impl Fn(&Self, u32) -> bool,
    ) -> Option<u64> {
        if !ascending(ranges, u64::from(self.announced_entries)) {
            return Some(ranges.first().map_or(0, |range| range.start));
        }
        ranges.iter().cloned().flatten().find(|number| !is_possible(self, *number as u32))
    }

    fn handle_elsewhere(&mut self, ranges: &[Range<u64>]) -> Result<(), SourceError> {
        if let Some(entry) = self.impossible(ranges, Self::may_be_elsewhere) {
            return Err(SourceError::Elsewhere { entry });
        }
        for number in ranges.iter().cloned().flatten().map(|number| number as u32) {
            let Some(slot) = self.entries.get_mut(number) else { continue };
            self.stats.unchanged_bytes += core::mem::take(&mut slot.size);
            let object = core::mem::replace(&mut slot.object, NO_OBJECT);
            self.unchanged.insert_one(u64::from(number));
            self.comparisons.forget(EntryId(number));
            if let Some(object) = self.objects.get_mut(object) {
                object.live -= 1;
            }
        }
        Ok(())
    }

    fn may_be_elsewhere(&self, number: u32) -> bool {
        self.entries.get(number).is_some_and(|slot| {
            let has_others = slot.entry.as_ref().is_some_and(|it| !it.other_names().is_empty());
            let is_open = slot.state == EntryState::Open && slot.object >= self.accepted;
            has_others && is_open && slot.size > 0
        })
    }

    fn handle_refused(&mut self, entry: u64, end: &EntryEnd) -> Result<(), SourceError> {
        let error = SourceError::Refuse { entry };
        if entry >= u64::from(self.announced_entries) {
            return Err(error);
        }
        let id = EntryId(entry as u32);
        let slot = self.entries.get(id.0);
        let is_failed = slot.map_or(self.failed_before.contains_key(&id), |slot| {
            matches!(slot.state, EntryState::Failed(_))
        });
        let entry = self.known(id);
        if entry.is_none() && !is_failed {
            return Err(error);
        }
        if end.code.would_change() {
            self.would_change.insert_one(id.as_wire());
            if let Some(first) = self.later.in_place_of(id) {
                self.would_change.insert_one(first.as_wire());
            }
        }
        let is_dealt = slot.is_some_and(|slot| slot.object < self.accepted);
        if end.code.stays() && !is_dealt {
            self.unchanged.insert_one(u64::from(id.0));
        }
        let kept = self.settle(id, EntryState::Refused(end.code));
        if let Some(path) = entry.map(|entry| entry.path.clone()).or(kept) {
            self.ended.note(id, &path, end);
        }
        self.forget();
        Ok(())
    }

    fn handle_result(&mut self, summary: Summary) -> Result<(), SourceError> {
        let stats = &self.stats;
        let all = self.end_announced && stats.settled() == stats.entries;
        let Summary { confirmed, failed, skipped, unchanged, bytes, .. } = summary;
        let counted = [stats.confirmed, stats.failed, stats.skipped, stats.unchanged];
        if !all
            || [confirmed, failed, skipped, unchanged] != counted.map(u64::from)
            || bytes != Bytes::new(stats.confirmed_bytes)
        {
            return Err(SourceError::Result);
        }
        self.result = Some(summary);
        Ok(())
    }

    /// Moves the entry to `state`, which the caller found to be possible. Returns its path, where
    /// it was kept for the report as one that failed before.
    pub(super) fn settle(&mut self, id: EntryId, state: EntryState) -> Option<EntryPath> {
        if self.changes.count_entries()
            && let Some(entry) = self.known(id)
        {
            match state {
                EntryState::Confirmed => {
                    let is_directory = entry.kind == EntryKind::Directory;
                    self.changes.copied(entry.path.as_bytes(), is_directory);
                }
                EntryState::Refused(code) if self.changes.was_carried(&entry, code) => {
                    self.stats.carried.0 += 1;
                    self.stats.carried.1 += entry.data_len();
                }
                EntryState::Refused(code) => self.changes.ended(&entry, code),
                EntryState::Failed(_) | EntryState::Open => {}
            }
        }
        self.comparisons.forget(id);
        let is_directory = self.directories.settle(id);
        let slot = self.entries.get_mut(id.0);
        let (was, size) = match &slot {
            Some(slot) => (slot.state, slot.size),
            None if is_directory => (EntryState::Open, 0),
            None => match self.failed_before.remove(&id) {
                Some((size, code)) => (EntryState::Failed(code), size),
                None => return None,
            },
        };
        let mut had_failed = self.failed.remove(&id).is_some();
        if let EntryState::Failed(code) = was {
            *self.stats.ended(code) -= 1;
            had_failed = true;
        }
        match state {
            EntryState::Confirmed => {
                self.stats.confirmed += 1;
                self.stats.confirmed_bytes += size;
            }
            EntryState::Failed(code) | EntryState::Refused(code) => {
                *self.stats.ended(code) += 1;
                self.stats.unchanged_bytes += if code.stays() { size } else { 0 };
                self.stats.stayed.count(code);
                if code.would_change() {
                    let (entries, bytes) = &mut self.stats.would_change;
                    (*entries, *bytes) = (*entries + 1, *bytes + size);
                }
            }
            EntryState::Open => {}
        }
        let kept = if had_failed { self.ended.forget(id) } else { None };
        let Some(slot) = slot else {
            return kept;
        };
        slot.state = state;
        if was != EntryState::Open {
            return kept;
        }
        let number = slot.object;
        if let Some(entry) = slot.entry.take() {
            self.unsettled -= cost(&entry);
            self.later.settled(id, &entry, state, &mut self.directories.names);
        }
        self.leave_object(number, id, state);
        kept
    }

    /// A file of this object is settled.
    fn leave_object(&mut self, number: u32, id: EntryId, state: EntryState) {
        let Some(object) = self.objects.get_mut(number) else { return };
        // What the sink has of a small one, or of what is damaged, goes.
        let is_kept = object.layout.is_large()
            && matches!(state, EntryState::Refused(code) if code.is_failure() && code != EntryCode::Damaged);
        if !is_kept {
            let held = object.held(id);
            self.stats.held_bytes = self.stats.held_bytes.saturating_sub(held);
        }
        object.live -= 1;
        if object.live == 0 && object.next_group > 0 && state != EntryState::Confirmed {
            self.withdraw(ObjectId(number));
        }
    }

    /// The entry, while it is not settled.
    fn known(&self, id: EntryId) -> Option<Arc<Entry>> {
        match self.directories.get(id) {
            Some(directory) => Some(directory.entry()),
            None => self.entries.get(id.0)?.entry.clone(),
        }
    }

    fn withdraw(&mut self, object: ObjectId) {
        self.withdrawn.push_back(object);
        // Of a group that the sink wants again it has counted the first sending.
        let again = self.repair_counts.range((object, 0)..=(object, u32::MAX));
        self.sent_before.extend(again.map(|(group, _)| *group));
    }

    /// True where a forgotten entry can still be confirmed or refused.
    fn is_kept(&self, id: EntryId) -> bool {
        self.directories.get(id).is_some() || self.failed_before.contains_key(&id)
    }

    /// Forgets what is settled at the front, and what is kept elsewhere.
    pub(super) fn forget(&mut self) {
        let (announced, failed_before) = (self.announced_entries, &mut self.failed_before);
        self.entries.forget_while(|number, slot| {
            if let EntryState::Failed(code) = slot.state {
                failed_before.insert(EntryId(number), (slot.size, code));
            }
            // Of a directory or of what is settled nothing is left here.
            number < announced && slot.entry.is_none()
        });
        let (dealing, base) = (self.dealing, self.entries.base());
        self.objects.forget_while(|number, object| {
            number < dealing && object.first.0 + object.entries <= base
        });
        let kept = self.objects.base();
        while self.repair_counts.first_key_value().is_some_and(|((id, _), _)| id.0 < kept) {
            self.repair_counts.pop_first();
        }
    }
}

/// True if the ranges are not empty, ascend without overlap, and end at `end` at the latest.
pub(super) fn ascending(ranges: &[Range<u64>], end: u64) -> bool {
    let mut past = 0;
    ranges.iter().all(|range| {
        let fits = past <= range.start && range.start < range.end && range.end <= end;
        past = range.end;
        fits
    })
}
