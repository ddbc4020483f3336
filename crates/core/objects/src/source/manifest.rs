//! From the scan to objects and MANIFEST messages.

use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::{Bytes, ObjectId, RangeSet};
use longhaul_wire::{Entry, EntryKind, ManifestObject, SourceMessage};

use super::{Bundle, EntrySlot, EntryState, NO_OBJECT, Object, PushError, Source};
use crate::entry::EntryId;
use crate::entry::{check, cost, is_large};
use crate::layout::Layout;
use crate::limits::{
    BUNDLE_COST, BUNDLE_FILES_MAX, BUNDLE_FILL, BUNDLE_MAX, BUNDLE_SPREAD, ENTRIES_MAX, GROUP_SIZE,
    MANIFEST_BYTES, UNANNOUNCED_COST, UNANNOUNCED_MAX, UNSETTLED_COST, WINDOW_MAX,
};

/// The file's own name and size say that a bundle begins with it: so one that comes, goes or changes
/// shifts no bundle but its own, and an earlier run's others are still known by their groups.
fn begins_bundle(entry: &Entry) -> bool {
    let hash = blake3::hash(entry.path.as_bytes());
    let first = hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    first % BUNDLE_SPREAD < entry.size
}

impl Source {
    /// True if the scan should go on. When it went on regardless, nothing would be lost but
    /// memory.
    pub fn wants_entries(&self) -> bool {
        !self.finished
            && self.stats.entries - self.announced_entries < UNANNOUNCED_MAX
            && self.unannounced + self.later.cost() < UNANNOUNCED_COST
            && !self.directories.names.is_awaited()
    }

    /// Memory for names of directories that it would have, if that is more than it has.
    pub fn name_memory_wanted(&self) -> Option<u64> {
        self.directories.names.wanted()
    }

    /// There is so much of that from now on. If it is not more than there was, and none is left,
    /// directories are not taken until it is.
    pub fn grow_name_memory(&mut self, capacity: u64) {
        self.directories.names.grow(capacity);
    }

    /// Takes in the next entry of the scan. Directories come before what is in them. Returns its number, if it has
    /// one yet: a later name may have to wait for it.
    pub fn push_entry(&mut self, entry: Entry) -> Result<Option<EntryId>, PushError> {
        if self.finished {
            return Err(PushError::Finished);
        }
        check(&entry)?;
        let first = self.later.first_of(&entry);
        let (waiting, waiting_bytes) = self.later.most();
        let more = if first.is_some() { entry.contents_len() } else { entry.data_len() };
        if self.stats.entries + waiting >= ENTRIES_MAX
            || self.stats.bytes + waiting_bytes + more > BYTES_MAX
        {
            return Err(PushError::TooMany);
        }
        if entry.kind == EntryKind::Directory && !self.directories.reserve(&entry) {
            return Err(PushError::NoMemory);
        }
        Ok(match first {
            Some(first) => self.push_later(first, entry),
            None => Some(self.push(entry)),
        })
    }

    /// Takes in an entry, which is possible.
    pub(super) fn push(&mut self, entry: Entry) -> EntryId {
        let cost = cost(&entry);
        self.unannounced += cost;
        let id = EntryId(self.stats.entries);
        let (size, is_large) = (entry.data_len(), is_large(&entry));
        let begins = begins_bundle(&entry);
        self.entries.push(EntrySlot {
            entry: Some(Arc::new(entry)),
            object: NO_OBJECT,
            size,
            compared: 0,
            state: EntryState::Open,
        });
        self.stats.entries += 1;
        self.stats.bytes += size;
        if is_large {
            self.close_bundle();
            let layout = Layout::of_large(id, size);
            self.bundle = Some(Bundle { first: id, last: id, layout, cost });
            self.close_bundle();
        } else if size > 0 {
            let full = self.bundle.as_ref().is_some_and(|bundle| {
                bundle.layout.size() + size > BUNDLE_MAX
                    || bundle.layout.file_count() == BUNDLE_FILES_MAX
                    || begins && bundle.layout.size() % GROUP_SIZE >= BUNDLE_FILL
            });
            if full {
                self.close_bundle();
            }
            self.bundle_file(id, size);
        }
        self.count_behind_bundle(cost);
        id
    }

    /// Behind the first file of a bundle all may wait for that, as later names do, and only so much is announced.
    pub(super) fn count_behind_bundle(&mut self, cost: u64) {
        if let Some(bundle) = &mut self.bundle {
            bundle.cost += cost;
            if bundle.cost >= BUNDLE_COST {
                self.close_bundle();
            }
        }
    }

    /// The scan is at its end.
    pub fn finish_entries(&mut self) {
        self.finished = true;
        self.push_decided();
    }

    fn bundle_file(&mut self, id: EntryId, size: u64) {
        let bundle = self.bundle.get_or_insert(Bundle {
            first: id,
            last: id,
            layout: Layout::new(),
            cost: 0,
        });
        bundle.last = id;
        bundle.layout.push(id, size);
    }

    pub(super) fn close_bundle(&mut self) {
        let Some(bundle) = self.bundle.take() else {
            return;
        };
        let number = self.objects.end();
        let mut live = 0;
        for file in bundle.layout.files() {
            if let Some(slot) = self.entries.get_mut(file.0).filter(|slot| slot.size > 0) {
                slot.object = number;
                live += u32::from(slot.state == EntryState::Open);
            }
        }
        self.objects.push(Object {
            first: bundle.first,
            entries: bundle.last.0 - bundle.first.0 + 1,
            layout: bundle.layout,
            next_group: 0,
            have: RangeSet::new(),
            offered: RangeSet::new(),
            answered: RangeSet::new(),
            live,
        });
        self.stats.objects += 1;
    }

    pub(super) fn poll_manifest(&mut self) -> Option<SourceMessage> {
        let first_entry = u64::from(self.announced_entries);
        let mut entries = Vec::new();
        let mut bytes = 0;
        while bytes < MANIFEST_BYTES && self.announced_entries - self.entries.base() < WINDOW_MAX {
            let number = self.announced_entries;
            let Some(slot) = self.entries.get_mut(number) else {
                break;
            };
            let Some(entry) = &slot.entry else {
                break;
            };
            let is_directory = entry.kind == EntryKind::Directory;
            let cost = cost(entry);
            if !is_directory && self.unsettled + cost > UNSETTLED_COST {
                break;
            }
            bytes += entry.encoded_len();
            entries.push(Entry::clone(entry));
            if is_directory {
                self.directories.announce(EntryId(number), entry);
                slot.entry = None;
            } else {
                self.unsettled += cost;
            }
            self.unannounced -= cost;
            self.announced_entries += 1;
        }
        self.forget();
        let mut objects = Vec::new();
        while let Some(object) = self.objects.get(self.announced_objects) {
            if object.first.0 + object.entries > self.announced_entries {
                break;
            }
            objects.push(ManifestObject {
                id: ObjectId(self.announced_objects),
                first_entry: object.first.as_wire(),
                entries: u64::from(object.entries),
                size: object.layout.size(),
            });
            self.announced_objects += 1;
        }
        if !entries.is_empty() || !objects.is_empty() {
            return Some(SourceMessage::Manifest { first_entry, entries, objects });
        }
        let all = self.stats.complete && self.announced_entries == self.stats.entries;
        if !all || self.end_announced {
            return None;
        }
        self.end_announced = true;
        Some(SourceMessage::ManifestEnd {
            entries: u64::from(self.stats.entries),
            objects: u64::from(self.stats.objects),
            bytes: Bytes::new(self.stats.bytes),
        })
    }
}

/// Bytes of all files together that a varint can hold.
const BYTES_MAX: u64 = (1 << 62) - 1;
