//! Parents of a destination directory: `cp SRC DST/` makes those that are missing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{Access, AtFlags, Mode, OFlags, Stat, accessat, fstat, openat};
use rustix::io::Errno;

use crate::sink::sync::{sync_all_of, sync_directory};

/// Directories above the destination directory that may hold names which are not durable: this run has
/// made them, or an earlier one that ended before its first checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parents {
    levels: usize,
    /// Device and inode of the directory that the destination is confined to.
    top: Option<(u64, u64)>,
}

impl Parents {
    /// Parents that there can be where `path` is made, below the directory `top` if it is confined.
    pub(crate) fn of(path: &[u8], top: Option<impl AsFd>) -> io::Result<Self> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let top = top.map(fstat).transpose()?.as_ref().map(identity);
        Ok(Self { levels: names.count(), top })
    }

    /// Makes the names of `directory` and its parents durable, its own first. A run makes
    /// directories one in the other, so it ends where this process may make none, and at a mount.
    pub(crate) fn sync(self, directory: impl AsFd, notes: &AtomicU64) -> io::Result<()> {
        let mut here: OwnedFd = openat(directory, ".", FLAGS, Mode::empty())?;
        for _ in 0..self.levels {
            let stat = fstat(&here)?;
            if self.top == Some(identity(&stat)) || !may_make(&here) {
                break;
            }
            here = match openat(&here, "..", FLAGS, Mode::empty()) {
                Ok(above) => above,
                // It may be written and not read.
                Err(Errno::ACCESS) => return sync_all_of(&here, notes),
                Err(error) => return Err(error.into()),
            };
            let above = fstat(&here)?;
            if above.st_dev != stat.st_dev || above.st_ino == stat.st_ino {
                break;
            }
            sync_directory(&here, notes)?;
        }
        Ok(())
    }
}

/// True if this process may make names in the parent of `directory`.
fn may_make(directory: impl AsFd) -> bool {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(directory, "..", access, AtFlags::EACCESS).is_ok()
}

/// Device and inode.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
