//! New directories that are filled before they appear (docs/objects.md section "New directories").

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use longhaul_units::ObjectId;
use longhaul_wire::Entry;

use super::Sink;
use super::entries::{Entries, Slot, State};
use crate::action::{Action, FilledDirectory, Made};
use crate::entry::EntryId;
use crate::entry::{cost, is_large, own_name};
use crate::limits::{ACTION_ENTRIES_MAX, ASIDE_BYTES_MAX, ASIDE_COST, ASIDE_NAMES_MAX};
use crate::name_memory::NameMemory;
use crate::record::Fsync;

/// A directory that may be, or was, staged, until it is in its place.
#[derive(Debug)]
struct StagedDirectory {
    /// The directory that holds it, and was not in its place when this one was announced.
    parent: Option<EntryId>,
    /// Those that wait for this one.
    children: Vec<EntryId>,
    /// It was staged; else that is not known yet.
    made: bool,
    /// True while files that are announced next may be written straight into it.
    open: bool,
    /// Bytes of the files that are written straight into it.
    bytes: u64,
    /// Memory of the files and links in it that were announced while it was open.
    held: u64,
    /// Of [`NameMemory`]: what it takes until it is in its place, whatever becomes of its files.
    taken: u64,
    /// Those of them that are neither durable nor failed.
    missing: u32,
    /// Groups with parts of them that are being written.
    writing: u32,
    durable: Vec<EntryId>,
    /// Own names of those that failed and may lie in it all the same.
    spoiled: Vec<Box<[u8]>>,
    /// Other files and links in it: they get their names when it has its own.
    waiting: Vec<EntryId>,
    placing: bool,
}

/// The directories that are not in their places, perhaps.
#[derive(Debug, Default)]
pub(super) struct StagedDirectories {
    directories: BTreeMap<EntryId, StagedDirectory>,
    /// The one of them that files may be announced in.
    open: Option<EntryId>,
    /// Those of them that are complete.
    placeable: VecDeque<EntryId>,
    /// Groups with parts that are written straight into some of them.
    writes: BTreeMap<(ObjectId, u32), Vec<EntryId>>,
}

/// The files of a directory that is in its place, or cannot be.
pub(super) struct Left {
    /// Durable in it.
    pub(super) durable: Vec<EntryId>,
    /// They can get their names now.
    pub(super) waiting: Vec<EntryId>,
    /// Memory for names that is free.
    taken: u64,
}

impl StagedDirectories {
    pub(super) fn are_placed(&self) -> bool {
        self.directories.is_empty()
    }

    /// A directory was announced.
    pub(super) fn announce(
        &mut self,
        id: EntryId,
        parent: Option<EntryId>,
        names: &mut NameMemory,
    ) {
        names.take(ASIDE_COST);
        self.close();
        let parent = parent.filter(|parent| self.directories.contains_key(parent));
        if let Some(parent) = parent.and_then(|parent| self.directories.get_mut(&parent)) {
            parent.children.push(id);
        }
        let staged = StagedDirectory {
            parent,
            children: Vec::new(),
            made: false,
            open: true,
            bytes: 0,
            held: 0,
            taken: ASIDE_COST,
            missing: 0,
            writing: 0,
            durable: Vec::new(),
            spoiled: Vec::new(),
            waiting: Vec::new(),
            placing: false,
        };
        self.directories.insert(id, staged);
        self.open = Some(id);
    }

    /// A file or link in `directory` was announced. Returns whether it is written straight into it,
    /// perhaps. What takes long does not hold up what is there already, so a large file closes the
    /// directory.
    pub(super) fn admits(
        &mut self,
        directory: Option<EntryId>,
        entry: &Entry,
        state: State,
        names: &mut NameMemory,
    ) -> bool {
        if self.open.is_none() || directory != self.open || is_large(entry) {
            self.close();
            return false;
        }
        let Some(staged) = directory.and_then(|id| self.directories.get_mut(&id)) else {
            return false;
        };
        staged.held += cost(entry);
        let is_readable = entry.mode & OWNER_READS != 0;
        let fits = state == State::Open && entry.data_len() > 0 && is_readable;
        let is_admitted = fits && names.is_plentiful();
        if is_admitted {
            let own = SPOILED_COST + own_name(entry).len() as u64;
            names.take(own);
            staged.taken += own;
            staged.bytes += entry.size;
            staged.missing += 1;
        }
        if fits && !is_admitted || staged.held >= ASIDE_NAMES_MAX || staged.bytes >= ASIDE_BYTES_MAX
        {
            self.close();
        }
        is_admitted
    }

    /// Nothing more is written straight into the directory that was announced last.
    pub(super) fn close(&mut self) {
        if let Some(id) = self.open.take() {
            if let Some(staged) = self.directories.get_mut(&id) {
                staged.open = false;
            }
            self.place_if_whole(id);
        }
    }

    /// The driver has made the directory, or staged it.
    pub(super) fn was_staged(&mut self, id: EntryId) {
        if let Some(staged) = self.directories.get_mut(&id) {
            staged.made = true;
            self.place_if_whole(id);
        }
    }

    /// True of a directory that was staged, and is not in its place.
    pub(super) fn is_staged(&self, id: EntryId) -> bool {
        self.directories.get(&id).is_some_and(|staged| staged.made)
    }

    /// The driver has made the directory in its place, or has not made it.
    pub(super) fn not_staged(&mut self, id: EntryId) -> Option<Left> {
        self.open = self.open.filter(|open| *open != id);
        self.leave(id)
    }

    /// True if a file of an accepted object stays one that is written straight into `directory`: only
    /// if that is staged, and the file comes in one piece.
    pub(super) fn keeps(&mut self, directory: EntryId, groups: u32) -> bool {
        let staged = self.directories.get_mut(&directory).filter(|staged| staged.made);
        let Some(staged) = staged else {
            return false;
        };
        if groups == 1 {
            return true;
        }
        staged.missing -= 1;
        self.place_if_whole(directory);
        false
    }

    /// A group is about to be written of which parts go straight into `directories`.
    pub(super) fn begin_write(&mut self, group: (ObjectId, u32), directories: Vec<EntryId>) {
        for directory in &directories {
            if let Some(staged) = self.directories.get_mut(directory) {
                staged.writing += 1;
            }
        }
        if !directories.is_empty() {
            self.writes.insert(group, directories);
        }
    }

    /// That write has ended.
    pub(super) fn end_write(&mut self, group: (ObjectId, u32)) {
        for directory in self.writes.remove(&group).unwrap_or_default() {
            if let Some(staged) = self.directories.get_mut(&directory) {
                staged.writing -= 1;
                self.place_if_whole(directory);
            }
        }
    }

    /// A file that may have been written straight into `directory` failed.
    pub(super) fn spoil(&mut self, directory: EntryId, entry: &Entry) {
        if let Some(staged) = self.directories.get_mut(&directory) {
            staged.missing -= 1;
            staged.spoiled.push(own_name(entry).into());
            self.place_if_whole(directory);
        }
    }

    /// The file, which was written straight into `directory`, is whole and durable. Returns whether it
    /// gets its name with that; [`StagedDirectories::has_to_wait`] comes next, after all that are durable now.
    pub(super) fn became_durable(&mut self, directory: EntryId, file: EntryId) -> bool {
        let Some(staged) = self.directories.get_mut(&directory) else {
            return false;
        };
        staged.missing -= 1;
        staged.durable.push(file);
        true
    }

    /// True if the directory with durable files is not complete, or waits for another.
    pub(super) fn has_to_wait(&mut self, directory: EntryId) -> bool {
        self.place_if_whole(directory);
        self.directories.get(&directory).is_some_and(|staged| !staged.placing)
    }

    /// True if the file has to wait for `directory` to get its name; then it does.
    pub(super) fn holds_up(&mut self, directory: EntryId, file: EntryId) -> bool {
        let staged = self.directories.get_mut(&directory);
        staged.map(|staged| staged.waiting.push(file)).is_some()
    }

    /// The next [`Action::PlaceDirectories`].
    pub(super) fn poll(&mut self, entries: &Entries) -> Option<Action> {
        let mut batch = Vec::new();
        while batch.len() < ACTION_ENTRIES_MAX
            && let Some(id) = self.placeable.pop_front()
        {
            if let Some(staged) = self.directories.get_mut(&id)
                && let Some(directory) = entries.directory(id)
            {
                let spoiled = core::mem::take(&mut staged.spoiled);
                batch.push(FilledDirectory { id, entry: directory.entry(), spoiled });
            }
        }
        (!batch.is_empty()).then_some(Action::PlaceDirectories(batch))
    }

    /// The driver was asked to place the directory, and has or cannot.
    pub(super) fn placed(&mut self, id: EntryId) -> Option<Left> {
        self.directories.get(&id).filter(|staged| staged.placing)?;
        self.leave(id)
    }

    /// The directory is in its place, or cannot be.
    fn leave(&mut self, id: EntryId) -> Option<Left> {
        let staged = self.directories.remove(&id)?;
        for child in staged.children {
            if let Some(staged) = self.directories.get_mut(&child) {
                staged.parent = None;
            }
            self.place_if_whole(child);
        }
        Some(Left { durable: staged.durable, waiting: staged.waiting, taken: staged.taken })
    }

    fn place_if_whole(&mut self, id: EntryId) {
        let Some(staged) = self.directories.get_mut(&id) else {
            return;
        };
        let is_whole = staged.made && !staged.open && staged.missing == 0 && staged.writing == 0;
        if is_whole && staged.parent.is_none() && !staged.placing {
            staged.placing = true;
            self.placeable.push_back(id);
        }
    }
}

impl Sink {
    /// The driver has made a directory, or has not.
    pub(super) fn note_made(&mut self, id: EntryId, made: Option<Made>) {
        if made == Some(Made::Aside) {
            self.staged.was_staged(id);
        } else if let Some(left) = self.staged.not_staged(id) {
            self.entries.names.give_back(left.taken);
            self.publications.add(left.waiting);
        }
    }

    /// A file of an accepted object, of which it has so many groups.
    pub(super) fn settle_where(&mut self, id: EntryId, groups: u32) {
        if let Some(directory) = self.entries.get(id).and_then(Slot::aside)
            && !self.staged.keeps(directory, groups)
        {
            self.entries.write_apart(id);
        }
    }

    /// These files are whole and durable. Those whose directory is complete get their names with
    /// it, those that have to wait for it are recorded; the others can be published.
    pub(super) fn keep(&mut self, files: Vec<EntryId>) -> Vec<EntryId> {
        let mut others = Vec::new();
        let mut kept = Vec::new();
        for id in files {
            let Some(slot) = self.entries.in_state(id, State::Whole) else {
                continue;
            };
            match slot.aside() {
                Some(directory) if self.staged.became_durable(directory, id) => {
                    self.entries.became_durable_aside(id);
                    kept.push((directory, id));
                }
                _ => others.push(id),
            }
        }
        for kept in kept.chunk_by(|a, b| a.0 == b.0) {
            if self.staged.has_to_wait(kept[0].0) {
                self.recorder.keep(kept.iter().map(|(_, id)| *id));
            }
        }
        others
    }

    /// Answers [`Action::PlaceDirectories`] for one of its entries. What is in one that could not
    /// be placed is published one by one, from where it lies.
    pub(super) fn directory_placed(&mut self, id: EntryId, is_placed: bool) {
        let Some(left) = self.staged.placed(id) else {
            return;
        };
        self.entries.names.give_back(left.taken);
        for file in left.durable {
            if is_placed && self.entries.in_state(file, State::Aside).is_some() {
                self.named(file);
            } else if self.entries.stayed_aside(file) {
                self.publications.add([file]);
            }
        }
        if self.fsync == Fsync::End {
            // Where it was not placed somebody has made one with its name meanwhile.
            self.checkpoints.directory_in_place(id);
        }
        self.publications.add(left.waiting);
    }
}

/// A file that its owner may not read cannot be opened again to be synced.
const OWNER_READS: u16 = 0o400;
/// Memory for the name of a file that failed, beside its bytes.
const SPOILED_COST: u64 = 32;
