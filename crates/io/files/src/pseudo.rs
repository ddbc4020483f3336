//! Files that the system makes up as they are read, as those of `/proc`: their size says nothing.

use std::os::fd::AsFd;

use longhaul_wire::{Entry, EntryKind};
use rustix::fs::{Stat, fstatfs, major};

use super::explain;
use super::source::SourceTree;

/// A file system whose files have the sizes that they tell: its `st_dev`.
pub(super) type Honest = u64;

/// That of `directory`, of which `stat` tells, if its files lie anywhere: on a device, or on what
/// has blocks as a device has. Empty files there need not be read to know that they are empty.
pub(super) fn honest(directory: impl AsFd, stat: &Stat) -> Option<Honest> {
    let has_blocks = || fstatfs(directory).is_ok_and(|system| system.f_blocks > 0);
    (major(stat.st_dev) != NO_DEVICE || has_blocks()).then_some(stat.st_dev)
}

/// Why a file that is said to be empty is not copied as such: a byte of it can be read, or nothing can be
/// known of it, since it cannot be opened or read.
pub(super) fn untold(
    tree: &SourceTree,
    entry: &Entry,
    stat: &Stat,
    honest: Option<Honest>,
) -> Option<String> {
    if entry.kind != EntryKind::File || entry.size > 0 || honest == Some(stat.st_dev) {
        return None;
    }
    match tree.read_first_byte(entry.path.as_bytes(), stat) {
        Ok(0) => None,
        Ok(_) => Some(UNTOLD.into()),
        Err(error) => Some(explain::at_source(&error)),
    }
}

/// Why such a file is not copied.
const UNTOLD: &str =
    "its size is told as 0 but it has contents, so it is not copied; longhaul pipe can send it";

/// Major number of the devices of file systems that are on none.
const NO_DEVICE: u32 = 0;
