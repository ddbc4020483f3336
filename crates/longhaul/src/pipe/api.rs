//! What a program asks of a pipe and what it is told.

use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_carriers::tcp::JoinError;
use longhaul_control::ConnectError;
use longhaul_wire::{MAX_PIPE_NAME, PipeRole};

use crate::api::LinkReport;
use crate::client::{Failure, TooNarrow};
use crate::options::ConnectOptions;

/// One end of a pipe.
#[derive(Debug)]
#[non_exhaustive]
pub struct PipeOptions {
    /// The server, and how data travels between it and this end.
    pub connect: ConnectOptions,
    /// What both ends call the pipe; see [`pipe_name_is_valid`].
    pub name: Vec<u8>,
    /// Which end this is.
    pub role: PipeRole,
    /// Where the bytes come from, or go to: any file that can be read, or written, in order.
    pub file: File,
}

impl PipeOptions {
    /// The end that sends what `file` holds, or writes to it what comes.
    pub fn new(
        connect: ConnectOptions,
        name: impl Into<Vec<u8>>,
        role: PipeRole,
        file: File,
    ) -> Self {
        Self { connect, name: name.into(), role, file }
    }
}

/// How a pipe went, as this end saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct PipeReport {
    /// Bytes that went through it.
    pub bytes: u64,
    /// Start of the call to its end.
    pub elapsed: Duration,
    /// Until both ends were there.
    pub setup: Duration,
    /// How the data travelled between this end and the server.
    pub link: LinkReport,
}

/// Why a pipe did not come to its end. What the receiver has is then not the whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipeError {
    /// A name or profile that there is not.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached or does not let us in.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connections of the TCP carrier cannot be made.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The server does not grant the request.
    #[error("{server} refuses: {reason}")]
    Refused {
        /// The server.
        server: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// No packet came through.
    #[error(
        "no UDP packet comes through to {server} (blocked by a firewall?); nothing was sent; try \
         --carrier tcp"
    )]
    UdpBlocked {
        /// The server.
        server: SocketAddr,
    },
    /// Packets as UDP needs them do not pass, or pass no more.
    #[error("UDP does not fit the path to {server}: {reason}; use --carrier tcp; {so_far}")]
    TooNarrow {
        /// The server.
        server: SocketAddr,
        /// The sizes.
        reason: String,
        /// What this end knows.
        so_far: SoFar,
    },
    /// The connection, or the other end, was gone before the end.
    #[error("the pipe broke: {reason}; {so_far}")]
    Broken {
        /// Why.
        reason: String,
        /// What this end knows.
        so_far: SoFar,
    },
    /// This host failed.
    #[error("{reason}; {so_far}")]
    Local {
        /// How.
        reason: String,
        /// What this end knows.
        so_far: SoFar,
    },
    /// The user stopped it.
    #[error("stopped; {so_far}")]
    Stopped {
        /// What this end knows.
        so_far: SoFar,
    },
}

/// How far a pipe has come, as one of its ends knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoFar {
    /// Which end that is.
    pub role: PipeRole,
    /// At the end that receives bytes that were written to its file. The one that sends learns what became
    /// of them only when all of it is over: there bytes that are verified at the server.
    pub bytes: u64,
}

impl fmt::Display for SoFar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, bytes } = self;
        match role {
            PipeRole::Send => write!(f, "{bytes} bytes had reached the server"),
            PipeRole::Receive => write!(f, "{bytes} bytes came through, not the whole"),
        }
    }
}

impl PipeError {
    /// Of a pipe that has come so far.
    pub(super) fn of(failure: Failure, so_far: SoFar) -> Self {
        match failure {
            Failure::Usage(reason) => Self::Usage(reason),
            Failure::Connect(error) => Self::Connect(error),
            Failure::Join(error) => Self::Join(error),
            Failure::Refused { server, reason } => Self::Refused { server, reason },
            Failure::UdpBlocked { server } => Self::UdpBlocked { server },
            Failure::TooNarrow(TooNarrow { reason, by_tcp: true, .. }) => {
                Self::Broken { reason, so_far }
            }
            Failure::TooNarrow(TooNarrow { server, reason, .. }) => {
                Self::TooNarrow { server, reason, so_far }
            }
            Failure::NoUdp(reason) => {
                let reason = format!("{reason}; --carrier tcp does without it");
                Self::Local { reason, so_far }
            }
            Failure::Closed { reason, .. } => Self::Broken { reason, so_far },
            Failure::Destination(error) => Self::Local { reason: error.to_string(), so_far },
            Failure::Local(reason) => Self::Local { reason, so_far },
            Failure::Stopped => Self::Stopped { so_far },
        }
    }
}

/// Whether a pipe can have this name: 1 to 255 bytes, none of them zero.
pub fn pipe_name_is_valid(name: &[u8]) -> bool {
    (1..=MAX_PIPE_NAME).contains(&name.len()) && !name.contains(&0)
}
