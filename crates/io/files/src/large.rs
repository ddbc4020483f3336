//! Large files, which are open for as long as their groups are read or written.

use std::fs::File;
use std::io::{self, ErrorKind};

use longhaul_sys::files::PositionedFile;

/// `file` for whole groups; past the page cache if they are to go there `direct`ly.
pub(crate) fn large(file: File, direct: bool) -> io::Result<PositionedFile> {
    if !direct {
        return Ok(PositionedFile::new(file));
    }
    PositionedFile::direct(file).map_err(|error| match error.kind() {
        ErrorKind::Unsupported => io::Error::new(ErrorKind::Unsupported, NO_DIRECT_IO),
        _ => error,
    })
}

const NO_DIRECT_IO: &str = "its file system has no direct I/O: leave --direct out";
