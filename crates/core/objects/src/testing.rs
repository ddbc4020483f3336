//! A storage in memory that loses power, for tests and simulations.

mod dry;
mod memory;

pub use dry::DryMemory;
pub use memory::{MemoryError, MemoryStorage, Node, metadata_of};

use longhaul_wire::{Attributes, Entry, EntryKind, EntryPath};

/// A file entry of `size` bytes.
///
/// # Panics
/// When `path` is not allowed.
pub fn file(path: &str, size: u64) -> Entry {
    Entry {
        kind: EntryKind::File,
        mode: 0o644,
        modified: 1_700_000_000_000_000_000,
        size,
        identity: [0; 16],
        path: EntryPath::new(path.into()).expect("an allowed path"),
        attributes: Attributes::default(),
    }
}
