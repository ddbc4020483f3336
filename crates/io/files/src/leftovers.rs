//! Copies that were interrupted, as their hidden directories show (docs/files.md section "The hidden directory").

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use longhaul_sys::files::{ConfinedDir, FileLock};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, statat};
use rustix::io::Errno;

use crate::hidden::{self, at_name};
use crate::identify::{as_path, is_hidden_name};
use crate::place::{beneath, disk_bytes, split};
use crate::source::scan::join;

/// A copy to a directory that is not finished: interrupted, or running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedCopy {
    /// Path of its hidden directory, below the one that was looked through.
    pub path: Vec<u8>,
    /// Time since it noted last what is durable.
    pub idle: Duration,
    /// Bytes on the disk that it holds.
    pub bytes: u64,
    /// It is running.
    pub runs: bool,
}

/// The unfinished copies to a directory and to those below it on the same file system; no link is followed. Of
/// this user's alone, where others may write.
///
/// Memory depends on the directories found and not read.
#[derive(Debug)]
pub struct UnfinishedCopies<'a> {
    root: &'a ConfinedDir,
    device: Option<u64>,
    pending: Vec<Vec<u8>>,
    found: VecDeque<Vec<u8>>,
}

impl<'a> UnfinishedCopies<'a> {
    /// Those below `root`.
    pub fn below(root: &'a ConfinedDir) -> Self {
        Self { root, device: None, pending: vec![Vec::new()], found: VecDeque::new() }
    }

    fn read(&mut self, path: &[u8]) -> io::Result<()> {
        let directory = beneath(self.root, path, OFlags::RDONLY)?;
        let device = fstat(&directory)?.st_dev;
        if *self.device.get_or_insert(device) != device {
            return Ok(());
        }
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_directory = match entry.file_type() {
                FileType::Unknown => statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
                kind => kind == FileType::Directory,
            };
            let name = name.to_bytes();
            if !is_directory || matches!(name, b"." | b"..") {
                continue;
            }
            match is_hidden_name(name) {
                true => self.found.push_back(join(path, name)),
                false => self.pending.push(join(path, name)),
            }
        }
        Ok(())
    }
}

impl Iterator for UnfinishedCopies<'_> {
    /// A directory that could not be looked at comes with its path.
    type Item = Result<UnfinishedCopy, (Vec<u8>, io::Error)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(path) = self.found.pop_front() {
                match look(self.root, &path) {
                    Ok(Some(copy)) => return Some(Ok(copy)),
                    // Finished meanwhile, or of others.
                    Ok(None) => continue,
                    Err(error) => return Some(Err((path, error))),
                }
            }
            let path = self.pending.pop()?;
            match self.read(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Some(Err((path, error)));
                }
                _ => {}
            }
        }
    }
}

fn look(root: &ConfinedDir, path: &[u8]) -> io::Result<Option<UnfinishedCopy>> {
    let (above, name) = split(path);
    let above = open_above(root, above)?;
    let Some((directory, record)) = at_name(&above, name, false)? else { return Ok(None) };
    let stat = match &record {
        Some(record) => fstat(record)?,
        None => fstat(&directory)?,
    };
    let lock = record.as_ref().map(FileLock::try_take);
    let runs = lock.is_some_and(
        |lock| matches!(lock, Err(error) if error.kind() == io::ErrorKind::WouldBlock),
    );
    let noted = Duration::new(stat.st_mtime.max(0).unsigned_abs(), stat.st_mtime_nsec as u32);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let idle = now.saturating_sub(noted);
    Ok(Some(UnfinishedCopy { path: path.to_vec(), idle, bytes: taken(&directory)?, runs }))
}

/// Bytes on the disk of what is in a directory, and in those in it.
fn taken(directory: &OwnedFd) -> io::Result<u64> {
    let mut sum = 0;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        sum += disk_bytes(&stat);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            match beneath(directory, name.to_bytes(), OFlags::RDONLY) {
                Ok(inner) => sum += taken(&inner)?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(sum)
}

/// Removes what an interrupted copy has left; false where it runs, or is gone.
///
/// # Errors
/// Some of it cannot be removed.
pub fn discard(root: &ConfinedDir, path: &[u8]) -> io::Result<bool> {
    let (above, name) = split(path);
    let above = open_above(root, above)?;
    let Some((directory, Some(record))) = at_name(&above, name, true)? else { return Ok(false) };
    let _lock = match FileLock::try_take(&record) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        // Where nothing can be locked nobody knows; who asks takes it for interrupted.
        Err(_) => None,
    };
    hidden::remove_hidden(above.as_fd(), name, &directory)?;
    Ok(true)
}

fn open_above(root: &ConfinedDir, path: &[u8]) -> io::Result<ConfinedDir> {
    let path = if path.is_empty() { Path::new(".") } else { as_path(path) };
    Ok(root.open_dir(path)?)
}
