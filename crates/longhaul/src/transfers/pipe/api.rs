//! Options of a pipe, and its report.

use std::fs::File;
use std::time::Duration;

use longhaul_wire::{MAX_PIPE_NAME, PipeRole};

use crate::api::LinkReport;
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
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
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

/// Whether a pipe can have this name: 1 to 255 bytes, none of them zero.
pub fn pipe_name_is_valid(name: &[u8]) -> bool {
    (1..=MAX_PIPE_NAME).contains(&name.len()) && !name.contains(&0)
}
