//! A storage in memory that loses power, for tests and simulations.

mod memory;

pub use memory::{MemoryError, MemoryStorage, Node};

use alloc::boxed::Box;

use crate::{Entry, EntryKind};

/// A file entry of `size` bytes.
pub fn small_file(path: &str, size: u64) -> Entry {
    Entry {
        kind: EntryKind::File,
        mode: 0o644,
        modified: 1_700_000_000_000_000_000,
        size,
        identity: [0; 16],
        path: path.as_bytes().into(),
        target: Box::default(),
    }
}
