//! Devices, FIFOs and sockets at the destination: nothing ever takes their place.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{
    AtFlags, CWD, FileType, RenameFlags, Stat, major, minor, readlinkat, renameat, renameat_with,
    statat,
};
use rustix::io::Errno;

/// A thing that is neither file, directory nor link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// The device that swallows everything.
    Null,
    Device,
    Fifo,
    Socket,
    /// A link of the system's to an open file, as `/dev/stdout` is.
    OpenFile,
}

impl Special {
    pub(crate) fn of(stat: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if is_null(stat) => Some(Self::Null),
            FileType::CharacterDevice | FileType::BlockDevice => Some(Self::Device),
            FileType::Fifo => Some(Self::Fifo),
            FileType::Socket => Some(Self::Socket),
            _ => None,
        }
    }

    /// Special file of that name, if there is one. A link is none, wherever it leads.
    pub(crate) fn at(directory: impl AsFd, name: &[u8]) -> io::Result<Option<Self>> {
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Self::of(&stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// True if the link at `path` of this host leads to where the system shows what processes have
/// open.
pub(crate) fn leads_to_open_file(path: &[u8]) -> bool {
    readlinkat(CWD, path, Vec::new()).is_ok_and(|target| target.to_bytes().starts_with(b"/proc/"))
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null | Self::Device => "a device",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::OpenFile => "a link to an open file",
        })
    }
}

/// Something stands where an entry should, and is not replaced.
#[derive(Debug, thiserror::Error)]
#[error("{0} of that name is in the way; devices, FIFOs and sockets are never replaced")]
pub(crate) struct Obstacle(pub(crate) Special);

/// Renames within a file system. What has the new name is replaced, if it is a file or a link.
pub(crate) fn rename_over_files(
    (from, old): (impl AsFd, &[u8]),
    (to, new): (impl AsFd, &[u8]),
) -> io::Result<()> {
    match renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
        // Some file systems cannot promise that nothing is replaced, and some systems and sandboxes do not
        // know how to ask for it.
        Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {}
        result => return Ok(result?),
    }
    if let Some(special) = Special::at(&to, new)? {
        return Err(io::Error::other(Obstacle(special)));
    }
    Ok(renameat(from, old, to, new)?)
}

fn is_null(stat: &Stat) -> bool {
    (major(stat.st_rdev), minor(stat.st_rdev)) == NULL
}

/// Linux' numbers of `/dev/null`.
const NULL: (u32, u32) = (1, 3);
