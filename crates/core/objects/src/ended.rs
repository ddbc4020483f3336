//! Entries that were not copied, for the report: the first of each kind.

use alloc::vec::Vec;

use longhaul_units::EntryCode;
use longhaul_wire::{EntryEnd, EntryPath};

use crate::action::Deletion;
use crate::entry::EntryId;
use crate::limits::FAILURES_MAX;

/// An entry that was not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedEntry {
    /// Number of the entry.
    pub id: EntryId,
    /// Its path.
    pub path: EntryPath,
    /// Why.
    pub end: EntryEnd,
}

/// The first that failed, and the first that were skipped.
#[derive(Debug, Default)]
pub(crate) struct EndedEntries {
    pub(crate) failed: Vec<EndedEntry>,
    pub(crate) skipped: Vec<EndedEntry>,
}

impl EndedEntries {
    /// Keeps one, if there is room.
    pub(crate) fn note(&mut self, id: EntryId, path: &EntryPath, end: &EntryEnd) {
        let entries = match end.code {
            code if code.stays() => return,
            EntryCode::Skipped => &mut self.skipped,
            _ => &mut self.failed,
        };
        if entries.len() < FAILURES_MAX {
            entries.push(EndedEntry { id, path: path.clone(), end: end.clone() });
        }
    }

    /// Something else became of it. Returns its path, where it was kept.
    pub(crate) fn forget(&mut self, id: EntryId) -> Option<EntryPath> {
        [&mut self.failed, &mut self.skipped].into_iter().find_map(|entries| {
            let place = entries.iter().position(|entry| entry.id == id)?;
            Some(entries.remove(place).path)
        })
    }
}

/// Kinds of entries whose contents stay as they are at the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stayed {
    /// The sink's were modified later.
    pub newer: u32,
    /// Their attributes were mended, or would be.
    pub mended: u32,
}

impl Stayed {
    pub(crate) fn count(&mut self, code: EntryCode) {
        self.newer += u32::from(code == EntryCode::Newer);
        self.mended += u32::from(code == EntryCode::Mended);
    }
}

/// Names that were to be deleted: their numbers, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletions {
    /// Those that are gone.
    pub deleted: u64,
    /// Those that could not be deleted.
    pub kept: u64,
    /// Directories in which nothing is to be deleted, and mounts.
    pub spared: u64,
    /// The first [`FAILURES_MAX`] of each.
    pub sample: Vec<Deletion>,
}

impl Deletions {
    /// Counts one, and keeps it if there is room.
    pub(crate) fn note(&mut self, deletion: &Deletion) {
        let count = match &deletion.result {
            Ok(()) => &mut self.deleted,
            Err(end) if end.code == EntryCode::Skipped => &mut self.spared,
            Err(_) => &mut self.kept,
        };
        *count += 1;
        if *count <= FAILURES_MAX as u64 {
            self.sample.push(deletion.clone());
        }
    }
}
