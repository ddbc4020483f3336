//! Copies that were interrupted, as their hidden directories show (docs/files.md section "The hidden directory").

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use longhaul_objects::record;
use longhaul_sys::files::{ConfinedDir, FileLock, read_up_to_at};
use longhaul_units::Bytes;
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
    /// Places that it comes from, as its record names them for people; nothing where it does not.
    pub sources: Vec<u8>,
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
    /// Bytes that paths to be looked at may still take.
    room: u64,
}

/// One step of a look at [`UnfinishedCopies`].
#[derive(Debug)]
pub enum Look {
    /// An unfinished copy.
    Copy(UnfinishedCopy),
    /// A directory that could not be looked at.
    Failed(Vec<u8>, io::Error),
    /// A directory was read, or something in it is none.
    Nothing,
}

impl<'a> UnfinishedCopies<'a> {
    /// Those below `root`.
    pub fn below(root: &'a ConfinedDir) -> Self {
        let (pending, found) = (vec![Vec::new()], VecDeque::new());
        Self { root, device: None, pending, found, room: u64::MAX }
    }

    /// The same, with paths of at most so many bytes that wait to be looked at.
    #[must_use]
    pub fn limit_names(self, room: Bytes) -> Self {
        Self { room: room.get(), ..self }
    }

    /// Reads a directory, or looks at what was found in one; `None` behind the last.
    pub fn step(&mut self) -> Option<Look> {
        if let Some(path) = self.found.pop_front() {
            self.room = self.room.saturating_add(cost(&path));
            return Some(match look(self.root, &path) {
                Ok(Some(copy)) => Look::Copy(copy),
                // Finished meanwhile, or of others.
                Ok(None) => Look::Nothing,
                Err(error) => Look::Failed(path, error),
            });
        }
        let path = self.pending.pop()?;
        self.room = self.room.saturating_add(cost(&path));
        match self.read(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Some(Look::Failed(path, error))
            }
            _ => Some(Look::Nothing),
        }
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
            let inner = join(path, name);
            let Some(room) = self.room.checked_sub(cost(&inner)) else {
                return Err(io::Error::other("more directories than are kept in mind"));
            };
            self.room = room;
            match is_hidden_name(name) {
                true => self.found.push_back(inner),
                false => self.pending.push(inner),
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
            match self.step()? {
                Look::Copy(copy) => return Some(Ok(copy)),
                Look::Failed(path, error) => return Some(Err((path, error))),
                Look::Nothing => {}
            }
        }
    }
}

/// Bytes that a path takes which waits.
fn cost(path: &[u8]) -> u64 {
    (path.len() + size_of::<Vec<u8>>()) as u64
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
    let (path, bytes) = (path.to_vec(), taken(&directory)?);
    let sources = record.as_ref().map_or(Ok(Vec::new()), sources)?;
    Ok(Some(UnfinishedCopy { path, idle, bytes, runs, sources }))
}

/// The sources that a record names.
fn sources(record: &File) -> io::Result<Vec<u8>> {
    let mut beginning = vec![0; record::BEGINNING];
    let len = read_up_to_at(record, &mut beginning, 0)?;
    Ok(record::sources(&beginning[..len]).unwrap_or_default().to_vec())
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
