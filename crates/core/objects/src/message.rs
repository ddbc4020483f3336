//! The messages of stream 0 (docs/protocol.md section 7.2) as this crate takes and gives them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::{Duration, ObjectId};

use crate::{Entry, EntryId};

/// BLAKE3 chaining value of a group.
pub type ChainingValue = [u8; 32];

/// An object: the concatenated contents of the files among consecutive entries. The first and
/// the last of them have contents; directories, links and empty files between them add nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSpec {
    /// Number of the object, consecutive from 0.
    pub id: ObjectId,
    /// First entry.
    pub first: EntryId,
    /// Number of entries.
    pub entries: u32,
    /// Bytes.
    pub size: u64,
}

/// What the source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceMessage {
    /// MANIFEST: further entries and objects.
    Manifest {
        /// Number of the first of `entries`.
        first: EntryId,
        /// The entries, numbered on.
        entries: Vec<Arc<Entry>>,
        /// Objects all of whose entries are in this or an earlier message.
        objects: Vec<ObjectSpec>,
    },
    /// MANIFEST_END: nothing further; totals.
    ManifestEnd {
        /// Entries in all.
        entries: u32,
        /// Objects in all.
        objects: u32,
        /// Bytes in all.
        bytes: u64,
    },
    /// HASHES: chaining values of consecutive groups.
    Hashes {
        /// The object.
        object: ObjectId,
        /// Group of the first value.
        first: u32,
        /// The values.
        values: Vec<ChainingValue>,
    },
    /// ENTRY_FAILED: the source cannot read the entry (any more).
    EntryFailed {
        /// The entry.
        entry: EntryId,
        /// Why, for people.
        reason: String,
    },
}

/// What the sink says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkMessage {
    /// ACCEPT: objects with numbers below may be sent.
    Accept {
        /// The number.
        objects: u32,
    },
    /// HAVE: groups that need not be sent.
    Have {
        /// The object.
        object: ObjectId,
        /// First group and number of groups, ascending.
        groups: Vec<(u32, u32)>,
    },
    /// REPAIR: the group did not verify and is to be sent again.
    Repair {
        /// The object.
        object: ObjectId,
        /// The group.
        group: u32,
    },
    /// CONFIRM: entries that are whole, verified and durable under their names.
    Confirm {
        /// First entry and number of entries, ascending.
        entries: Vec<(EntryId, u32)>,
    },
    /// ENTRY_REFUSED: the sink cannot write the entry.
    EntryRefused {
        /// The entry.
        entry: EntryId,
        /// Why, for people.
        reason: String,
    },
    /// RESULT: every entry is settled.
    Result(Summary),
}

/// The end of a transfer, as the sink reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Summary {
    /// Entries confirmed.
    pub confirmed: u32,
    /// Entries failed or refused.
    pub failed: u32,
    /// Bytes of the confirmed files.
    pub bytes: u64,
    /// Those of them that were durable before and not sent.
    pub resumed_bytes: u64,
    /// CPU time of the sink's process.
    pub cpu_time: Duration,
    /// What bounded the speed (docs/protocol.md section 9.1).
    pub bottleneck: u8,
}
