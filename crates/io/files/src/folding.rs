//! Destinations that take `README` and `readme` for one name: no entry replaces another of its copy.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use crate::identify::{PlaceKey, as_path, place_key};
use crate::place::split;

/// Names that a run has made or found of its copy, where the file system folds names.
///
/// Which names are one is up to the file system, so inodes distinguish things.
#[derive(Debug, Default)]
pub(crate) struct Folding {
    /// Device and inode.
    seen: BTreeSet<(u64, u64)>,
    /// Directories that are refused: what is below them would get into others.
    refused: BTreeSet<PlaceKey>,
}

/// True if `directory`, which holds the file `name` in small letters, finds it in capitals too.
pub(crate) fn folds(directory: impl AsFd, name: &str) -> io::Result<bool> {
    let stat = |name: &str| statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let small = stat(name)?;
    match stat(&name.to_ascii_uppercase()) {
        Ok(capital) => Ok(inode(&capital) == inode(&small)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Folding {
    /// Refuses the name of something that this copy has put into `directory` under another one.
    pub(crate) fn check(&self, directory: impl AsFd, name: &[u8]) -> io::Result<()> {
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if self.seen.contains(&inode(&stat)) => {
                Err(io::Error::other(SameName(first_name(directory, name, &stat))))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// An entry has its name.
    pub(crate) fn note(&mut self, directory: impl AsFd, name: &[u8]) {
        // What is gone again cannot be replaced.
        if let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            self.seen.insert(inode(&stat));
        }
    }

    /// True if this copy has put or found it there, perhaps under another name.
    pub(crate) fn has_seen(&self, stat: &Stat) -> bool {
        self.seen.contains(&inode(stat))
    }

    /// The directory `place` is not made, and nothing in it.
    pub(crate) fn refuse(&mut self, place: &[u8]) {
        self.refused.insert(place_key(place));
    }

    /// True if `place` is below a directory that was refused.
    pub(crate) fn is_refused(&self, place: &[u8]) -> bool {
        let mut above = split(place).0;
        while !above.is_empty() && !self.refused.is_empty() {
            if self.refused.contains(&place_key(above)) {
                return true;
            }
            above = split(above).0;
        }
        false
    }
}

/// An entry would get into the place of another.
#[derive(Debug, thiserror::Error)]
pub(crate) struct SameName(Option<Vec<u8>>);

impl fmt::Display for SameName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the file system of the destination takes its name for that of ")?;
        match &self.0 {
            Some(first) => write!(f, "'{}', which is copied too", first.escape_ascii()),
            None => f.write_str("another file of this copy"),
        }
    }
}

/// Name as the directory lists it of what is at `name`.
fn first_name(directory: impl AsFd, name: &[u8], stat: &Stat) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = Dir::new(openat(&directory, ".", flags, Mode::empty()).ok()?).ok()?;
    let mut names = listed.filter_map(|entry| {
        let entry = entry.ok()?;
        (entry.ino() == stat.st_ino).then(|| entry.file_name().to_bytes().to_vec())
    });
    names.find(|listed| as_path(listed) != as_path(name))
}

fn inode(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
