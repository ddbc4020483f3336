//! Changes at the destination, one by one, for those who want to see them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use longhaul_units::EntryCode;
use longhaul_wire::{Entry, EntryKind};

use crate::carried::CarriedEntries;

/// A change at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedChange {
    /// Its kind.
    pub kind: ChangeKind,
    /// Path of the entry, or of what was deleted.
    pub path: Vec<u8>,
    /// It is a directory. False of what was deleted: nobody says what it was.
    pub is_directory: bool,
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is there, durable where that was asked for.
    Copied,
    /// It is gone; in a dry run, a copy would delete it.
    Deleted,
    /// In a dry run: a copy would make it.
    New,
    /// In a dry run: a copy would replace what has its name.
    Differs,
    /// Its contents stay, and it has got, or would get, other attributes.
    Mended,
}

/// Changes that nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    wanted: bool,
    queue: VecDeque<NamedChange>,
    left_out: u64,
    /// Entries that the command has brought to the sink.
    pub(crate) carried: CarriedEntries,
}

impl Changes {
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// True if each entry is to be noted.
    pub(crate) fn count_entries(&self) -> bool {
        self.wanted || self.carried.are_wanted()
    }

    /// An entry was copied.
    pub(crate) fn copied(&mut self, path: &[u8], is_directory: bool) {
        self.carried.begin(path);
        if self.wanted && self.carried.name(path) {
            self.note(ChangeKind::Copied, path, is_directory);
        }
    }

    /// True of an entry that is unchanged since an earlier connection of the command has brought it: it counts as
    /// copied.
    pub(crate) fn was_carried(&mut self, entry: &Entry, code: EntryCode) -> bool {
        let path = entry.path.as_bytes();
        let was_carried = code == EntryCode::Unchanged && self.carried.was_begun(path);
        if was_carried {
            self.copied(path, entry.kind == EntryKind::Directory);
        }
        was_carried
    }

    /// An entry ended so.
    pub(crate) fn ended(&mut self, entry: &Entry, code: EntryCode) {
        let kind = match code {
            EntryCode::New => ChangeKind::New,
            EntryCode::Differs => ChangeKind::Differs,
            EntryCode::Mended => ChangeKind::Mended,
            _ => return,
        };
        self.note(kind, entry.path.as_bytes(), entry.kind == EntryKind::Directory);
    }

    pub(crate) fn deleted(&mut self, path: &[u8]) {
        self.note(ChangeKind::Deleted, path, false);
    }

    fn note(&mut self, kind: ChangeKind, path: &[u8], is_directory: bool) {
        if !self.wanted {
            return;
        }
        match self.queue.len() < CHANGES_MAX {
            true => self.queue.push_back(NamedChange { kind, path: path.to_vec(), is_directory }),
            false => self.left_out += 1,
        }
    }

    /// Those since the last call, and how many were left out, since there were too many at once.
    pub(crate) fn take(&mut self) -> (Vec<NamedChange>, u64) {
        (self.queue.drain(..).collect(), core::mem::take(&mut self.left_out))
    }
}

/// More than a sink names in a second.
const CHANGES_MAX: usize = 1 << 16;
