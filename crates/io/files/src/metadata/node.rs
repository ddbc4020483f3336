//! A file, directory or link whose metadata is looked at or set.

use std::cell::Cell;
use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags, accessat, chmod,
    chownat, fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, lgetxattr,
    llistxattr, lremovexattr, lsetxattr, openat, statat,
};
use rustix::io::{Errno, Result};

use crate::metadata::{USER, rights};

/// A file, directory or link that has metadata.
pub(crate) struct Node<'a> {
    at: At<'a>,
    /// Nothing is set.
    is_dry: bool,
    /// Something was set, or would have been.
    changed: Cell<bool>,
    /// The mode that it had before another was set for the copy.
    had: Option<u32>,
}

enum At<'a> {
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
        Self::at(At::Open(file.as_fd()))
    }

    fn at(at: At<'a>) -> Self {
        Self { at, is_dry: false, changed: Cell::new(false), had: None }
    }

    /// It, of which nothing is set.
    pub(crate) fn dry(self, is_dry: bool) -> Self {
        Self { is_dry, ..self }
    }

    /// It, whose mode was another before the copy, perhaps: only what differs from that is a change.
    pub(crate) fn having(self, had: Option<u32>) -> Self {
        Self { had, ..self }
    }

    /// True if something was set, or would have been.
    pub(crate) fn was_changed(&self) -> bool {
        self.changed.get()
    }

    /// True if nothing of it is set.
    pub(crate) fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// Sets something, or in a dry run finds out whether it `may`.
    fn change(
        &self,
        may: impl FnOnce() -> Result<bool>,
        set: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match self.is_dry {
            false => set()?,
            true if !self.is_fixed() && may()? => {}
            true => return Err(Errno::PERM),
        }
        self.changed.set(true);
        Ok(())
    }

    fn is_fixed(&self) -> bool {
        match &self.at {
            At::Open(file) => rights::is_fixed(file, b""),
            At::Named { directory, name, .. } => rights::is_fixed(directory, name),
        }
    }

    /// True if this process may set its modification time.
    pub(crate) fn may_set_time(&self) -> bool {
        !self.is_fixed() && self.is_as_owner().unwrap_or(false)
    }

    fn is_as_owner(&self) -> Result<bool> {
        Ok(rights::is_as_owner(&self.stat()?))
    }

    /// True if this process may set or remove an extended attribute of this name.
    fn may_set_xattr(&self, name: &[u8]) -> Result<bool> {
        if name.starts_with(b"system.") {
            return self.is_as_owner();
        }
        if !name.starts_with(USER) {
            return Ok(rights::may_set_xattr(name));
        }
        let kind = FileType::from_raw_mode(self.stat()?.st_mode);
        let access = |path: &[u8]| accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
        let writable = match &self.at {
            At::Open(file) => access(format!("/proc/self/fd/{}", file.as_raw_fd()).as_bytes()),
            At::Named { path, .. } => access(path),
        };
        Ok(matches!(kind, FileType::RegularFile | FileType::Directory) && writable.is_ok())
    }

    /// The one of this name.
    pub(crate) fn named(directory: &'a impl AsFd, name: &'a [u8]) -> Self {
        let directory = directory.as_fd();
        let mut path = String::new();
        write!(path, "/proc/self/fd/{}/", directory.as_raw_fd()).expect("a string has room");
        let path = [path.as_bytes(), name].concat();
        Self::at(At::Named { directory, name, path })
    }

    pub(crate) fn stat(&self) -> Result<Stat> {
        match &self.at {
            At::Open(file) => fstat(file),
            At::Named { directory, name, .. } => {
                statat(directory, *name, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Gives it to others.
    pub(crate) fn chown(&self, user: Option<u32>, group: Option<u32>) -> Result<()> {
        let may = || Ok(rights::may_give(&self.stat()?, user, group));
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        let set = || match &self.at {
            At::Open(file) => fchown(file, user, group),
            At::Named { directory, name, .. } => {
                chownat(directory, *name, user, group, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        self.change(may, set)
    }

    /// Sets the mode: of no link.
    pub(crate) fn chmod(&self, mode: u32) -> Result<()> {
        let changed = self.changed.get();
        let set = || match &self.at {
            At::Open(file) => fchmod(file, Mode::from_raw_mode(mode)),
            At::Named { directory, name, .. } => chmod_unopened(directory, name, mode),
        };
        self.change(|| self.is_as_owner(), set)?;
        self.changed.set(changed || self.had != Some(mode));
        Ok(())
    }

    /// Names of its extended attributes; none where its file system has no such.
    pub(crate) fn xattrs(&self) -> Result<Vec<Box<[u8]>>> {
        let names = grown(NAMES_MOST, |buffer| match &self.at {
            At::Open(file) => flistxattr(file, buffer),
            At::Named { path, .. } => llistxattr(&path[..], buffer),
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
        let value = grown(VALUE_MOST, |buffer| match &self.at {
            At::Open(file) => fgetxattr(file, name, buffer),
            At::Named { path, .. } => lgetxattr(&path[..], name, buffer),
        });
        match value {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets one.
    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let set = || match &self.at {
            At::Open(file) => fsetxattr(file, name, value, XattrFlags::empty()),
            At::Named { path, .. } => lsetxattr(&path[..], name, value, XattrFlags::empty()),
        };
        self.change(|| self.may_set_xattr(name), set)
    }

    /// Removes one.
    pub(crate) fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        let set = || match &self.at {
            At::Open(file) => fremovexattr(file, name),
            At::Named { path, .. } => lremovexattr(&path[..], name),
        };
        self.change(|| self.may_set_xattr(name), set)
    }
}

/// Sets the mode of a file that its owner may not open.
fn chmod_unopened(directory: &BorrowedFd<'_>, name: &[u8], mode: u32) -> Result<()> {
    let file =
        openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::Symlink => Err(Errno::OPNOTSUPP),
        _ => chmod_by_path(&file, Mode::from_raw_mode(mode)),
    }
}

/// Sets the mode of what is open by path only (`O_PATH`): it has another path, which leads nowhere else.
pub(crate) fn chmod_by_path(file: &impl AsFd, mode: Mode) -> Result<()> {
    chmod(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()), mode)
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
