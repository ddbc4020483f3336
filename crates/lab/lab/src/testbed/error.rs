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
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

impl TestbedError {
    /// Whether it is this machine or this user that cannot have the testbed, for want of a privilege
    /// or of a feature of the kernel, rather than a fault.
    pub fn is_want_of_means(&self) -> bool {
        use io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
        match self {
            Self::NoNetem(_) | Self::NoHtb(_) => true,
            Self::System { error, .. } => {
                matches!(error.kind(), NotFound | PermissionDenied | Unsupported)
            }
            Self::Topology(_) | Self::Unlike(_) => false,
        }
    }
}
