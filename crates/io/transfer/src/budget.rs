//! How much memory a transfer takes at either end: at most 256 MiB and two products of rate and
//! round trip of its path, whatever its size (docs/operating.md).
//!
//! What follows is for contents of files. The rest, some 30 MiB, is the program itself, its
//! sockets' and ciphers' buffers, and the names of entries that are not settled.

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_rate_control::MemoryBudget;
use longhaul_units::{Bytes, Instant};

/// A source keeps what is not acknowledged.
pub(crate) const SOURCE_MEMORY: Bytes = Bytes::from_mib(192);
/// A sink keeps what is not written, and promises as much (docs/protocol.md 7.2).
pub(crate) const SINK_MEMORY: Bytes = Bytes::from_mib(160);
/// No path needs more, and a peer that makes itself look far away gets no more.
const MOST: Bytes = Bytes::from_mib(4096);

/// That of a source.
pub(crate) fn of_source(now: Instant) -> MemoryBudget {
    MemoryBudget::new(now, SOURCE_MEMORY, MOST)
}

/// That of a sink.
pub(crate) fn of_sink(now: Instant) -> MemoryBudget {
    MemoryBudget::new(now, SINK_MEMORY, MOST)
}

/// Buffers that are so much.
pub(crate) fn groups(memory: Bytes) -> usize {
    usize::try_from(memory.get() / GROUP_SIZE).unwrap_or(usize::MAX)
}
