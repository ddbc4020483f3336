//! Repair of losses, as profiles choose it.

/// Kind of repair of losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// Lost bytes go out again as soon as their loss is known.
    Continuous,
    /// Everything is sent once, then everything that was missing, until nothing is (RBUDP).
    Rounds,
    /// Lost bytes go out again behind each segment, and a chunk that is not whole holds up a later one
    /// (FOBS section 2.1).
    Chunks(ChunkSizes),
}

/// Division of fresh bytes for repair, on each lane for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkSizes {
    /// Packets of a segment, at least one.
    pub segment: u64,
    /// Packets of a chunk, at least one.
    pub chunk: u64,
    /// Chunks that may be begun while an older one is not whole.
    pub overlap: u64,
}

impl ChunkSizes {
    /// 10,000 packets, and 100 MB in packets of 1470 bytes; the overlap is ours.
    pub const FOBS: Self = Self { segment: 10_000, chunk: 68_028, overlap: 2 };
}
