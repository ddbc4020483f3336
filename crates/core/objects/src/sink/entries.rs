//! The entries that are announced and not settled: where each of them is, and how many are where.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_wire::{Entry, HardLink};

use super::Kept;
use crate::action::{NamedEntry, NamedFile, Publication, WritePiece};
use crate::directory::{Directory, Named};
use crate::entry::{EntryId, EntryKey, TempName};
use crate::entry::{cost, is_large, key};
use crate::layout::Part;
use crate::limits::PREPARED_MAX;
use crate::name_memory::NameMemory;
use crate::record::{Claim, Recorded};
use crate::window::Window;

#[derive(Debug)]
pub(super) struct Entries {
    slots: Window<Slot>,
    /// Entries below are prepared, but for those that are so again.
    ready: u32,
    /// Files below that were prepared once more.
    again: Vec<EntryId>,
    /// Directories, which get their modes and times at the end.
    directories: BTreeMap<EntryId, Arc<Directory>>,
    /// Memory of those names.
    pub(super) names: NameMemory,
    /// Memory of files and links that are not settled.
    held: u64,
    /// Of those that the source counts as failed, though they keep their names.
    waived: u64,
    /// Directories not made yet.
    unmade: u32,
    /// Large files that are being prepared, or are and are not whole.
    prepared: u32,
    /// Files and links that are not received whole.
    unfinished: u32,
    /// Files and links that do not have their names.
    unnamed: u32,
    /// Unpublished files that nobody needs.
    discarded: Vec<TempName>,
}

/// State of one entry.
#[derive(Debug)]
pub(super) struct Slot {
    /// `None` when settled, and for directories.
    entry: Option<Arc<Entry>>,
    /// Bytes of its contents, without holes, as they were announced.
    size: u64,
    is_large: bool,
    temp: TempName,
    directory: Option<EntryId>,
    /// Written straight into its directory.
    aside: bool,
    /// Recorded as published, by an earlier run or while its directory had to wait.
    recorded: bool,
    /// The record had something else published under its name.
    replaces: bool,
    object: u32,
    /// Groups not verified and written.
    left: u32,
    state: State,
    /// The next checkpoint is to sync it.
    dirty: bool,
    /// Counted in [`Entries::prepared`].
    prepared: bool,
    /// Counted in [`Entries::waived`].
    waived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not prepared.
    Waiting,
    /// Prepared; contents are missing.
    Open,
    /// Under its name, where an earlier run or the check of this one has put it, and perhaps not
    /// durable there; its object is not accepted or its groups are awaited.
    Found,
    /// Received whole.
    Whole,
    /// Durable in its directory, which is not in its place.
    Aside,
    /// About to get its name.
    Publishing,
    /// Has its name.
    Named,
    /// Confirmed, failed, or a directory that was made and is kept elsewhere.
    Settled,
}

/// Initial state of an entry.
pub(super) struct Beginning {
    pub(super) temp: TempName,
    /// [`State::Waiting`] for its preparation, or [`State::Open`] where it needs none.
    pub(super) state: State,
    /// Directory that holds it.
    pub(super) directory: Option<EntryId>,
    /// It is written straight into that.
    pub(super) aside: bool,
}

/// An entry that failed, as it was.
pub(super) struct Failed {
    pub(super) entry: Arc<Entry>,
    pub(super) object: u32,
    /// The directory that it may have been written straight into.
    pub(super) aside: Option<EntryId>,
    /// Its unpublished file, where no later run is to find that.
    pub(super) discarded: Option<TempName>,
    /// Its bytes, if all of them were there.
    pub(super) whole: Option<u64>,
}

impl Entries {
    pub(super) fn new() -> Self {
        Self {
            slots: Window::new(),
            ready: 0,
            again: Vec::new(),
            directories: BTreeMap::new(),
            names: NameMemory::new(),
            held: 0,
            waived: 0,
            unmade: 0,
            prepared: 0,
            unfinished: 0,
            unnamed: 0,
            discarded: Vec::new(),
        }
    }

    /// Number that the next entry gets.
    pub(super) fn end(&self) -> u32 {
        self.slots.end()
    }

    /// Entries below are prepared.
    pub(super) fn ready(&self) -> u32 {
        self.ready
    }

    /// Memory of files and links that are not settled.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// The same as far as the source is to count it.
    pub(super) fn held_for_source(&self) -> u64 {
        self.held - self.waived
    }

    /// Entries that are not forgotten.
    pub(super) fn window(&self) -> u32 {
        self.slots.end() - self.slots.base()
    }

    /// True if every file and link was received whole, or failed.
    pub(super) fn are_received(&self) -> bool {
        self.unfinished == 0
    }

    /// True if every directory is made and everything else has its name, but for what failed.
    pub(super) fn are_named(&self) -> bool {
        self.unnamed == 0 && self.unmade == 0
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Slot> {
        self.slots.get(id.0)
    }

    /// The entry, while that is not forgotten.
    pub(super) fn in_state(&self, id: EntryId, state: State) -> Option<&Slot> {
        self.get(id).filter(|slot| slot.state == state)
    }

    fn in_state_mut(&mut self, id: EntryId, state: State) -> Option<&mut Slot> {
        self.slots.get_mut(id.0).filter(|slot| slot.state == state)
    }

    /// The entry, while it is neither confirmed nor failed.
    pub(super) fn named(&self, id: EntryId) -> Option<Named> {
        match self.directories.get(&id) {
            Some(directory) => Some(Named::Directory(Arc::clone(directory))),
            None => self.get(id)?.entry.clone().map(Named::Other),
        }
    }

    /// A directory that is neither confirmed nor failed.
    pub(super) fn directory(&self, id: EntryId) -> Option<&Arc<Directory>> {
        self.directories.get(&id)
    }

    /// Some directories below `bound`, at most so many, children first.
    pub(super) fn directories_below(&self, bound: EntryId, most: usize) -> Vec<NamedEntry> {
        let named = |(id, directory): (&EntryId, &Arc<Directory>)| NamedEntry {
            id: *id,
            entry: directory.entry(),
        };
        self.directories.range(..bound).rev().take(most).map(named).collect()
    }

    pub(super) fn announce(&mut self, entry: &Arc<Entry>, beginning: Beginning) {
        self.unfinished += 1;
        self.unnamed += 1;
        self.held += cost(entry);
        let Beginning { temp, state, directory, aside } = beginning;
        self.slots.push(Slot {
            entry: Some(Arc::clone(entry)),
            size: entry.data_len(),
            is_large: is_large(entry),
            temp,
            directory,
            aside,
            ..Slot::empty(state)
        });
    }

    /// A directory was announced, which is to be made.
    pub(super) fn announce_directory(&mut self, id: EntryId, directory: Arc<Directory>) {
        self.unmade += 1;
        self.names.take(directory.cost());
        self.directories.insert(id, directory);
        self.slots.push(Slot::empty(State::Waiting));
    }

    /// An entry was announced that is not taken in.
    pub(super) fn leave_out(&mut self, entry: &Entry) {
        let (size, is_large) = (entry.data_len(), is_large(entry));
        self.slots.push(Slot { size, is_large, ..Slot::empty(State::Settled) });
    }

    /// The entry is within the range of an object. Returns the size of what it adds to that, if it
    /// adds anything, and whether it is large.
    pub(super) fn join_object(&mut self, id: EntryId, object: u32) -> Option<(u64, bool)> {
        let slot = self.slots.get_mut(id.0).filter(|slot| slot.size > 0)?;
        slot.object = object;
        Some((slot.size, slot.is_large))
    }

    /// The directory is made.
    pub(super) fn directory_made(&mut self, id: EntryId) {
        let Some(slot) = self.in_state_mut(id, State::Waiting) else {
            return;
        };
        slot.state = State::Settled;
        self.unmade -= 1;
    }

    /// The source has lost the file or link, which keeps its name here.
    pub(super) fn waive(&mut self, id: EntryId) {
        let Some(slot) = self.slots.get_mut(id.0).filter(|slot| !slot.waived) else {
            return;
        };
        if let Some(entry) = &slot.entry {
            slot.waived = true;
            self.waived += cost(entry);
        }
    }

    /// True if one more large file may be prepared.
    pub(super) fn may_prepare(&self) -> bool {
        self.prepared < PREPARED_MAX
    }

    /// The large file is about to be prepared.
    pub(super) fn begin_preparing(&mut self, id: EntryId) {
        if let Some(slot) = self.in_state_mut(id, State::Waiting) {
            slot.prepared = true;
            self.prepared += 1;
        }
    }

    /// Starts a large file again under another name: what an earlier run left of it is gone.
    pub(super) fn prepare_anew(&mut self, id: EntryId, temp: TempName) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.temp = temp;
            self.prepared -= slot.take_prepared();
        }
    }

    /// The file is prepared.
    pub(super) fn open(&mut self, id: EntryId) {
        let is_again = id.0 < self.ready;
        if let Some(slot) = self.in_state_mut(id, State::Waiting) {
            slot.state = State::Open;
            self.again.extend(is_again.then_some(id));
        }
    }

    /// The later name, which has no contents, is a first: it waits as such. Returns the entry.
    pub(super) fn become_first(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        self.in_state_mut(id, State::Whole)?.state = State::Waiting;
        self.unfinished += 1;
        self.link(id, HardLink::First)
    }

    /// The first name is made one of another, as a later name is. Returns the bytes of its contents.
    pub(super) fn found_elsewhere(&mut self, id: EntryId) -> u64 {
        self.link(id, HardLink::To(id.as_wire()));
        self.open(id);
        self.get(id).map_or(0, Slot::size)
    }

    /// Makes the entry, which waits, one of several names. Returns it.
    fn link(&mut self, id: EntryId, link: HardLink) -> Option<Arc<Entry>> {
        let slot = self.in_state_mut(id, State::Waiting)?;
        let old = slot.entry.take()?;
        let new = Arc::new(Entry::clone(&old).with_link(link));
        slot.entry = Some(Arc::clone(&new));
        let (more, less) = (cost(&new), cost(&old));
        if slot.waived {
            self.waived = self.waived + more - less;
        }
        self.held = self.held + more - less;
        Some(new)
    }

    /// A small file or a link that was open has to wait. Returns whether it is such.
    pub(super) fn wait_again(&mut self, id: EntryId) -> bool {
        let slot = self.in_state_mut(id, State::Open).filter(|slot| slot.entry.is_some());
        let Some(slot) = slot.filter(|slot| !slot.is_large) else {
            return false;
        };
        slot.state = State::Waiting;
        slot.aside = false;
        true
    }

    /// The file is under its name already.
    pub(super) fn found(&mut self, id: EntryId) {
        if let Some(slot) = self.in_state_mut(id, State::Waiting) {
            slot.state = State::Found;
            self.prepared -= slot.take_prepared();
            self.unfinished -= 1;
        }
    }

    /// Marks a file to be received, once it is prepared: under its name is something else.
    pub(super) fn unfound(&mut self, id: EntryId) -> Option<EntryKey> {
        let slot = self.in_state_mut(id, State::Found)?;
        slot.state = if slot.is_large() { State::Waiting } else { State::Open };
        (slot.recorded, slot.replaces) = (false, true);
        self.unfinished += 1;
        self.get(id)?.entry.as_deref().map(key)
    }

    /// Identity of its contents, while it is not settled.
    pub(super) fn identity(&self, id: EntryId) -> Option<[u8; 16]> {
        Some(self.get(id)?.entry()?.identity)
    }

    /// Passes what is prepared. Returns what is whole with that, since it has no contents.
    pub(super) fn pass_prepared(&mut self) -> Vec<EntryId> {
        let mut whole = Vec::new();
        for id in core::mem::take(&mut self.again) {
            whole.extend(self.whole_without_contents(id));
        }
        while self.slots.get_mut(self.ready).is_some_and(|slot| slot.state != State::Waiting) {
            whole.extend(self.whole_without_contents(EntryId(self.ready)));
            self.ready += 1;
        }
        whole
    }

    fn whole_without_contents(&mut self, id: EntryId) -> Option<EntryId> {
        let slot = self.in_state_mut(id, State::Open)?;
        if slot.entry.as_ref().is_some_and(|entry| entry.data_len() > 0) {
            return None;
        }
        slot.state = State::Whole;
        self.unfinished -= 1;
        Some(id)
    }

    /// The file cannot be written straight into its directory.
    pub(super) fn write_apart(&mut self, id: EntryId) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.aside = false;
        }
    }

    /// The file waits for so many groups of its object.
    pub(super) fn await_groups(&mut self, id: EntryId, groups: u32) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.left = groups;
        }
    }

    /// So many groups are there from an earlier run.
    pub(super) fn groups_resumed(&mut self, id: EntryId, groups: u32) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.left -= groups;
        }
    }

    /// A group is verified and written, or nobody needs it. Returns the state of the file if it was
    /// the last that this waited for.
    pub(super) fn group_finished(&mut self, id: EntryId) -> Option<State> {
        let slot = self.slots.get_mut(id.0).filter(|slot| slot.state.awaits_groups())?;
        slot.left -= 1;
        (slot.left == 0).then_some(slot.state)
    }

    /// Claim of a verified group for the record, if it is one of a large file.
    pub(super) fn claim(&self, id: EntryId, (group, value, tag): Recorded) -> Option<Claim> {
        let slot = self.get(id).filter(|slot| slot.state == State::Open && slot.is_large())?;
        Some(Claim { id, key: key(slot.entry.as_ref()?), temp: slot.temp, group, value, tag })
    }

    /// The file was written to. Returns what to sync at the next checkpoint, if that is not known.
    pub(super) fn written(&mut self, id: EntryId) -> Option<(EntryId, TempName)> {
        let slot = self.in_state_mut(id, State::Open).filter(|slot| !slot.dirty)?;
        slot.dirty = true;
        Some((id, slot.temp))
    }

    /// Notes that what was written to the file up to now is about to be synced.
    pub(super) fn begin_sync(&mut self, (id, temp): (EntryId, TempName)) -> NamedFile {
        let slot = self.slots.get_mut(id.0);
        let aside = slot.and_then(|slot| {
            slot.dirty = false;
            slot.entry.as_ref().filter(|_| slot.aside).cloned()
        });
        NamedFile { id, temp, aside }
    }

    /// Everything of the file is verified and written.
    pub(super) fn became_whole(&mut self, id: EntryId) {
        if let Some(slot) = self.in_state_mut(id, State::Open) {
            slot.state = State::Whole;
            self.prepared -= slot.take_prepared();
            self.unfinished -= 1;
        }
    }

    /// True where it takes the place of what the record tells to be published.
    pub(super) fn replaces(&self, id: EntryId) -> bool {
        self.get(id).is_some_and(|slot| slot.replaces)
    }

    /// The file is durable in its directory, and gets its name with it.
    pub(super) fn became_durable_aside(&mut self, id: EntryId) {
        if let Some(slot) = self.in_state_mut(id, State::Whole) {
            slot.state = State::Aside;
        }
    }

    /// The directory with the file cannot be placed. Returns whether the file needs its name.
    pub(super) fn stayed_aside(&mut self, id: EntryId) -> bool {
        let slot = self.in_state_mut(id, State::Aside);
        slot.map(|slot| slot.state = State::Whole).is_some()
    }

    /// The file, where it is durable in a directory that is not in its place.
    pub(super) fn kept_file(&self, id: EntryId) -> Option<NamedFile> {
        let slot = self.in_state(id, State::Aside)?;
        Some(NamedFile { id, temp: slot.temp, aside: Some(Arc::clone(slot.entry.as_ref()?)) })
    }

    /// The record has an entry of the file as published.
    pub(super) fn recorded(&mut self, id: EntryId) -> Option<EntryKey> {
        let slot = self.slots.get_mut(id.0)?;
        slot.recorded = true;
        slot.entry.as_deref().map(key)
    }

    /// Key for the record of a file whose name is durable, if it is not recorded yet.
    pub(super) fn unrecorded(&self, id: EntryId) -> Option<EntryKey> {
        let slot = self.get(id).filter(|slot| !slot.recorded)?;
        slot.entry.as_deref().filter(|entry| entry.data_len() > 0).map(key)
    }

    /// The file is about to get its name, unless it failed meanwhile.
    pub(super) fn begin_publishing(&mut self, id: EntryId) -> Option<Publication> {
        let slot = self.in_state_mut(id, State::Whole)?;
        let entry = Arc::clone(slot.entry.as_ref()?);
        slot.state = State::Publishing;
        Some(Publication { id, entry, temp: slot.temp, aside: slot.aside, first: None })
    }

    /// The file has its name: it was published, with its directory perhaps, or by an earlier run.
    pub(super) fn got_name(&mut self, id: EntryId) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.state = State::Named;
            self.unnamed -= 1;
        }
    }

    /// Ends an entry that is durable under its name. Returns its bytes.
    pub(super) fn confirm(&mut self, id: EntryId) -> Option<u64> {
        if self.remove_directory(id).is_some() {
            return Some(0);
        }
        let slot = self.slots.get_mut(id.0)?;
        let entry = slot.entry.take()?;
        slot.state = State::Settled;
        self.held -= cost(&entry);
        if core::mem::take(&mut slot.waived) {
            self.waived -= cost(&entry);
        }
        Some(entry.data_len())
    }

    /// Ends a directory that was made.
    pub(super) fn fail_made(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        if self.in_state(id, State::Waiting).is_some() {
            return None;
        }
        self.remove_directory(id).map(|directory| directory.entry())
    }

    fn remove_directory(&mut self, id: EntryId) -> Option<Arc<Directory>> {
        let directory = self.directories.remove(&id)?;
        self.names.give_back(directory.cost());
        Some(directory)
    }

    /// Ends an entry that does not have its name.
    pub(super) fn fail(&mut self, id: EntryId, kept: Kept) -> Option<Failed> {
        let slot = self.slots.get_mut(id.0)?;
        let was = slot.state;
        if !matches!(was, State::Waiting | State::Open | State::Whole | State::Publishing) {
            return None;
        }
        slot.state = State::Settled;
        self.prepared -= slot.take_prepared();
        let aside = core::mem::take(&mut slot.aside).then_some(slot.directory).flatten();
        let object = slot.object;
        let Some(entry) = slot.entry.take() else {
            self.unmade -= 1;
            let entry = self.remove_directory(id)?.entry();
            return Some(Failed { entry, object, aside, discarded: None, whole: None });
        };
        self.held -= cost(&entry);
        self.unnamed -= 1;
        self.unfinished -= u32::from(matches!(was, State::Waiting | State::Open));
        let discards = match kept {
            Kept::Nothing => true,
            Kept::Part => !slot.is_large(),
            Kept::Untouched => false,
        };
        let discarded = discards.then_some(slot.temp);
        self.discarded.extend(discarded);
        let is_whole = matches!(was, State::Whole | State::Publishing);
        let whole = is_whole.then(|| entry.data_len());
        Some(Failed { entry, object, aside, discarded, whole })
    }

    /// A file was prepared that failed meanwhile.
    pub(super) fn discard(&mut self, temp: TempName) {
        self.discarded.push(temp);
    }

    pub(super) fn take_discarded(&mut self) -> Vec<TempName> {
        core::mem::take(&mut self.discarded)
    }

    /// Forgets what is settled at the front, if it is prepared and below `bound`.
    pub(super) fn forget(&mut self, bound: u32) {
        let bound = bound.min(self.ready);
        self.slots.forget_while(|number, slot| number < bound && slot.state == State::Settled);
    }
}

impl Slot {
    fn empty(state: State) -> Self {
        Self {
            entry: None,
            size: 0,
            is_large: false,
            temp: TempName([0; 16]),
            directory: None,
            aside: false,
            recorded: false,
            replaces: false,
            object: NO_OBJECT,
            left: 0,
            state,
            dirty: false,
            prepared: false,
            waived: false,
        }
    }

    pub(super) fn entry(&self) -> Option<&Arc<Entry>> {
        self.entry.as_ref()
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn temp(&self) -> TempName {
        self.temp
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Directory that holds it.
    pub(super) fn directory(&self) -> Option<EntryId> {
        self.directory
    }

    /// The directory that it is written straight into.
    pub(super) fn aside(&self) -> Option<EntryId> {
        self.directory.filter(|_| self.aside)
    }

    pub(super) fn object(&self) -> u32 {
        self.object
    }

    pub(super) fn is_large(&self) -> bool {
        self.is_large
    }

    /// Writes of a part of a group that belongs to it.
    pub(super) fn pieces(&self, part: Part) -> impl Iterator<Item = WritePiece> + '_ {
        self.entry.iter().flat_map(move |entry| {
            part.pieces(entry).map(move |(file_offset, group_offset, len)| WritePiece {
                id: part.entry,
                entry: Arc::clone(entry),
                temp: self.temp,
                aside: self.aside,
                file_offset,
                group_offset,
                len,
            })
        })
    }

    /// It no longer counts in [`Entries::prepared`]: what it counted.
    fn take_prepared(&mut self) -> u32 {
        u32::from(core::mem::take(&mut self.prepared))
    }
}

impl State {
    /// True if the file is settled no sooner than its groups.
    pub(super) fn awaits_groups(self) -> bool {
        matches!(self, Self::Open | Self::Found)
    }

    /// True if it has its name, or cannot be kept from it.
    pub(super) fn is_publishing(self) -> bool {
        matches!(self, Self::Aside | Self::Publishing | Self::Named)
    }
}

const NO_OBJECT: u32 = u32::MAX;
