//! The transfers that a connection carries, each at both ends: copies, pipes, listings, comparisons, looks at interrupted copies; and probes.

pub mod answering;
pub mod asking;
pub mod copy;
pub mod due;
pub mod leftovers;
pub mod list;
pub mod pipe;
pub mod probe;
pub mod sink;
pub mod source;
pub mod verify;
