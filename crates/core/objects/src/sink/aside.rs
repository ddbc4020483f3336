//! New directories that are filled before they appear (docs/objects.md section "New directories").

use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::ObjectId;
use longhaul_wire::Entry;

use super::{Sink, State};
use crate::limits::{ACTION_ENTRIES_MAX, ASIDE_BYTES_MAX, ASIDE_FILES_MAX};
use crate::{Action, EntryId, FilledDirectory, Fsync, Made};

/// A directory that may be, or was, made aside, until it is in its place.
#[derive(Debug)]
pub(super) struct Aside {
    entry: Arc<Entry>,
    /// The directory that holds it, and was not in its place when this one was announced.
    parent: Option<EntryId>,
    /// Those that wait for this one.
    children: Vec<EntryId>,
    /// It was made aside; else that is not known yet.
    made: bool,
    /// What is announced next may be written straight into it.
    open: bool,
    /// Files that are written straight into it, and their bytes.
    files: u32,
    bytes: u64,
    /// Those of them that are neither durable nor failed.
    missing: u32,
    /// Groups with parts of them that are being written.
    writing: u32,
    durable: Vec<EntryId>,
    /// Those that failed and may lie in it all the same.
    spoiled: Vec<Arc<Entry>>,
    /// Other files and links in it: they get their names when it has its own.
    waiting: Vec<EntryId>,
    placing: bool,
}

impl Sink {
    /// A directory was announced.
    pub(super) fn begin_directory(
        &mut self,
        id: EntryId,
        parent: Option<EntryId>,
        entry: &Arc<Entry>,
    ) {
        self.close_directory();
        let parent = parent.filter(|parent| self.asides.contains_key(parent));
        if let Some(parent) = parent.and_then(|parent| self.asides.get_mut(&parent)) {
            parent.children.push(id);
        }
        let aside = Aside {
            entry: Arc::clone(entry),
            parent,
            children: Vec::new(),
            made: false,
            open: true,
            files: 0,
            bytes: 0,
            missing: 0,
            writing: 0,
            durable: Vec::new(),
            spoiled: Vec::new(),
            waiting: Vec::new(),
            placing: false,
        };
        self.asides.insert(id, aside);
        self.open_directory = Some(id);
    }

    /// A file or link in `directory` was announced: it is written straight into it, perhaps. What
    /// takes long does not hold up what is there already, so a large file closes the directory.
    pub(super) fn join_directory(&mut self, id: EntryId, directory: Option<EntryId>) {
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        slot.directory = directory.unwrap_or(NOWHERE);
        if self.open_directory.is_none() || directory != self.open_directory || slot.is_large() {
            return self.close_directory();
        }
        let readable = slot.entry.as_ref().is_some_and(|entry| entry.mode & OWNER_READS != 0);
        let Some(aside) = directory.and_then(|directory| self.asides.get_mut(&directory)) else {
            return;
        };
        if slot.state == State::Open && slot.size > 0 && readable {
            slot.aside = true;
            aside.files += 1;
            aside.bytes += slot.size;
            aside.missing += 1;
            if aside.files >= ASIDE_FILES_MAX || aside.bytes >= ASIDE_BYTES_MAX {
                self.close_directory();
            }
        }
    }

    /// Nothing more is written straight into the directory that was announced last.
    pub(super) fn close_directory(&mut self) {
        if let Some(id) = self.open_directory.take() {
            if let Some(aside) = self.asides.get_mut(&id) {
                aside.open = false;
            }
            self.place_if_whole(id);
        }
    }

    /// The driver has made a directory, or has not.
    pub(super) fn note_made(&mut self, id: EntryId, made: Option<Made>) {
        if made != Some(Made::Aside) {
            self.open_directory = self.open_directory.filter(|open| *open != id);
            self.leave_aside(id);
        } else if let Some(aside) = self.asides.get_mut(&id) {
            aside.made = true;
            self.place_if_whole(id);
        }
    }

    /// A file of an accepted object: only one that is not made aside, or comes in one piece, can be
    /// written straight into its directory.
    pub(super) fn settle_where(&mut self, id: EntryId, groups: u32) {
        let Some(slot) = self.slots.get_mut(id.0).filter(|slot| slot.aside) else {
            return;
        };
        let directory = slot.directory;
        match self.asides.get_mut(&directory).filter(|aside| aside.made) {
            Some(_) if groups == 1 => {}
            Some(aside) => {
                slot.aside = false;
                aside.missing -= 1;
                self.place_if_whole(directory);
            }
            None => slot.aside = false,
        }
    }

    /// A group is about to be written of which parts go straight into `directories`.
    pub(super) fn begin_aside(&mut self, group: (ObjectId, u32), directories: Vec<EntryId>) {
        for directory in &directories {
            if let Some(aside) = self.asides.get_mut(directory) {
                aside.writing += 1;
            }
        }
        if !directories.is_empty() {
            self.aside_writes.insert(group, directories);
        }
    }

    /// That write has ended.
    pub(super) fn end_aside(&mut self, group: (ObjectId, u32)) {
        for directory in self.aside_writes.remove(&group).unwrap_or_default() {
            if let Some(aside) = self.asides.get_mut(&directory) {
                aside.writing -= 1;
                self.place_if_whole(directory);
            }
        }
    }

    /// A file that may have been written straight into `directory` failed.
    pub(super) fn spoil(&mut self, directory: EntryId, entry: &Arc<Entry>) {
        if let Some(aside) = self.asides.get_mut(&directory) {
            aside.missing -= 1;
            aside.spoiled.push(Arc::clone(entry));
            self.place_if_whole(directory);
        }
    }

    /// These files are whole and durable. Those whose directory is complete get their names with
    /// it, those that have to wait for it are recorded; the others can be published.
    pub(super) fn keep(&mut self, files: Vec<EntryId>) -> Vec<EntryId> {
        let mut others = Vec::new();
        let mut kept = Vec::new();
        for id in files {
            let Some(slot) = self.slots.get_mut(id.0).filter(|slot| slot.state == State::Whole)
            else {
                continue;
            };
            match self.asides.get_mut(&slot.directory).filter(|_| slot.aside) {
                Some(aside) => {
                    slot.state = State::Aside;
                    aside.missing -= 1;
                    aside.durable.push(id);
                    kept.push((id, slot.directory));
                }
                None => others.push(id),
            }
        }
        let mut last = None;
        for (id, directory) in kept {
            if last != Some(directory) {
                last = Some(directory);
                self.place_if_whole(directory);
            }
            let waits = self.asides.get(&directory).is_some_and(|aside| !aside.placing);
            if waits {
                self.kept.push(id);
            }
        }
        others
    }

    /// Whether the file has to wait for its directory; then it does.
    pub(super) fn waits_for_directory(&mut self, id: EntryId) -> bool {
        let directory = self.slots.get(id.0).map_or(NOWHERE, |slot| slot.directory);
        let aside = self.asides.get_mut(&directory);
        aside.map(|aside| aside.waiting.push(id)).is_some()
    }

    pub(super) fn place_action(&mut self) -> Option<Action> {
        let mut batch = Vec::new();
        while batch.len() < ACTION_ENTRIES_MAX
            && let Some(id) = self.placeable.pop_front()
        {
            if let Some(aside) = self.asides.get_mut(&id) {
                let spoiled = core::mem::take(&mut aside.spoiled);
                batch.push(FilledDirectory { id, entry: Arc::clone(&aside.entry), spoiled });
            }
        }
        (!batch.is_empty()).then_some(Action::PlaceDirectories(batch))
    }

    /// Answers [`Action::PlaceDirectories`] for one of its entries. What is in one that could not
    /// be placed is published one by one, from where it lies.
    pub(super) fn directory_placed(&mut self, id: EntryId, is_placed: bool) {
        let Some(aside) = self.asides.get_mut(&id).filter(|aside| aside.placing) else {
            return;
        };
        let durable = core::mem::take(&mut aside.durable);
        for file in durable {
            let slot = self.slots.get_mut(file.0);
            let Some(slot) = slot.filter(|slot| slot.state == State::Aside) else {
                continue;
            };
            if is_placed {
                slot.state = State::Named;
                self.unnamed -= 1;
                self.got_name(file);
            } else {
                slot.state = State::Whole;
                self.publishable.push_back(file);
            }
        }
        if is_placed && self.config.fsync == Fsync::End {
            self.placed.push(id);
        }
        self.leave_aside(id);
    }

    /// The directory is in its place, or cannot be.
    fn leave_aside(&mut self, id: EntryId) {
        let Some(aside) = self.asides.remove(&id) else {
            return;
        };
        self.publishable.extend(aside.waiting);
        for child in aside.children {
            if let Some(aside) = self.asides.get_mut(&child) {
                aside.parent = None;
            }
            self.place_if_whole(child);
        }
    }

    fn place_if_whole(&mut self, id: EntryId) {
        let Some(aside) = self.asides.get_mut(&id) else {
            return;
        };
        let is_whole = aside.made && !aside.open && aside.missing == 0 && aside.writing == 0;
        if is_whole && aside.parent.is_none() && !aside.placing {
            aside.placing = true;
            self.placeable.push_back(id);
        }
    }
}

/// Number of no directory: there are fewer entries.
pub(super) const NOWHERE: EntryId = EntryId(u32::MAX);

/// A file that its owner may not read cannot be opened again to be synced.
const OWNER_READS: u16 = 0o400;
