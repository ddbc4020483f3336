//! Files and links with several names: the first is copied, and the others are made names of that once it has its own.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_wire::{Entry, EntryCode, EntryEnd, EntryPath};

use super::entries::Entries;
use crate::action::FirstName;
use crate::directory::Directory;
use crate::entry::{EntryId, own_name};
use crate::limits::FIRST_NAME_COST;

/// First names that were announced. They are kept until the end: nobody says how many others come.
#[derive(Debug, Default)]
pub(super) struct HardLinks {
    firsts: BTreeMap<EntryId, First>,
    /// First names of files that are there unchanged under this other name.
    elsewhere: BTreeMap<EntryId, EntryPath>,
    /// Those that stay have been compared by their contents.
    pub(super) are_compared: bool,
    /// Later names in the place of a first that stays as a newer file, until they have theirs.
    heirs: BTreeMap<EntryId, EntryId>,
}

/// A first name; its directory has the rest of its path.
#[derive(Debug)]
struct First {
    directory: Option<Arc<Directory>>,
    name: Box<[u8]>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It may still get its name. Later ones that wait for that.
    Awaited(Vec<EntryId>),
    Named,
    /// It stays as it was.
    Stays,
    /// It stays, and was modified later.
    Newer,
    Failed,
}

/// Treatment of a name that can be given.
pub(super) enum Turn {
    /// It is a file or link for itself.
    Own,
    /// It is a first name from now on.
    First,
    /// It is to be a name of what this names.
    Of(FirstName),
    /// It waits for the first.
    Waits,
    /// The first failed.
    Fails(EntryEnd),
}

/// Memory that a first name takes until the end.
pub(super) fn first_cost(entry: &Entry) -> u64 {
    match entry.is_first_name() {
        true => FIRST_NAME_COST + own_name(entry).len() as u64,
        false => 0,
    }
}

impl HardLinks {
    /// The entry was announced: it is kept where others may be names of it.
    pub(super) fn announce(
        &mut self,
        id: EntryId,
        entry: &Entry,
        directory: Option<&Arc<Directory>>,
    ) {
        if entry.is_first_name() {
            self.firsts.insert(id, First::awaited(directory.cloned(), entry));
        }
    }

    /// True if others may be names of the entry.
    pub(super) fn has(&self, id: EntryId) -> bool {
        self.firsts.contains_key(&id)
    }

    /// The file is there unchanged under another name, which is not the first: all others are made names of that.
    pub(super) fn found_elsewhere(&mut self, first: EntryId, other: EntryPath) {
        self.elsewhere.insert(first, other);
    }

    /// It is the turn of an entry to get its name.
    pub(super) fn turn(&mut self, id: EntryId, entries: &Entries) -> Turn {
        let Some(slot) = entries.get(id) else { return Turn::Own };
        let elsewhere = |id| self.elsewhere.get(&id).cloned().map(FirstName::that_stays);
        if let Some(other) = elsewhere(id) {
            return Turn::Of(other);
        }
        let Some((entry, to)) = slot.entry().and_then(|entry| Some((entry, entry.linked_to()?)))
        else {
            return Turn::Own;
        };
        let to = EntryId(u32::try_from(to).unwrap_or(u32::MAX));
        let Some(first) = self.firsts.get_mut(&to) else { return Turn::Fails(first_failed()) };
        match &mut first.state {
            State::Newer if entry.contents_len() > 0 => Turn::Fails(first_is_newer()),
            State::Newer => {
                let directory = slot.directory().and_then(|id| entries.directory(id)).cloned();
                *first = First::awaited(directory, entry);
                self.heirs.insert(id, to);
                Turn::First
            }
            State::Awaited(waiting) => {
                waiting.push(id);
                Turn::Waits
            }
            State::Failed => Turn::Fails(first_failed()),
            State::Named | State::Stays => Turn::Of(elsewhere(to).unwrap_or_else(|| {
                let stays = matches!(first.state, State::Stays);
                FirstName { path: first.path(), stays, is_compared: stays && self.are_compared }
            })),
        }
    }

    /// The entry has its name. Returns those that waited for it.
    pub(super) fn named(&mut self, id: EntryId) -> Vec<EntryId> {
        self.settle(id, State::Named)
    }

    /// The entry ended otherwise: failed, stays as it was, or would have its name after a copy.
    pub(super) fn ended(&mut self, id: EntryId, code: EntryCode) -> Vec<EntryId> {
        self.settle(
            id,
            match code {
                code if code.would_change() => State::Named,
                EntryCode::Newer => State::Newer,
                code if code.stays() => State::Stays,
                _ => State::Failed,
            },
        )
    }

    fn settle(&mut self, id: EntryId, to: State) -> Vec<EntryId> {
        let first = self.firsts.get_mut(&self.heirs.remove(&id).unwrap_or(id));
        match first.map(|first| core::mem::replace(&mut first.state, to)) {
            Some(State::Awaited(waiting)) => waiting,
            _ => Vec::new(),
        }
    }
}

impl First {
    fn awaited(directory: Option<Arc<Directory>>, entry: &Entry) -> Self {
        Self { directory, name: own_name(entry).into(), state: State::Awaited(Vec::new()) }
    }

    fn path(&self) -> EntryPath {
        let mut path =
            self.directory.as_ref().map(|directory| directory.path()).unwrap_or_default();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&self.name);
        EntryPath::new(path).expect("the path of an entry that was announced")
    }
}

fn first_is_newer() -> EntryEnd {
    let reason = "another name of it is a newer file here, which stays, and the sending side does not send it for \
                  itself: its Longhaul is older";
    EntryEnd::new(EntryCode::Failed, reason)
}

fn first_failed() -> EntryEnd {
    EntryEnd::new(EntryCode::Failed, "it is another name of a file that was not copied")
}
