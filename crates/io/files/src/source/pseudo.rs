//! Files that the system makes up as they are read, as those of `/proc`: their reported size means
//! nothing.

use std::os::fd::AsFd;

use longhaul_wire::{Entry, EntryCode, EntryEnd, EntryKind};
use rustix::fs::{Stat, fstatfs, major};

use crate::explain;
use crate::source::SourceTree;

/// A file system that reports true sizes: its `st_dev`.
pub(crate) type DeviceId = u64;

/// That of `directory`, which has the status `stat`, if its files lie anywhere: on a device, or on
/// what has blocks as a device has. Empty files there need not be read to know that they are empty.
pub(crate) fn true_sizes(directory: impl AsFd, stat: &Stat) -> Option<DeviceId> {
    let has_blocks = || fstatfs(directory).is_ok_and(|system| system.f_blocks > 0);
    (major(stat.st_dev) != NO_DEVICE || has_blocks()).then_some(stat.st_dev)
}

/// Why a file that reports size 0 is not copied as empty: a byte of it can be read, or
/// nothing can be known of it, since it cannot be opened or read.
pub(crate) fn hidden_contents(
    tree: &SourceTree,
    entry: &Entry,
    stat: &Stat,
    true_sizes: Option<DeviceId>,
) -> Option<EntryEnd> {
    if entry.kind != EntryKind::File || entry.size > 0 || true_sizes == Some(stat.st_dev) {
        return None;
    }
    match tree.read_first_byte(entry.path.as_bytes(), stat) {
        Ok(0) => None,
        Ok(_) => Some(EntryEnd::new(EntryCode::Failed, NOT_EMPTY)),
        Err(error) => Some(explain::at_source(&error)),
    }
}

/// Reason why such a file is not copied.
const NOT_EMPTY: &str =
    "it reports size 0 but has contents, so it is not copied; longhaul pipe can send it";

/// Major number of the devices of file systems that are on none.
const NO_DEVICE: u32 = 0;
