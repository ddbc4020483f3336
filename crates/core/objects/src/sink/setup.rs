//! Preparing for what was announced, and accepting it.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::{ObjectId, RangeSet};
use longhaul_wire::{Entry, EntryKind};

use super::groups::Object;
use super::{Kept, Sink, State, Told};
use crate::entry::key;
use crate::hash::group_count;
use crate::limits::{ACTION_ENTRIES_MAX, HAVE_RANGES_MAX, PREPARED_MAX};
use crate::{
    Action, Checked, EntryId, Existing, Made, NamedEntry, Prepared, RecordedFile, TempName,
};

impl Sink {
    /// Answers [`Action::MakeDirectories`] for one of its entries.
    pub(super) fn directory_made(&mut self, id: EntryId, result: Result<Made, String>) {
        self.note_made(id, result.as_ref().ok().copied());
        match result {
            Err(reason) => self.fail(id, &reason, Told::No, Kept::Nothing),
            Ok(_) => {
                let slot = self.slots.get_mut(id.0);
                let Some(slot) = slot.filter(|slot| slot.state == State::Waiting) else {
                    return;
                };
                slot.state = State::Settled;
                if let Some(entry) = slot.entry.take() {
                    self.unmade -= 1;
                    self.directories.insert(id, entry);
                }
                self.advance();
            }
        }
    }

    /// Answers [`Action::PrepareFile`].
    pub(super) fn prepared(&mut self, id: EntryId, result: Result<Prepared, String>) {
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        if slot.state != State::Waiting {
            // It failed meanwhile.
            self.discard.push(slot.temp);
            return;
        }
        match result {
            Err(reason) => self.fail(id, &reason, Told::No, Kept::Part),
            Ok(Prepared::Ready) => {
                slot.state = State::Open;
                self.advance();
            }
            Ok(Prepared::Altered) => self.begin_recheck(id),
            Ok(Prepared::Missing) => {
                self.partials.remove(&id);
                self.prepare_anew(id);
            }
            Ok(Prepared::Published) => {
                self.partials.remove(&id);
                self.found(id);
            }
        }
    }

    /// Answers [`Action::CheckPublished`] for one of its entries.
    pub(super) fn checked(&mut self, id: EntryId, checked: Checked) {
        let slot = self.slots.get_mut(id.0);
        let Some(slot) = slot.filter(|slot| slot.state == State::Waiting) else {
            return;
        };
        match checked {
            Checked::There => {
                slot.recorded = true;
                self.found(id);
            }
            Checked::Missing if slot.is_large() => self.prepare_anew(id),
            Checked::Missing => {
                slot.state = State::Open;
                self.advance();
            }
        }
    }

    /// Begins the preparation of an entry that was just announced.
    pub(super) fn set_up(&mut self, id: EntryId, entry: &Arc<Entry>) {
        let named = NamedEntry { id, entry: Arc::clone(entry) };
        if entry.kind == EntryKind::Directory {
            self.set_state(id, State::Waiting);
            match self.setup.back_mut() {
                Some(Action::MakeDirectories(batch)) if batch.len() < ACTION_ENTRIES_MAX => {
                    batch.push(named);
                }
                _ => self.setup.push_back(Action::MakeDirectories(Vec::from([named]))),
            }
            return;
        }
        let key = key(entry);
        self.set_temp(id, TempName::of_small(key));
        if entry.size == 0 {
            return;
        }
        let stamp = self.resume.stamp_of_kept(&key);
        if stamp.is_some() || self.resume.is_published(&key) {
            self.set_state(id, State::Waiting);
            let file = RecordedFile { id, entry: named.entry, stamp };
            match self.setup.back_mut() {
                Some(Action::CheckPublished(batch)) if batch.len() < ACTION_ENTRIES_MAX => {
                    batch.push(file);
                }
                _ => self.setup.push_back(Action::CheckPublished(Vec::from([file]))),
            }
            return;
        }
        if self.slots.get(id.0).is_some_and(|slot| slot.is_large()) {
            self.set_state(id, State::Waiting);
            let (temp, existing) = match self.resume.take_partial(&key) {
                Some(partial) => {
                    let (temp, stamp) = (partial.temp, partial.stamp);
                    let whole = partial.groups.len() as u64 >= u64::from(group_count(entry.size));
                    self.partials.insert(id, partial);
                    (temp, if whole { Existing::Whole(stamp) } else { Existing::Part(stamp) })
                }
                None => (TempName::of_large(key, &self.config.nonce), Existing::Nothing),
            };
            self.set_temp(id, temp);
            self.setup.push_back(Action::PrepareFile { file: named, temp, existing });
        }
    }

    pub(super) fn setup_action(&mut self) -> Option<Action> {
        if !self.wants_messages() {
            return None;
        }
        loop {
            if let Some(Action::PrepareFile { file, .. }) = self.setup.front() {
                let slot = self.slots.get_mut(file.id.0);
                let Some(slot) = slot.filter(|slot| slot.state == State::Waiting) else {
                    // It failed meanwhile.
                    self.setup.pop_front();
                    continue;
                };
                if self.prepared >= PREPARED_MAX {
                    return None;
                }
                slot.prepared = true;
                self.prepared += 1;
            }
            return self.setup.pop_front();
        }
    }

    /// Passes what is prepared, and accepts objects all of whose entries are.
    pub(super) fn advance(&mut self) {
        while let Some(slot) = self.slots.get_mut(self.ready) {
            if slot.state == State::Waiting {
                break;
            }
            if slot.state == State::Open && slot.size == 0 {
                slot.state = State::Whole;
                self.unfinished -= 1;
                self.publishable.push_back(EntryId(self.ready));
            }
            self.ready += 1;
        }
        while let Some(object) = self.objects.get(self.accepted) {
            let last = object.layout.files().next_back();
            if last.is_none_or(|last| last.0 >= self.ready) {
                break;
            }
            let number = self.accepted;
            self.accepted += 1;
            self.accept(number);
        }
        self.forget();
    }

    fn accept(&mut self, number: u32) {
        let Some(object) = self.objects.get_mut(number) else {
            return;
        };
        let files: Vec<EntryId> = object.layout.files().collect();
        let pieces: Vec<u32> =
            (0..files.len()).map(|index| object.layout.groups_of(index).len() as u32).collect();
        self.table.push(object.layout.size());
        for (id, groups) in files.iter().zip(pieces) {
            self.settle_where(*id, groups);
        }
        let Some(object) = self.objects.get_mut(number) else {
            return;
        };
        let slots = &mut self.slots;
        // Groups that no open file has a part in need not be sent.
        let mut awaited = RangeSet::new();
        let mut resumed = Vec::new();
        for (index, id) in files.iter().enumerate() {
            match slots.get_mut(id.0) {
                Some(slot) if slot.state == State::Open => {
                    let groups = object.layout.groups_of(index);
                    slot.left = groups.end - groups.start;
                    awaited.insert(u64::from(groups.start)..u64::from(groups.end));
                }
                Some(slot) if slot.state == State::Found => resumed.push(index),
                _ => {}
            }
        }
        let is_needed = !awaited.is_empty() || !resumed.is_empty();
        for idle in awaited.gaps(0..u64::from(object.layout.groups())) {
            object.finish_range(idle);
        }
        // A resumed file is confirmed when the source has sent, or need not send, its groups.
        let mut confirmed = Vec::new();
        for index in resumed {
            let Some(slot) = slots.get_mut(files[index].0) else {
                continue;
            };
            self.report.resumed(slot.size);
            let groups = object.layout.groups_of(index);
            slot.left = groups.filter(|group| awaited.contains(u64::from(*group))).count() as u32;
            if slot.left == 0 {
                confirmed.push(files[index]);
            }
        }
        if let [id] = files[..]
            && let Some(partial) = self.partials.remove(&id)
        {
            self.take_claims(number, id, partial);
        }
        // The source knows itself what failed.
        if is_needed && let Some(object) = self.objects.get(number) {
            self.answers.have(ObjectId(number), object.done.iter());
        }
        let is_over = self.objects.get(number).is_some_and(Object::is_over);
        if let [id] = files[..]
            && is_over
            && self.state(id) == Some(State::Open)
        {
            self.became_whole(id);
        }
        // The last, since an object of which everything is confirmed is forgotten.
        confirmed.into_iter().for_each(|id| self.confirm_resumed(id));
    }

    /// Takes over what an earlier run has written of a large file.
    fn take_claims(&mut self, number: u32, id: EntryId, partial: crate::record::PartialFile) {
        let Some(object) = self.objects.get_mut(number) else {
            return;
        };
        for (group, value) in partial.groups {
            let extends = object.done.last().is_some_and(|last| last.end == u64::from(group));
            if group >= object.layout.groups()
                || !extends && object.done.range_count() == HAVE_RANGES_MAX
            {
                continue;
            }
            object.finish_range(u64::from(group)..u64::from(group) + 1);
            object.hash(group, value);
            self.report.resumed(u64::from(object.layout.group_len(group)));
            if let Some(slot) = self.slots.get_mut(id.0) {
                slot.left -= 1;
            }
        }
    }

    fn prepare_anew(&mut self, id: EntryId) {
        let nonce = self.config.nonce;
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        self.prepared -= u32::from(core::mem::take(&mut slot.prepared));
        let Some(entry) = slot.entry.clone() else {
            return;
        };
        slot.temp = TempName::of_large(key(&entry), &nonce);
        let (temp, existing) = (slot.temp, Existing::Nothing);
        let file = NamedEntry { id, entry };
        self.setup.push_front(Action::PrepareFile { file, temp, existing });
    }

    /// The file from an earlier run has its name. That run may have ended before it synced the
    /// name, even of a file that it recorded: one that waited for its directory then.
    pub(super) fn confirm_resumed(&mut self, id: EntryId) {
        self.unnamed -= 1;
        self.set_state(id, State::Named);
        self.got_name(id);
    }

    /// The file is under its name already.
    fn found(&mut self, id: EntryId) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.state = State::Found;
            self.prepared -= u32::from(core::mem::take(&mut slot.prepared));
            self.unfinished -= 1;
        }
        self.advance();
    }

    pub(super) fn state(&self, id: EntryId) -> Option<State> {
        self.slots.get(id.0).map(|slot| slot.state)
    }

    fn set_state(&mut self, id: EntryId, state: State) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.state = state;
        }
    }

    fn set_temp(&mut self, id: EntryId, temp: TempName) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.temp = temp;
        }
    }
}
