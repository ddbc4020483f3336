use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::lease::LeaseError;
use crate::ledger::Id;

/// Why a driver did not carry bookings out, in words for the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The operator's configuration names a program that is not there.
    #[error("link {link}: {} is no program", program.display())]
    NoProgram {
        /// The link.
        link: String,
        /// Where it should be.
        program: PathBuf,
    },
    /// The operator's program failed.
    #[error("{}: {error}", program.display())]
    Program {
        /// Its path.
        program: PathBuf,
        /// Its fault.
        error: ProgramError,
    },
    /// The kernel does not talk about interfaces.
    #[error("{interface}: {error}")]
    NoNetlink {
        /// The interface that it was to be asked about.
        interface: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The kernel did not make a change of classes.
    #[error("{interface}: {error}{}", hint(error))]
    Kernel {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// More bookings run at a time than the kernel has classes.
    #[error("{interface}: no class is left for booking {booking}")]
    NoClass {
        /// The interface.
        interface: String,
        /// The booking that has none.
        booking: Id,
    },
    /// This host lets the driver's thread not run before others.
    #[error(
        "rates may change late while this machine is busy: what changes them may not run before \
         others ({0}); CAP_SYS_NICE would allow it"
    )]
    NotFirst(io::Error),
    /// The leader may not switch.
    #[error(transparent)]
    Lease(#[from] LeaseError),
}

/// Why a program of the operator did not carry an order out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// This host did not start it, or lost it.
    #[error("{0}")]
    System(io::Error),
    /// It failed.
    #[error("{0}")]
    Status(ExitStatus),
    /// It did not end in time.
    #[error("killed after {after_secs} s")]
    Slow {
        /// Its time.
        after_secs: u64,
    },
    /// Its leader's lease ended first.
    #[error("killed: the lease of epoch {epoch} is over")]
    LeaseOver {
        /// The leader's.
        epoch: u64,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; CAP_NET_ADMIN would allow it",
        _ => "",
    }
}
