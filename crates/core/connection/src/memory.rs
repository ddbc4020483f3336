//! Memory of an end for the groups that it receives.

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::Bytes;

/// Memory that an end may take for received groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkMemory {
    /// Bytes that the source may have in flight (docs/protocol.md section 7.2).
    pub promised: Bytes,
    /// Bytes that it may take beyond: a group that is short takes a whole buffer, and a repaired one takes
    /// one on each lane that has bytes of it.
    pub spare: Bytes,
}

impl SinkMemory {
    /// Buffers, each of one group.
    pub fn buffers(self) -> usize {
        buffers(self.promised + self.spare)
    }
}

/// Groups that wait for the storage of an end that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stored {
    /// Bytes of memory of groups that came whole and are not written.
    pub waiting: u64,
    /// Bytes of memory that are promised.
    pub memory: u64,
    /// Bytes written so far.
    pub written: u64,
}

/// Buffers of one group each that are so much memory.
pub fn buffers(memory: Bytes) -> usize {
    usize::try_from(memory.get() / GROUP_SIZE).unwrap_or(usize::MAX)
}
