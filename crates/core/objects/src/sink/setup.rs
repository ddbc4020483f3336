//! Preparing for what was announced.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_wire::{Entry, EntryKind};

use super::earlier::Earlier;
use super::entries::{Entries, Slot, State, is_large};
use super::{Kept, Sink, Told};
use crate::entry::key;
use crate::limits::ACTION_ENTRIES_MAX;
use crate::{
    Action, Checked, EntryId, Existing, Fsync, Made, NamedEntry, Prepared, RecordedFile, TempName,
};

/// Actions that prepare for what was announced, in order.
#[derive(Debug)]
pub(super) struct Setup {
    queue: VecDeque<Action>,
    nonce: [u8; 16],
}

impl Setup {
    pub(super) fn new(nonce: [u8; 16]) -> Self {
        Self { queue: VecDeque::new(), nonce }
    }

    /// Begins the preparation of an entry that was just announced. Returns the name of its
    /// unpublished file, and whether it has to wait.
    pub(super) fn begin(&mut self, named: NamedEntry, earlier: &mut Earlier) -> (TempName, State) {
        let id = named.id;
        if named.entry.kind == EntryKind::Directory {
            match self.queue.back_mut() {
                Some(Action::MakeDirectories(batch)) if batch.len() < ACTION_ENTRIES_MAX => {
                    batch.push(named);
                }
                _ => self.queue.push_back(Action::MakeDirectories(Vec::from([named]))),
            }
            return (TempName([0; 16]), State::Waiting);
        }
        let (key, size) = (key(&named.entry), named.entry.size);
        let small = TempName::of_small(key);
        if size == 0 {
            return (small, State::Open);
        }
        if let Some(stamp) = earlier.published(&key) {
            let file = RecordedFile { id, entry: named.entry, stamp };
            match self.queue.back_mut() {
                Some(Action::CheckPublished(batch)) if batch.len() < ACTION_ENTRIES_MAX => {
                    batch.push(file);
                }
                _ => self.queue.push_back(Action::CheckPublished(Vec::from([file]))),
            }
            return (small, State::Waiting);
        }
        if !is_large(size) {
            return (small, State::Open);
        }
        let (temp, existing) = earlier
            .begin(id, &key, size)
            .unwrap_or_else(|| (TempName::of_large(key, &self.nonce), Existing::Nothing));
        self.queue.push_back(Action::PrepareFile { file: named, temp, existing });
        (temp, State::Waiting)
    }

    /// What an earlier run left of the large file is gone. Returns the name of the new one.
    fn begin_anew(&mut self, id: EntryId, entry: Arc<Entry>) -> TempName {
        let temp = TempName::of_large(key(&entry), &self.nonce);
        let file = NamedEntry { id, entry };
        self.queue.push_front(Action::PrepareFile { file, temp, existing: Existing::Nothing });
        temp
    }

    /// The next action.
    pub(super) fn poll(&mut self, entries: &mut Entries) -> Option<Action> {
        loop {
            if let Some(Action::PrepareFile { file, .. }) = self.queue.front() {
                let id = file.id;
                if entries.in_state(id, State::Waiting).is_none() {
                    // It failed meanwhile.
                    self.queue.pop_front();
                    continue;
                }
                if !entries.may_prepare() {
                    return None;
                }
                entries.begin_preparing(id);
            }
            return self.queue.pop_front();
        }
    }
}

impl Sink {
    pub(super) fn setup_action(&mut self) -> Option<Action> {
        if !self.wants_messages() {
            return None;
        }
        self.setup.poll(&mut self.entries)
    }

    /// Answers [`Action::MakeDirectories`] for one of its entries.
    pub(super) fn directory_made(&mut self, id: EntryId, result: Result<Made, String>) {
        self.note_made(id, result.as_ref().ok().copied());
        match result {
            Err(reason) => self.fail(id, &reason, Told::No, Kept::Nothing),
            Ok(made) => {
                if made == Made::InPlace && self.fsync == Fsync::End {
                    // An earlier run may have made it and ended before a sync.
                    self.checkpoints.directory_in_place(id);
                }
                self.entries.directory_made(id);
                self.advance();
            }
        }
    }

    /// Answers [`Action::PrepareFile`].
    pub(super) fn prepared(&mut self, id: EntryId, result: Result<Prepared, String>) {
        let Some(slot) = self.entries.get(id) else {
            return;
        };
        if slot.state() != State::Waiting {
            // It failed meanwhile.
            let temp = slot.temp();
            return self.entries.discard(temp);
        }
        match result {
            Err(reason) => self.fail(id, &reason, Told::No, Kept::Part),
            Ok(Prepared::Ready) => {
                self.entries.open(id);
                self.advance();
            }
            Ok(Prepared::Altered) => self.earlier.begin_recheck(id),
            Ok(Prepared::Missing) => {
                self.earlier.forget(id);
                self.prepare_anew(id);
            }
            Ok(Prepared::Published) => {
                self.earlier.forget(id);
                self.entries.found(id);
                self.advance();
            }
        }
    }

    /// Answers [`Action::CheckPublished`] for one of its entries.
    pub(super) fn checked(&mut self, id: EntryId, checked: Checked) {
        let Some(slot) = self.entries.in_state(id, State::Waiting) else {
            return;
        };
        match checked {
            Checked::There => {
                self.entries.recorded(id);
                self.entries.found(id);
                self.advance();
            }
            Checked::Missing if slot.is_large() => self.prepare_anew(id),
            Checked::Missing => {
                self.entries.open(id);
                self.advance();
            }
        }
    }

    fn prepare_anew(&mut self, id: EntryId) {
        if let Some(entry) = self.entries.get(id).and_then(Slot::entry) {
            let temp = self.setup.begin_anew(id, Arc::clone(entry));
            self.entries.prepare_anew(id, temp);
        }
    }
}
