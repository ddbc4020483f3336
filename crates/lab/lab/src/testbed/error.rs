use std::io;

use crate::topology::TopologyError;

/// Why a testbed could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The topology is impossible.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The operating system did not let us.
    #[error("cannot {step}: {error}")]
    System {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}
