use std::io;

use crate::topology::TopologyError;

/// Why a testbed could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The topology is impossible.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The kernel's emulation does not do this, or not as the lab does it.
    #[error("the kernel's netem cannot do this as the lab does: {0}")]
    Unlike(&'static str),
    /// There is no emulation by the kernel, and what would help.
    #[error("cannot use the kernel's netem: {0}")]
    NoNetem(String),
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
