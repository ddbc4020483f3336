//! A connection that runs: the value behind one lock, the loop that attends to it, the paths that it uses.

pub mod attend;
pub mod circuit;
pub mod ids;
pub mod links;
pub mod path_history;
pub mod shared;
pub mod steering;
