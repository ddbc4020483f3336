//! Paths below a directory, one step at a time and through no link.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use longhaul_sys::descriptors::patiently;
use longhaul_sys::files::open_dir_beneath;
use rustix::fs::{Mode, OFlags, Stat, openat};
use rustix::path::Arg;

/// Opens the directory `path` below `directory`; empty is the directory itself. No component of it
/// is a symbolic link, and nothing leads out.
pub(crate) fn beneath(
    directory: impl AsFd,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    patiently(|| open_dir_beneath(&directory, path, flags))
}

/// As the system's `openat`, and patient where descriptors are short.
pub(crate) fn open_at(
    directory: impl AsFd,
    name: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    patiently(|| openat(&directory, name, flags, mode))
}

/// The path of what holds `path`, empty at the top, and its last component.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Bytes on the disk that a file takes: `st_blocks` counts blocks of 512 bytes.
pub(crate) fn disk_bytes(stat: &Stat) -> u64 {
    (stat.st_blocks as u64).saturating_mul(512)
}

/// Nothing is to be removed where nothing is.
pub(crate) fn gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
