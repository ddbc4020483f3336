//! Groups as they arrive, are verified and are written.

use alloc::vec::Vec;

use longhaul_units::ObjectId;
use longhaul_wire::{EntryCode, EntryEnd};

use super::entries::{Slot, State};
use super::manifest::NOT_ABOVE;
use super::objects::{Arrival, Rejection, Verification};
use super::{Kept, Sink, SinkError, SourceKnows};
use crate::action::{Verdict, WritePiece, WriteTask};
use crate::entry::EntryId;
use crate::hash::ChainingValue;
use crate::limits::{GROUP_SIZE, WAITING_HASHES_MAX};
use crate::record::Bundled;
use crate::record::Fsync;
use crate::tags::Tag;

impl Sink {
    /// A lane has received this group whole, and `value` is the chaining value of what it
    /// received ([`crate::hash::group_chaining_value`]).
    pub fn group_received(&mut self, id: ObjectId, group: u32, value: ChainingValue) -> Verdict {
        let new = match self.objects.receive(id, group, value) {
            Arrival::Unknown => return Verdict::Unknown,
            Arrival::Repeated => {
                self.report.repeated();
                return Verdict::Duplicate;
            }
            Arrival::Unneeded { new } => {
                self.credit.drop_new(new);
                return Verdict::Discard;
            }
            Arrival::Wrong { new } => {
                self.credit.drop_new(new);
                self.repair(id, group);
                return Verdict::Discard;
            }
            Arrival::Awaited { new } => new,
        };
        let mut aside = Vec::new();
        let mut pieces: Vec<WritePiece> = Vec::new();
        for part in self.objects.parts(id, group) {
            let Some(slot) = self.entries.in_state(part.entry, State::Open) else { continue };
            let directory = slot.aside().filter(|directory| !aside.contains(directory));
            aside.extend(directory);
            pieces.extend(slot.pieces(part));
        }
        if pieces.is_empty() {
            self.credit.drop_new(new);
            self.finish_group(id, group);
            return Verdict::Discard;
        }
        self.credit.hold((id, group), new);
        self.staged.begin_write((id, group), aside);
        Verdict::Write(WriteTask { object: id, group, pieces })
    }

    /// Bytes of this group came, and no lane has memory for it or will hand it over. Of an object that is
    /// not over ([`Sink::is_over`]), or of a group that was handed over, it changes nothing.
    pub fn group_dropped(&mut self, id: ObjectId, group: u32) {
        let new = self.objects.drop_group(id, group);
        self.credit.drop_new(new);
    }

    /// A group that did not verify: whatever the lanes have of it is to be forgotten, so that the
    /// next packets of it are no repetitions. The source is asked for it only once it was given out
    /// here, so a driver cannot ask without notifying the lanes, however the fault was found.
    #[must_use]
    pub fn poll_unverified(&mut self) -> Option<(ObjectId, u32)> {
        self.answers.poll_unverified()
    }

    /// An object whose files failed: what lanes have of its groups is to be given up, since the rest may
    /// never come, and passed to [`Sink::group_dropped`] once its memory is free.
    #[must_use]
    pub fn poll_unneeded(&mut self) -> Option<ObjectId> {
        self.answers.poll_unneeded()
    }

    /// The pieces of `task` are written (not synced), but for those of the entries that `failed`,
    /// each for its reason; its memory is free.
    pub fn group_written(&mut self, task: &WriteTask, failed: &[(EntryId, EntryEnd)]) {
        for (entry, end) in failed {
            if self.entries.in_state(*entry, State::Open).is_some() {
                self.fail(*entry, end.clone(), SourceKnows::No, Kept::Part);
            }
        }
        let (id, group) = (task.object, task.group);
        let new = self.credit.release((id, group));
        self.staged.end_write((id, group));
        let Some((len, verification)) = self.objects.end_write(id, group, new) else {
            return;
        };
        self.report.received(new);
        // Of files that have failed the source sends zeros, or what nobody needs any more.
        let is_open = |piece: &&WritePiece| self.entries.in_state(piece.id, State::Open).is_some();
        let needed: u32 = task.pieces.iter().filter(is_open).map(|piece| piece.len).sum();
        self.report.lost(u64::from(new.saturating_sub(needed)));
        let files = self.objects.parts(id, group).map(|part| part.entry);
        let files = files.filter_map(|file| self.entries.written(file));
        self.checkpoints.group_written(len, files);
        match verification {
            Verification::Pending => {}
            Verification::Right => self.finish_group(id, group),
            Verification::Wrong => self.repair(id, group),
        }
    }

    pub(super) fn handle_hashes(
        &mut self,
        id: ObjectId,
        first_group: u64,
        values: &[ChainingValue],
    ) -> Result<(), SinkError> {
        let next = self.tags.take();
        let tags = next.as_ref().filter(|tags| (tags.object, tags.first) == (id, first_group));
        let tags = tags.map_or(&[][..], |tags| &tags.tags);
        let taken = match id.0 < self.objects.accepted() {
            true => self.expect(id, first_group, values, tags),
            false => self.handle_answers(id, first_group, values, tags),
        };
        if taken.is_err() {
            self.tags = next;
        }
        taken
    }

    fn expect(
        &mut self,
        id: ObjectId,
        first_group: u64,
        values: &[ChainingValue],
        tags: &[Tag],
    ) -> Result<(), SinkError> {
        let error = || SinkError::Hashes { object: id };
        let Some(groups) = self.objects.groups(id) else {
            return Ok(());
        };
        let count = values.len() as u64;
        let end = first_group.checked_add(count).ok_or_else(error)?;
        let limit = WAITING_HASHES_MAX + 2 * self.credit.capacity() / GROUP_SIZE;
        if end > u64::from(groups) || self.objects.waiting_hashes() + count > limit {
            return Err(error());
        }
        if self.objects.is_abandoned(id) {
            return Ok(());
        }
        let tags = tags.iter().copied().map(Some).chain(core::iter::repeat(None));
        for ((group, value), tag) in (first_group as u32..).zip(values).zip(tags) {
            match self.objects.expect(id, group, *value, tag) {
                None => return Ok(()),
                Some(Verification::Pending) => {}
                Some(Verification::Right) => self.finish_group(id, group),
                Some(Verification::Wrong) => self.repair(id, group),
            }
        }
        Ok(())
    }

    /// Ends what is known of a group that did not verify, and asks for it again.
    fn repair(&mut self, id: ObjectId, group: u32) {
        self.report.rejected();
        match self.objects.reject(id, group) {
            Rejection::Unneeded => return,
            Rejection::Again => return self.answers.ask_again(id, group),
            Rejection::Final => {}
        }
        let files: Vec<EntryId> = self.objects.parts(id, group).map(|part| part.entry).collect();
        for file in files {
            if self.entries.in_state(file, State::Open).is_some() {
                let reason = "its contents did not verify, again and again";
                let end = EntryEnd::new(EntryCode::Damaged, reason);
                self.fail(file, end, SourceKnows::No, Kept::Nothing);
            }
        }
        if !self.objects.is_abandoned(id) {
            self.finish_group(id, group);
        }
    }

    /// The group is verified and written, or nobody needs it.
    fn finish_group(&mut self, id: ObjectId, group: u32) {
        let Some(finished) = self.objects.finish(id, group) else {
            return;
        };
        if finished.value.is_some() {
            self.report.verified(finished.len);
        }
        if let Some(value) = finished.value
            && !self.objects.is_large(id)
            && let Some(contents) = self.contents(id, group)
        {
            self.checkpoints.bundle_verified(Bundled { contents, value, tag: finished.tag });
        }
        let mut ended = Vec::new();
        for file in self.objects.parts(id, group).map(|part| part.entry) {
            let claim = finished
                .value
                .and_then(|value| self.entries.claim(file, (group, value, finished.tag)));
            self.checkpoints.verified(claim);
            ended.extend(self.entries.group_finished(file).map(|state| (file, state)));
        }
        let has_ended = !ended.is_empty();
        for (file, state) in ended {
            match state {
                State::Open => self.became_whole(file),
                _ => self.named(file),
            }
        }
        if has_ended {
            self.abandon_if_idle(id.0);
        }
        self.forget();
    }

    /// The source has lost a file that is under its name here: it may send no more groups with a part of
    /// it.
    pub(super) fn found_alone(&mut self, id: EntryId) {
        let object = self.entries.get(id).map(Slot::object);
        self.named(id);
        if let Some(object) = object {
            self.abandon_if_idle(object);
        }
        self.forget();
    }

    /// Everything of the file is verified and written.
    pub(super) fn became_whole(&mut self, id: EntryId) {
        let entry = self.entries.get(id).and_then(Slot::entry);
        if entry.is_some_and(|entry| self.manifest.only_fails(entry)) {
            let end = EntryEnd::new(EntryCode::NotFound, NOT_ABOVE);
            return self.fail(id, end, SourceKnows::No, Kept::Nothing);
        }
        self.entries.became_whole(id);
        let has_digest = |slot: &&Slot| {
            let entry = slot.entry();
            slot.is_large() && entry.is_some_and(|entry| entry.attributes.data.is_none())
        };
        if let Some(slot) = self.entries.get(id).filter(has_digest) {
            self.objects.finish_digest(slot.object(), id);
        }
        match self.fsync {
            Fsync::Never { .. } if !self.entries.replaces(id) => {
                let others = self.keep(Vec::from([id]));
                self.publications.add(others);
            }
            // The record is to know it first.
            Fsync::Never { .. } | Fsync::End => self.checkpoints.became_whole(id),
        }
    }

    /// The next checkpoint is to sync the file.
    pub(super) fn sync_later(&mut self, id: EntryId) {
        self.checkpoints.file_written(self.entries.written(id));
    }
}
