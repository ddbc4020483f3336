//! A destination appears whole or not at all: written under a temporary name, then renamed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, RenameFlags, linkat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::{ConfinedDir, ConfinedError};

/// Permission of a rename to replace what has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It may: the old is there until the new is.
    Yes,
    /// It must not: `AlreadyExists`.
    No,
}

impl ConfinedDir {
    /// Gives `from` the name `to` in one step. Sync the file before, and the directory of `to`
    /// after, for the step to be durable.
    ///
    /// # Errors
    /// `AlreadyExists` under [`Replace::No`], and those of `rename`.
    pub fn rename(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        replace: Replace,
    ) -> Result<(), ConfinedError> {
        let (from_dir, from) = self.parent(from.as_ref())?;
        let (to_dir, to) = self.parent(to.as_ref())?;
        if replace == Replace::Yes {
            return Ok(renameat(from_dir, from, to_dir, to)?);
        }
        match renameat_with(&from_dir, &from, &to_dir, &to, RenameFlags::NOREPLACE) {
            // Not every file system knows the flag; a hard link never replaces.
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(&from_dir, &from, &to_dir, &to, AtFlags::empty())?;
                Ok(unlinkat(from_dir, from, AtFlags::empty())?)
            }
            result => Ok(result?),
        }
    }
}

/// The hidden name beside `name` under which its contents grow. `tag` makes it the same again for
/// the transfer that resumes, and another for any other transfer to that name.
///
/// At most 255 bytes, whatever the length of `name`.
pub fn temporary_name(name: &OsStr, tag: u64) -> OsString {
    let suffix = format!(".{tag:016x}{SUFFIX}");
    let kept = name.as_bytes().len().min(NAME_MAX - 1 - suffix.len());
    let mut temporary = vec![b'.'];
    temporary.extend(&name.as_bytes()[..kept]);
    temporary.extend(suffix.as_bytes());
    OsString::from_vec(temporary)
}

const SUFFIX: &str = ".lh-part";

/// Of Linux; few file systems allow more.
const NAME_MAX: usize = 255;
