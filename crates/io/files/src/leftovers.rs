//! Copies that were interrupted, as their hidden directories show (docs/files.md section "The hidden directory").

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use longhaul_objects::hash::{group_count, group_len};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::record;
use longhaul_sys::files::{ConfinedDir, FileLock};
use longhaul_units::Bytes;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, statat};
use rustix::io::Errno;

use crate::hidden::{self, RECORD, at_name};
use crate::identify::{as_path, boot_id, is_hidden_name};
use crate::place::{beneath, split};
use crate::source::scan::join;

/// A copy to a directory that is not finished: interrupted, or running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedCopy {
    /// Path of its hidden directory, below the one that was looked through.
    pub path: Vec<u8>,
    /// Time since it noted last what is durable.
    pub idle: Duration,
    /// Bytes that have arrived of files that are not whole under their names: of large ones those that the record
    /// vouches for, as far as it was read.
    pub bytes: u64,
    /// Bytes that these files will have, as far as they were begun.
    pub total: u64,
    /// It is running.
    pub runs: bool,
    /// Places that it comes from, as its record names them for people, where it does.
    pub sources: Vec<Vec<u8>>,
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
    let record = record.as_ref().map_or(Ok(Vec::new()), read)?;
    let arrived = record::arrived(&record, boot_id()?);
    let arrived = arrived.into_iter().map(|(file, groups)| (file.to_string(), groups)).collect();
    let Held { bytes, total } = held(&directory, Some(&arrived))?;
    let sources = record::sources(&record).unwrap_or_default().split(|byte| *byte == 0);
    let sources = sources.filter(|it| !it.is_empty()).map(<[u8]>::to_vec).collect();
    Ok(Some(UnfinishedCopy { path: path.to_vec(), idle, bytes, total, runs, sources }))
}

/// The record, or so much of it.
fn read(record: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    record.take(RECORD_MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Bytes of files in a hidden directory.
#[derive(Default)]
struct Held {
    bytes: u64,
    total: u64,
}

/// Files in a directory, and in those in it, which hold small ones only. Of large ones in it so many groups have
/// `arrived`.
fn held(directory: &OwnedFd, arrived: Option<&BTreeMap<String, Vec<u32>>>) -> io::Result<Held> {
    let mut sum = Held::default();
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
        let Held { bytes, total } = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => match beneath(directory, name.to_bytes(), OFlags::RDONLY) {
                Ok(inner) => held(&inner, None)?,
                Err(Errno::NOENT) => Held::default(),
                Err(error) => return Err(error.into()),
            },
            FileType::RegularFile if arrived.is_none() || name.to_bytes() != RECORD.as_bytes() => {
                let size = stat.st_size.max(0).unsigned_abs();
                let groups = name.to_str().ok().and_then(|name| arrived?.get(name));
                Held { bytes: bytes_of(size, groups), total: size }
            }
            _ => Held::default(),
        };
        (sum.bytes, sum.total) = (sum.bytes + bytes, sum.total + total);
    }
    Ok(sum)
}

/// Bytes that are there of a file of that size: these groups, and of one without all if it is small, which is
/// written at once.
fn bytes_of(size: u64, groups: Option<&Vec<u32>>) -> u64 {
    match groups {
        None if size < GROUP_SIZE => size,
        None => 0,
        Some(groups) => {
            let groups = groups.iter().filter(|group| **group < group_count(size));
            groups.map(|group| group_len(size, *group) as u64).sum()
        }
    }
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

/// Bytes of a record that are read: claims for more than a terabyte.
const RECORD_MOST: u64 = 64 << 20;
