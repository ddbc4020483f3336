//! The transfers that a connection carries, each at both ends: copies, pipes, listings, comparisons; and probes.

pub mod copy;
pub mod list;
pub mod pipe;
pub mod probe;
pub mod sink;
pub mod source;
pub mod verify;
