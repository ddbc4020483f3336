//! A file, directory or link whose metadata is looked at or set.

use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Uid, XattrFlags, chownat, fchmod, fchown, fgetxattr, flistxattr,
    fremovexattr, fsetxattr, fstat, lgetxattr, llistxattr, lremovexattr, lsetxattr, statat,
};
use rustix::io::{Errno, Result};

/// A file, directory or link that has metadata.
pub(crate) enum Node<'a> {
    /// It is open, and not only by path (`O_PATH`).
    Open(BorrowedFd<'a>),
    /// It has this name in an open directory, and is not followed where it is a link.
    Named {
        directory: BorrowedFd<'a>,
        name: &'a [u8],
        /// The same for calls that know no directories.
        path: Vec<u8>,
    },
}

impl<'a> Node<'a> {
    /// An open file or directory.
    pub(crate) fn open(file: &'a impl AsFd) -> Self {
        Self::Open(file.as_fd())
    }

    /// The one of this name.
    pub(crate) fn named(directory: &'a impl AsFd, name: &'a [u8]) -> Self {
        let directory = directory.as_fd();
        let mut path = String::new();
        write!(path, "/proc/self/fd/{}/", directory.as_raw_fd()).expect("a string has room");
        let path = [path.as_bytes(), name].concat();
        Self::Named { directory, name, path }
    }

    pub(crate) fn stat(&self) -> Result<Stat> {
        match self {
            Self::Open(file) => fstat(file),
            Self::Named { directory, name, .. } => {
                statat(directory, *name, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Gives it to others.
    pub(crate) fn chown(&self, user: Option<u32>, group: Option<u32>) -> Result<()> {
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        match self {
            Self::Open(file) => fchown(file, user, group),
            Self::Named { directory, name, .. } => {
                chownat(directory, *name, user, group, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Sets the mode of what is open.
    pub(crate) fn chmod(&self, mode: u32) -> Result<()> {
        match self {
            Self::Open(file) => fchmod(file, Mode::from_raw_mode(mode)),
            Self::Named { .. } => Err(Errno::OPNOTSUPP),
        }
    }

    /// Names of its extended attributes; none where its file system has no such.
    pub(crate) fn xattrs(&self) -> Result<Vec<Box<[u8]>>> {
        let names = grown(NAMES_MOST, |buffer| match self {
            Self::Open(file) => flistxattr(file, buffer),
            Self::Named { path, .. } => llistxattr(&path[..], buffer),
        });
        match names {
            Ok(names) => {
                let each = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
                Ok(each.map(Into::into).collect())
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Value of an extended attribute, if it has it.
    pub(crate) fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = grown(VALUE_MOST, |buffer| match self {
            Self::Open(file) => fgetxattr(file, name, buffer),
            Self::Named { path, .. } => lgetxattr(&path[..], name, buffer),
        });
        match value {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets one.
    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Self::Open(file) => fsetxattr(file, name, value, XattrFlags::empty()),
            Self::Named { path, .. } => lsetxattr(&path[..], name, value, XattrFlags::empty()),
        }
    }

    /// Removes one.
    pub(crate) fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        match self {
            Self::Open(file) => fremovexattr(file, name),
            Self::Named { path, .. } => lremovexattr(&path[..], name),
        }
    }
}

/// Bytes that `call` puts into a buffer, which grows to `most` where it is too small.
fn grown(most: usize, call: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match call(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < most => buffer.resize(most, 0),
            Err(error) => return Err(error),
        }
    }
}

/// Names and values are mostly short.
const BUFFER: usize = 256;
/// Linux has no longer ones (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const NAMES_MOST: usize = 1 << 16;
const VALUE_MOST: usize = 1 << 16;
