//! Memory and descriptors of this process, and the share of each connection.

pub mod budget;
pub mod descriptors;
pub mod lease;
