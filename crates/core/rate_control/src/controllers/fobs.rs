//! The controllers of FOBS (Dickens and Kannan, "Application-Level Congestion Control Mechanisms for
//! Large Scale Data Transfers Across Computational Grids").

mod linear;
mod state;
mod supervisor;

pub use linear::FobsLinearConfig;
pub use state::FobsStateConfig;
pub use supervisor::FobsConfig;

use crate::parameters::{Parameter, Unit};
use crate::repair::ChunkSizes;

/// Losses of the receiving host count, or not. The paper knew one kind of loss (section 4.1 asks
/// whether that is right).
pub(super) const HOSTS: Parameter = Parameter {
    name: "hosts",
    about: "1: losses in the receiving host count, as in the paper; 0: those of the network only",
    unit: Unit::Count,
    default: 1,
    least: 0,
    most: 1,
};

/// Number of packets that are judged, and repaired, as a whole.
const SEGMENT: Parameter = Parameter {
    name: "segment",
    about: "packets of a segment, behind which what was lost goes again",
    unit: Unit::Count,
    default: ChunkSizes::FOBS.segment,
    least: 100,
    most: 100_000_000,
};

const CHUNK: Parameter = Parameter {
    name: "chunk",
    about: "packets of a chunk: 100 MB in packets of 1470 bytes",
    default: ChunkSizes::FOBS.chunk,
    ..SEGMENT
};

/// The paper does not say whether chunks overlap.
const OVERLAP: Parameter = Parameter {
    name: "overlap",
    about: "chunks that may be begun while an older one is not whole",
    unit: Unit::Count,
    default: ChunkSizes::FOBS.overlap,
    least: 0,
    most: 1_000,
};

/// Parts per million.
const WHOLE: u64 = 1_000_000;
