//! Paths below a directory, one step at a time and through no link.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::descriptors::patiently;

/// Opens the directory `path` below `directory`; empty is the directory itself. No component of it
/// is a symbolic link, and nothing leads out.
pub(super) fn beneath(
    directory: impl AsFd,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut races = 0;
    loop {
        match patiently(|| openat2(&directory, path, flags, Mode::empty(), rules)) {
            // Something was renamed on the way, and the kernel cannot tell what that means.
            Err(Errno::AGAIN) if races < RACES_MAX => races += 1,
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// As the system's `openat`, and patient where descriptors are short.
pub(super) fn open_at(
    directory: impl AsFd,
    name: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    patiently(|| openat(&directory, name, flags, mode))
}

/// The path of what holds `path`, empty at the top, and its last component.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Renames that one lookup may meet: a bound for an intruder who does nothing else.
const RACES_MAX: u32 = 1000;
