//! Groups as they arrive, are verified and are written.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{ObjectId, RangeSet};

use super::{Kept, Sink, SinkError, Slot, State, Told};
use crate::entry;
use crate::hash::RootHasher;
use crate::layout::Layout;
use crate::limits::{GROUP_SIZE, REPAIRS_MAX, WAITING_HASHES_MAX};
use crate::record::Claim;
use crate::window::Window;
use crate::{ChainingValue, EntryId, Fsync, NamedFile, Verdict, WritePiece, WriteTask};

#[derive(Debug)]
pub(super) struct Object {
    pub(super) layout: Layout,
    /// Groups that are verified and written, or not needed.
    pub(super) done: RangeSet,
    remaining: u32,
    groups: BTreeMap<u32, Group>,
    root: RootHasher,
    /// Chaining values behind a gap.
    beyond: BTreeMap<u32, ChainingValue>,
}

/// A group of which something is known and that is not done.
#[derive(Debug, Default)]
struct Group {
    /// What the source says.
    expected: Option<ChainingValue>,
    /// What was received, and is being or was written.
    actual: Option<ChainingValue>,
    writing: bool,
    written: bool,
    /// Received at least once: counted against credit.
    received: bool,
    repairs: u8,
    /// Its share of [`Sink::unverified`].
    unverified: u32,
}

/// An object whose files failed while groups of it were under way.
#[derive(Debug)]
pub(super) struct Abandoned {
    size: u64,
    /// Groups counted against credit.
    received: RangeSet,
}

impl Object {
    pub(super) fn new() -> Self {
        Self {
            layout: Layout::new(),
            done: RangeSet::new(),
            remaining: 0,
            groups: BTreeMap::new(),
            root: RootHasher::default(),
            beyond: BTreeMap::new(),
        }
    }

    pub(super) fn push(&mut self, id: EntryId, size: u64) {
        self.layout.push(id, size);
        self.remaining = self.layout.groups();
    }

    /// Whether no group is awaited.
    pub(super) fn is_over(&self) -> bool {
        self.remaining == 0
    }

    pub(super) fn finish_range(&mut self, groups: Range<u64>) {
        self.remaining -= self.done.insert(groups) as u32;
    }

    /// Takes the chaining value of a verified group into the root hash.
    pub(super) fn hash(&mut self, group: u32, value: ChainingValue) {
        if group != self.root.pushed() {
            self.beyond.insert(group, value);
            return;
        }
        self.root.push(value);
        while let Some(value) = self.beyond.remove(&self.root.pushed()) {
            self.root.push(value);
        }
    }
}

impl Sink {
    /// A lane has received this group whole, and `value` is the chaining value of what it
    /// received ([`crate::hash::group_chaining_value`]).
    pub fn group_received(&mut self, id: ObjectId, group: u32, value: ChainingValue) -> Verdict {
        if id.0 >= self.accepted {
            return Verdict::Unknown;
        }
        if let Some(abandoned) = self.abandoned.get_mut(&id) {
            let len = crate::hash::group_len(abandoned.size, group);
            if abandoned.received.insert_one(u64::from(group)) {
                self.credit.drop_new(len);
            }
            return Verdict::Discard;
        }
        let Some(object) = self.objects.get_mut(id.0) else {
            self.report.repeated();
            return Verdict::Duplicate;
        };
        let len = object.layout.group_len(group);
        if len == 0 {
            return Verdict::Unknown;
        }
        if object.done.contains(u64::from(group)) {
            self.report.repeated();
            return Verdict::Duplicate;
        }
        let state = object.groups.entry(group).or_default();
        if state.actual.is_some() || state.writing {
            self.report.repeated();
            return Verdict::Duplicate;
        }
        let new = if core::mem::replace(&mut state.received, true) { 0 } else { len };
        if let Some(expected) = state.expected {
            self.waiting_hashes -= 1;
            if expected != value {
                self.credit.drop_new(new);
                self.repair(id, group);
                return Verdict::Discard;
            }
        }
        let slots = &self.slots;
        let mut aside = Vec::new();
        let pieces: Vec<WritePiece> = object
            .layout
            .parts(group)
            .filter_map(|part| {
                let slot = slots.get(part.entry.0).filter(|slot| slot.state == State::Open)?;
                if slot.aside && !aside.contains(&slot.directory) {
                    aside.push(slot.directory);
                }
                Some(WritePiece {
                    id: part.entry,
                    entry: slot.entry.clone()?,
                    temp: slot.temp,
                    aside: slot.aside,
                    file_offset: part.file_offset,
                    group_offset: part.group_offset,
                    len: part.len,
                })
            })
            .collect();
        if pieces.is_empty() {
            self.credit.drop_new(new);
            self.finish_group(id, group);
            return Verdict::Discard;
        }
        state.actual = Some(value);
        state.writing = true;
        self.credit.hold((id, group), new);
        self.begin_aside((id, group), aside);
        Verdict::Write(WriteTask { object: id, group, pieces })
    }

    /// A group that did not verify: whatever the lanes have of it is to be forgotten, so that the
    /// next packets of it are no repetitions. The source is asked for it only once it was given out
    /// here, so a driver cannot ask without telling the lanes, whichever way the fault was found.
    #[must_use]
    pub fn poll_anew(&mut self) -> Option<(ObjectId, u32)> {
        self.answers.poll_anew()
    }

    /// The pieces of `task` are written (not synced), but for those of the entries that `failed`,
    /// each for its reason; its memory is free.
    pub fn group_written(&mut self, task: &WriteTask, failed: &[(EntryId, String)]) {
        for (entry, reason) in failed {
            if self.state(*entry) == Some(State::Open) {
                self.fail(*entry, reason, Told::No, Kept::Part);
            }
        }
        let (id, group) = (task.object, task.group);
        let new = self.credit.release((id, group));
        self.end_aside((id, group));
        let Some(object) = self.objects.get_mut(id.0) else {
            return;
        };
        let Some(state) = object.groups.get_mut(&group).filter(|state| state.writing) else {
            return;
        };
        state.writing = false;
        state.written = true;
        let len = object.layout.group_len(group);
        self.written += u64::from(len);
        self.report.received(new);
        for part in object.layout.parts(group) {
            sync_later(&mut self.slots, &mut self.dirty, part.entry);
        }
        match (state.actual, state.expected) {
            // It was found bad while it was written.
            (None, _) => self.repair(id, group),
            (Some(_), Some(_)) => self.finish_group(id, group),
            (Some(_), None) => {
                state.unverified = new;
                self.unverified += u64::from(state.unverified);
            }
        }
    }

    pub(super) fn handle_hashes(
        &mut self,
        id: ObjectId,
        first_group: u64,
        values: &[ChainingValue],
    ) -> Result<(), SinkError> {
        let error = || SinkError::Hashes { object: id };
        if id.0 >= self.accepted {
            return Err(error());
        }
        let Some(object) = self.objects.get_mut(id.0) else {
            return Ok(());
        };
        let count = values.len() as u64;
        let end = first_group.checked_add(count).ok_or_else(error)?;
        let limit = WAITING_HASHES_MAX + 2 * self.credit.capacity() / GROUP_SIZE;
        if end > u64::from(object.layout.groups()) || self.waiting_hashes + count > limit {
            return Err(error());
        }
        if self.abandoned.contains_key(&id) {
            return Ok(());
        }
        for (group, value) in (first_group as u32..).zip(values) {
            let Some(object) = self.objects.get_mut(id.0) else {
                return Ok(());
            };
            if object.done.contains(u64::from(group)) {
                continue;
            }
            let state = object.groups.entry(group).or_default();
            match state.actual {
                None if state.writing => {}
                None => {
                    self.waiting_hashes += u64::from(state.expected.is_none());
                    state.expected = Some(*value);
                }
                // The group is settled by the hash it was first compared to.
                Some(_) if state.expected.is_some() => {}
                Some(actual) if actual == *value => {
                    state.expected = Some(*value);
                    if state.written {
                        self.finish_group(id, group);
                    }
                }
                // A write under way must not come after that of the repair.
                Some(_) if state.writing => state.actual = None,
                Some(_) => self.repair(id, group),
            }
        }
        Ok(())
    }

    /// Ends what is known of a group that did not verify, and asks for it again.
    fn repair(&mut self, id: ObjectId, group: u32) {
        self.report.rejected();
        let Some(object) = self.objects.get_mut(id.0) else {
            return;
        };
        let Some(state) = object.groups.get_mut(&group) else {
            return;
        };
        self.unverified -= u64::from(core::mem::take(&mut state.unverified));
        state.actual = None;
        state.expected = None;
        state.written = false;
        state.repairs += 1;
        if state.repairs <= REPAIRS_MAX {
            self.answers.ask_anew(id, group);
            return;
        }
        let files: Vec<EntryId> = object.layout.parts(group).map(|part| part.entry).collect();
        for file in files {
            if self.state(file) == Some(State::Open) {
                self.fail(
                    file,
                    "its contents did not verify, again and again",
                    Told::No,
                    Kept::Nothing,
                );
            }
        }
        if !self.abandoned.contains_key(&id) {
            self.finish_group(id, group);
        }
    }

    /// The group is verified and written, or nobody needs it.
    fn finish_group(&mut self, id: ObjectId, group: u32) {
        let Some(object) = self.objects.get_mut(id.0) else {
            return;
        };
        let state = object.groups.remove(&group).unwrap_or_default();
        self.unverified -= u64::from(state.unverified);
        object.finish_range(u64::from(group)..u64::from(group) + 1);
        if let Some(value) = state.actual {
            self.report.verified(object.layout.group_len(group));
            if object.layout.is_large() {
                object.hash(group, value);
            }
        }
        let mut ended = Vec::new();
        for part in object.layout.parts(group) {
            let slot = self.slots.get_mut(part.entry.0);
            let Some(slot) = slot.filter(|slot| slot.state.awaits_groups()) else {
                continue;
            };
            if slot.is_large()
                && let (Some(entry), Some(value)) = (&slot.entry, state.actual)
            {
                let (key, temp) = (entry::key(entry), slot.temp);
                self.claims.push(Claim { id: part.entry, key, temp, group, value });
            }
            slot.left -= 1;
            if slot.left == 0 {
                ended.push((part.entry, slot.state));
            }
        }
        for (file, state) in ended {
            match state {
                State::Open => self.became_whole(file),
                _ => self.confirm_resumed(file),
            }
        }
        self.forget();
    }

    /// Everything of the file is verified and written.
    pub(super) fn became_whole(&mut self, id: EntryId) {
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        slot.state = State::Whole;
        self.prepared -= u32::from(core::mem::take(&mut slot.prepared));
        self.unfinished -= 1;
        if slot.is_large()
            && let Some(object) = self.objects.get_mut(slot.object)
        {
            self.digests.insert(id, core::mem::take(&mut object.root).finish());
        }
        match self.config.fsync {
            Fsync::End => self.whole.push(id),
            Fsync::Never { .. } => {
                let others = self.keep(Vec::from([id]));
                self.publishable.extend(others);
            }
        }
    }

    /// Ends an object after a failure if no file awaits groups of it. The source may send no
    /// more of it, though some may be under way.
    pub(super) fn abandon_if_idle(&mut self, number: u32) {
        let slots = &self.slots;
        let awaits = |file: EntryId| {
            let slot = slots.get(file.0);
            slot.is_some_and(|slot| slot.state.awaits_groups())
        };
        let object = self.objects.get_mut(number).filter(|object| {
            number < self.accepted && !object.is_over() && !object.layout.files().any(awaits)
        });
        let Some(object) = object else {
            return;
        };
        let mut received = core::mem::take(&mut object.done);
        for (group, state) in core::mem::take(&mut object.groups) {
            self.unverified -= u64::from(state.unverified);
            self.waiting_hashes -=
                u64::from(state.expected.is_some() && state.actual.is_none() && !state.writing);
            if state.received {
                received.insert_one(u64::from(group));
            }
        }
        object.remaining = 0;
        let abandoned = Abandoned { size: object.layout.size(), received };
        self.abandoned.insert(ObjectId(number), abandoned);
    }

    pub(super) fn is_publishing(&self, id: EntryId) -> bool {
        matches!(self.state(id), Some(State::Aside | State::Publishing | State::Named))
    }
}

/// The next checkpoint is to sync the file of the entry.
pub(super) fn sync_later(slots: &mut Window<Slot>, dirty: &mut Vec<NamedFile>, id: EntryId) {
    let slot = slots.get_mut(id.0);
    if let Some(slot) = slot.filter(|slot| slot.state == State::Open && !slot.dirty) {
        slot.dirty = true;
        let aside = slot.entry.as_ref().filter(|_| slot.aside).cloned();
        dirty.push(NamedFile { id, temp: slot.temp, aside });
    }
}
