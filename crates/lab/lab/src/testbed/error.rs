use std::io;

use crate::topology::TopologyError;

/// Why a testbed could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The topology is impossible.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// There is no HTB, and what would help.
    #[error("cannot have a line by HTB: {0}")]
    NoHtb(io::Error),
    /// The operating system did not let us.
    #[error("cannot {step}: {error}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}
