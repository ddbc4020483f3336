//! Names and status of what is below a served directory, for a client that looks.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use longhaul_sys::files::{ConfinedDir, ConfinedError};
use longhaul_units::Bytes;
use longhaul_wire::{EntryCode, EntryEnd, EntryPath, Listed, ListedKind, MAX_PATH};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, readlinkat, statat};
use rustix::io::Errno;

use crate::explain;
use crate::identify::{as_path, is_hidden_name};
use crate::place::{beneath, split};
use crate::source::nanoseconds;
use crate::source::scan::join;

/// Things at a path: the thing itself, or those in it where it is a directory, and below it where that
/// is wanted. The path itself is resolved as a source of a copy is; links further down are listed, not
/// followed. A directory comes before what is in it, and hidden directories of unfinished copies do not
/// come at all.
///
/// Memory depends on the directories found and not read, not on the tree.
#[derive(Debug)]
pub struct Listing {
    top: Option<ConfinedDir>,
    /// Where the path is no directory.
    alone: Option<Found>,
    recursive: bool,
    reading: Option<(Dir, Vec<u8>)>,
    /// Paths of directories that are to be read, the next one last, and memory that these take.
    pending: Vec<Vec<u8>>,
    pending_cost: usize,
    pending_most: usize,
}

/// Something found by a [`Listing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    There(Listed),
    /// It is there, and cannot be looked at.
    Unlisted {
        /// Its path below the one that was asked for.
        path: Vec<u8>,
        /// Why.
        end: EntryEnd,
    },
}

impl Listing {
    /// Of `path` below `root`; names of directories that are still to be read take at most `memory`.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be looked at: in words for people.
    pub fn open(
        root: &ConfinedDir,
        path: &[u8],
        recursive: bool,
        memory: Bytes,
    ) -> Result<Self, EntryEnd> {
        let stat = root.path_stat(as_path(path)).map_err(at_root)?;
        let (mut top, mut alone) = (None, None);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            top = Some(root.open_dir(as_path(path)).map_err(at_root)?);
        } else {
            alone = Some(Found::There(listed(EntryPath::default(), &stat, None)));
        }
        let pending = if top.is_some() { vec![Vec::new()] } else { Vec::new() };
        let pending_most = usize::try_from(memory.get()).unwrap_or(usize::MAX);
        Ok(Self { top, alone, recursive, reading: None, pending, pending_cost: 0, pending_most })
    }

    /// Of all that is below the directory `path` of `top`, to which no link leads.
    pub(crate) fn within(top: ConfinedDir, path: Vec<u8>, memory: Bytes) -> Self {
        let pending_most = usize::try_from(memory.get()).unwrap_or(usize::MAX);
        Self {
            top: Some(top),
            alone: None,
            recursive: true,
            reading: None,
            pending_cost: cost(&path),
            pending: vec![path],
            pending_most,
        }
    }

    /// True if what is in it is listed, or below it.
    pub(crate) fn is_directory(&self) -> bool {
        self.top.is_some()
    }

    fn start_directory(&mut self, path: Vec<u8>) -> Option<Found> {
        let top = self.top.as_ref()?;
        let opened = beneath(top, &path, OFlags::RDONLY).and_then(Dir::new);
        match opened {
            Ok(dir) => {
                self.reading = Some((dir, path));
                None
            }
            // Gone since it was listed, or by a list of hashes no directory.
            Err(Errno::NOENT | Errno::NOTDIR) if !path.is_empty() => None,
            Err(error) => Some(unlisted(path, &error.into())),
        }
    }

    /// The next thing in the directory that is being read.
    fn step(&mut self) -> Option<Found> {
        let (dir, above) = self.reading.as_mut()?;
        let found = match dir.read() {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                let path = std::mem::take(above);
                self.reading = None;
                return Some(unlisted(path, &error.into()));
            }
            None => {
                self.reading = None;
                return None;
            }
        };
        let name = found.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        let path = join(above, name.to_bytes());
        let status = dir.fd().and_then(|directory| {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let target = target(directory, name, &stat)?;
            Ok((stat, target))
        });
        let (stat, target) = match status {
            Ok(status) => status,
            Err(Errno::NOENT) => return None,
            Err(error) => return Some(unlisted(path, &error.into())),
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_directory && is_hidden_name(name.to_bytes()) {
            return None;
        }
        let Ok(entry_path) = EntryPath::new(path.clone()) else {
            let reason = format!("its path is longer than {MAX_PATH} bytes");
            let end = EntryEnd::new(EntryCode::Name, &reason);
            return Some(Found::Unlisted { path, end });
        };
        if is_directory && self.recursive {
            let cost = cost(&path);
            if self.pending_cost + cost > self.pending_most {
                let end = EntryEnd::new(EntryCode::OutOfResources, TOO_MANY);
                return Some(Found::Unlisted { path, end });
            }
            self.pending_cost += cost;
            self.pending.push(path);
        }
        Some(Found::There(listed(entry_path, &stat, target)))
    }
}

impl Iterator for Listing {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if let Some(alone) = self.alone.take() {
            return Some(alone);
        }
        loop {
            let found = if self.reading.is_some() {
                self.step()
            } else {
                let path = self.pending.pop()?;
                self.pending_cost = self.pending_cost.saturating_sub(cost(&path));
                self.start_directory(path)
            };
            if found.is_some() {
                return found;
            }
        }
    }
}

/// Status of what is at `path`, through links, with the empty path.
pub(crate) fn status(root: &ConfinedDir, path: &[u8]) -> Result<Listed, EntryEnd> {
    let stat = root.path_stat(as_path(path)).map_err(at_root)?;
    Ok(listed(EntryPath::default(), &stat, None))
}

/// Status of a link itself.
pub(crate) fn link_status(root: &ConfinedDir, path: &[u8]) -> Option<Listed> {
    let (parent, name) = split(path);
    let parent = if parent.is_empty() { b"." } else { parent };
    let directory = root.open_dir(as_path(parent)).ok()?;
    let name = CString::new(name).ok()?;
    let stat = statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let target = target(directory.as_fd(), &name, &stat).ok()??;
    Some(listed(EntryPath::default(), &stat, Some(target)))
}

fn at_root(error: ConfinedError) -> EntryEnd {
    explain::at_root(&error.into())
}

/// Where a link points; nothing for all else.
fn target(
    directory: BorrowedFd<'_>,
    name: &CStr,
    stat: &Stat,
) -> rustix::io::Result<Option<Vec<u8>>> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    readlinkat(directory, name, Vec::new()).map(|target| Some(target.into_bytes()))
}

fn listed(path: EntryPath, stat: &Stat, target: Option<Vec<u8>>) -> Listed {
    let kind = match (FileType::from_raw_mode(stat.st_mode), target) {
        (FileType::RegularFile, _) => ListedKind::File,
        (FileType::Directory, _) => ListedKind::Directory,
        (_, Some(target)) => ListedKind::Link { target },
        _ => ListedKind::Other,
    };
    let size = if kind == ListedKind::File { stat.st_size as u64 } else { 0 };
    let mode = (stat.st_mode & 0o7777) as u16;
    let modified = nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64);
    Listed { kind, mode, modified, size, path }
}

fn unlisted(path: Vec<u8>, error: &io::Error) -> Found {
    Found::Unlisted { path, end: explain::in_place(error) }
}

fn cost(path: &[u8]) -> usize {
    size_of::<Vec<u8>>() + PENDING_COST + path.len()
}

/// Bytes that the allocation of a path takes beside it.
const PENDING_COST: usize = 16;
const TOO_MANY: &str = "the server has no memory left for the names of more directories \
                        (serve --memory); list it in parts";
