//! Files and links with several names: the first is copied, and the others are made names of that once it has its own.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_wire::{Entry, EntryCode, EntryEnd, EntryPath};

use super::entries::{Entries, Slot};
use crate::action::FirstName;
use crate::directory::Directory;
use crate::entry::{EntryId, own_name};
use crate::limits::FIRST_NAME_COST;

/// First names that were announced. They are kept until the end: nobody says how many others come.
#[derive(Debug, Default)]
pub(super) struct HardLinks {
    firsts: BTreeMap<EntryId, First>,
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
    Failed,
}

/// Treatment of a name that can be given.
pub(super) enum Turn {
    /// It is a file or link for itself.
    Own,
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
            let state = State::Awaited(Vec::new());
            let (directory, name) = (directory.cloned(), own_name(entry).into());
            self.firsts.insert(id, First { directory, name, state });
        }
    }

    /// True if others may be names of the entry.
    pub(super) fn has(&self, id: EntryId) -> bool {
        self.firsts.contains_key(&id)
    }

    /// It is the turn of an entry to get its name.
    pub(super) fn turn(&mut self, id: EntryId, entries: &Entries) -> Turn {
        let entry = entries.get(id).and_then(Slot::entry);
        let Some(to) = entry.and_then(|entry| entry.linked_to()) else { return Turn::Own };
        let first = u32::try_from(to).ok().and_then(|to| self.firsts.get_mut(&EntryId(to)));
        let Some(first) = first else { return Turn::Fails(first_failed()) };
        match &mut first.state {
            State::Awaited(waiting) => {
                waiting.push(id);
                Turn::Waits
            }
            State::Failed => Turn::Fails(first_failed()),
            State::Named | State::Stays => Turn::Of(FirstName {
                path: first.path(),
                stays: matches!(first.state, State::Stays),
            }),
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
                code if code.stays() => State::Stays,
                _ => State::Failed,
            },
        )
    }

    fn settle(&mut self, id: EntryId, to: State) -> Vec<EntryId> {
        let first = self.firsts.get_mut(&id);
        match first.map(|first| core::mem::replace(&mut first.state, to)) {
            Some(State::Awaited(waiting)) => waiting,
            _ => Vec::new(),
        }
    }
}

impl First {
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

fn first_failed() -> EntryEnd {
    EntryEnd::new(EntryCode::Failed, "it is another name of a file that was not copied")
}
