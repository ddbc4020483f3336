//! Files that the system makes up as they are read, as those of `/proc`: their size says nothing.

use std::os::fd::AsFd;
use std::sync::Arc;

use longhaul_objects::{EntryId, ReadPiece, identity};
use longhaul_wire::{Entry, EntryKind};
use rustix::fs::{Stat, fstatfs, major};

use super::source::{SourceTree, file_identity};

/// A file system whose files have the sizes that they tell: its `st_dev`.
pub(super) type Honest = u64;

/// That of `directory`, of which `stat` tells, if its files lie anywhere: on a device, or on what
/// has blocks as a device has. Empty files there need not be read to know that they are empty.
pub(super) fn honest(directory: impl AsFd, stat: &Stat) -> Option<Honest> {
    let has_blocks = || fstatfs(directory).is_ok_and(|system| system.f_blocks > 0);
    (major(stat.st_dev) != NO_DEVICE || has_blocks()).then_some(stat.st_dev)
}

/// Whether a file that is said to be empty has contents: whether a byte of it can be read, as other
/// files are read, while it is what `stat` says. One that cannot be read is taken at its word.
pub(super) fn has_untold_contents(
    tree: &SourceTree,
    entry: &Entry,
    stat: &Stat,
    honest: Option<Honest>,
) -> bool {
    if entry.kind != EntryKind::File || entry.size > 0 || honest == Some(stat.st_dev) {
        return false;
    }
    let entry = Entry { identity: identity(&file_identity(stat)), ..entry.clone() };
    let byte =
        ReadPiece { id: NO_ENTRY, entry: Arc::new(entry), file_offset: 0, group_offset: 0, len: 1 };
    tree.read_piece(&byte, &mut [0], &mut None).is_ok()
}

/// Why such a file is not copied.
pub(super) const UNTOLD: &str =
    "its size is told as 0 but it has contents, so it is not copied; longhaul pipe can send it";

/// Major number of the devices of file systems that are on none.
const NO_DEVICE: u32 = 0;
/// Not the number of an entry: what is read here is none yet.
const NO_ENTRY: EntryId = EntryId(u32::MAX);
