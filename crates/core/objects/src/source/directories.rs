//! The directories that were announced, until the sink has settled them.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_wire::Entry;

use crate::directory::Directory;
use crate::entry::EntryId;
use crate::entry::{metadata_cost, own_name};
use crate::limits::DIRECTORY_COST;
use crate::name_memory::NameMemory;

#[derive(Debug)]
pub(super) struct Directories {
    known: BTreeMap<EntryId, Arc<Directory>>,
    pub(super) names: NameMemory,
    /// The last that was announced, and those above it: each with the length of its path.
    above: Vec<(Arc<Directory>, usize)>,
    last: Vec<u8>,
}

impl Directories {
    pub(super) fn new() -> Self {
        let names = NameMemory::new();
        Self { known: BTreeMap::new(), names, above: Vec::new(), last: Vec::new() }
    }

    /// True where there is memory for the directory until it is settled; then it is taken.
    pub(super) fn reserve(&mut self, entry: &Entry) -> bool {
        let has_room = self.names.has_room(reserved(entry));
        if has_room {
            self.names.take(reserved(entry));
        }
        has_room
    }

    /// The directory is announced: from now on it is kept without its path.
    pub(super) fn announce(&mut self, id: EntryId, entry: &Entry) {
        let path = entry.path.as_bytes();
        let last = &self.last;
        let holds = |len: usize| {
            let below = path.strip_prefix(&last[..len]);
            below.is_some_and(|below| len == 0 || below.first() == Some(&b'/'))
        };
        while self.above.last().is_some_and(|(_, len)| !holds(*len)) {
            self.above.pop();
        }
        let within = self.above.last().map(|(directory, _)| Arc::clone(directory));
        let directory = Directory::new(entry, within);
        self.names.give_back(reserved(entry));
        self.names.take(directory.cost());
        self.above.push((Arc::clone(&directory), path.len()));
        self.last = path.to_vec();
        self.known.insert(id, directory);
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Arc<Directory>> {
        self.known.get(&id)
    }

    /// It is settled. Returns whether it was not before.
    pub(super) fn settle(&mut self, id: EntryId) -> bool {
        let settled = self.known.remove(&id);
        if let Some(directory) = &settled {
            self.names.give_back(directory.cost());
        }
        settled.is_some()
    }
}

fn reserved(entry: &Entry) -> u64 {
    let metadata = metadata_cost(entry.attributes.metadata_len());
    DIRECTORY_COST + own_name(entry).len() as u64 + metadata
}
