//! Deletion, at the end of a copy that asks for it, of names that only the destination has.
//!
//! Only in directories that are copied, through no link, and into no other mount.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_objects::{AnnouncedPaths, Deletion, NamedEntry};
use longhaul_sys::files::{ConfinedDir, is_mounted, is_same_mount, open_dir_here};
use longhaul_sys::sync::lock;
use longhaul_units::shown_path;
use longhaul_wire::{Deletes, Entry, EntryCode, EntryEnd};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, fchmod, statat, unlinkat};
use rustix::io::Errno;

use crate::explain;
use crate::filter::Filter;
use crate::identify::is_hidden_name;
use crate::place::beneath;
use crate::sink::SinkTree;
use crate::sink::writable::{forbids_removal, is_made_writable, make_writable};
use crate::source::scan::join;

/// Limits of deletion.
#[derive(Debug, Default)]
pub(crate) struct DeletionLimits {
    /// Names that may still be, and whether that is bounded.
    left: AtomicU64,
    is_bounded: bool,
    /// Names that it leaves out of the copy stay.
    filter: Option<Filter>,
    /// The destination: what is in another mount stays.
    base: Option<OwnedFd>,
    /// Nothing is deleted: it is found out only what would be.
    dry_run: bool,
    /// Directories of this user, to which that may not write, are made writable before they are emptied.
    keeps_modes: bool,
    /// Deletes also what stands in the way of an entry of another kind.
    makes_room: bool,
    /// Things deleted for that, of which nobody knows yet.
    cleared: Mutex<Vec<Deletion>>,
}

/// Names in a directory.
struct Contents {
    names: Vec<Found>,
    /// Another transfer has its hidden directory in it, which is none of the names.
    has_hidden: bool,
}

/// A name in a directory.
struct Found {
    name: Vec<u8>,
    is_directory: bool,
}

impl DeletionLimits {
    pub(crate) fn new(deletes: Option<Deletes>, filter: Option<Filter>) -> Self {
        let most = deletes.and_then(|deletes| deletes.most);
        let left = AtomicU64::new(most.unwrap_or(0));
        let (is_bounded, makes_room) = (most.is_some(), deletes.is_some());
        let cleared = Mutex::default();
        let (base, dry_run, keeps_modes) = (None, false, false);
        Self { left, is_bounded, filter, base, dry_run, keeps_modes, makes_room, cleared }
    }

    /// The same of the destination that is in `root`, under a `name` where that is a new one.
    pub(crate) fn below(self, root: &ConfinedDir, name: Option<&[u8]>) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let named = name.and_then(|name| beneath(root, name, flags).ok());
        Self { base: named.or_else(|| beneath(root, b"", flags).ok()), ..self }
    }

    /// True of a directory in another mount than the destination.
    fn is_elsewhere(&self, directory: &OwnedFd) -> bool {
        self.base.as_ref().is_some_and(|base| !is_same_mount(base, directory).unwrap_or(false))
    }

    /// The same of a copy that keeps modes or does not.
    pub(crate) fn keeping_modes(self, keeps_modes: bool) -> Self {
        Self { keeps_modes, ..self }
    }

    /// The same, but nothing is deleted.
    pub(crate) fn of_dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }

    /// True if what stands in the way of an entry of another kind is deleted.
    pub(crate) fn makes_room(&self) -> bool {
        self.makes_room
    }

    /// True if that is so for a directory that is to be where a file of such a status is: not of devices and the
    /// like.
    pub(crate) fn replaces(&self, stat: &Stat) -> bool {
        let kind = FileType::from_raw_mode(stat.st_mode);
        self.makes_room && matches!(kind, FileType::RegularFile | FileType::Symlink)
    }

    /// Deletes the file or link that stands where the directory `entry` is to be. False where none does, or it is not
    /// to be deleted.
    pub(crate) fn make_room_for_directory(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        entry: &Entry,
    ) -> Result<bool, EntryEnd> {
        let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if !stat.is_ok_and(|stat| self.replaces(&stat)) {
            return Ok(false);
        }
        self.clear(parent, Found { name: name.to_vec(), is_directory: false }, entry)
    }

    /// Deletes the directory that stands where the file or link `entry` is to be, if it could not get its name for
    /// that `error`. False where it is another, or it is not to be deleted.
    pub(crate) fn make_room_for_file(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        entry: &Entry,
        error: &io::Error,
    ) -> Result<bool, EntryEnd> {
        if !self.makes_room || error.kind() != io::ErrorKind::IsADirectory {
            return Ok(false);
        }
        self.clear(parent, Found { name: name.to_vec(), is_directory: true }, entry)
    }

    /// In a dry run: an error, and the reason, if a copy would not delete the directory that stands where the file or
    /// link `entry` is to be.
    pub(crate) fn clears(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        entry: &Entry,
    ) -> Result<(), EntryEnd> {
        let found = Found { name: name.to_vec(), is_directory: true };
        self.clear(parent, found, entry).map(|_| ())
    }

    /// An error where a file or link in `parent` that has this path of a directory is excluded, or in another mount,
    /// and so stays.
    pub(crate) fn gives_up_its_place(&self, parent: &OwnedFd, path: &[u8]) -> Result<(), EntryEnd> {
        match self.admits(path, false) {
            true if self.is_elsewhere(parent) => Err(in_other_mount()),
            true => Ok(()),
            false => Err(EntryEnd::new(EntryCode::InTheWay, EXCLUDED)),
        }
    }

    /// Deletes what has the name of `entry`, and all that is in it, or nothing of it. As in `rsync`, what is in it
    /// counts and is named, not what is replaced.
    fn clear(&self, parent: &OwnedFd, found: Found, entry: &Entry) -> Result<bool, EntryEnd> {
        let path = entry.path.as_bytes();
        if !found.is_directory {
            self.gives_up_its_place(parent, path)?;
            let of_mount = EntryCode::InTheWay;
            return self.remove(parent, &found.name, AtFlags::empty(), of_mount).map(|()| true);
        }
        if !self.admits(path, true) {
            return Err(EntryEnd::new(EntryCode::InTheWay, EXCLUDED));
        }
        if self.is_elsewhere(parent) {
            return Err(in_other_mount());
        }
        let names = self.count((parent, &found.name), path, path.len(), 0)?;
        if !self.take(names) {
            return Err(no_more());
        }
        let mut removal = Removal { limits: self, is_counted: true, deletions: Vec::new() };
        let emptied = removal.empty((parent, &found.name), path, 0);
        let failed = removal.deletions.iter().find_map(|deletion| deletion.result.clone().err());
        lock(&self.cleared).append(&mut removal.deletions);
        if !emptied? {
            return Err(failed.unwrap_or_else(|| EntryEnd::new(EntryCode::InTheWay, CHANGED)));
        }
        self.remove(parent, &found.name, AtFlags::REMOVEDIR, EntryCode::InTheWay).map(|()| true)
    }

    /// Number of names in the directory `path`, and below, if all of them may be deleted; an error if one stays. `top`
    /// bytes of its path are those of the directory that is to go.
    fn count(
        &self,
        (parent, name): (&OwnedFd, &[u8]),
        path: &[u8],
        top: usize,
        depth: usize,
    ) -> Result<u64, EntryEnd> {
        let stays = |reason: &str| Err(EntryEnd::new(EntryCode::InTheWay, reason));
        let inside = open_to_empty(parent, name, depth, EntryCode::InTheWay)?;
        let Contents { names, has_hidden } = list(&inside).map_err(cannot_delete)?;
        if has_hidden {
            return stays(HOLDS_INTERRUPTED);
        }
        let mut count = names.len() as u64;
        for found in names {
            let path = join(path, &found.name);
            if !self.admits(&path, found.is_directory) {
                let name = path[top..].strip_prefix(b"/").unwrap_or(&path[top..]);
                return stays(&format!("{HOLDS_EXCLUDED}: {}", shown_path(name)));
            }
            if !found.is_directory && is_mounted(&inside, &found.name) {
                return stays(MOUNTED);
            }
            if found.is_directory {
                count += self.count((&inside, &found.name), &path, top, depth + 1)?;
            }
        }
        Ok(count)
    }

    /// Things deleted to make room since the last call.
    pub(crate) fn take_cleared(&self) -> Vec<Deletion> {
        core::mem::take(&mut *lock(&self.cleared))
    }

    /// True if so many more names may be deleted; then they count.
    fn take(&self, names: u64) -> bool {
        let less = |left: u64| left.checked_sub(names);
        !self.is_bounded
            || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// True if the source would have sent what has this path, had it one.
    fn admits(&self, path: &[u8], is_directory: bool) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.admits(path, is_directory))
    }

    /// Deletes what is at `place` and was not announced, nor is of this copy all the same. The directory has
    /// this `path` in the copy.
    pub(crate) fn delete_others(
        &self,
        (root, place): (&ConfinedDir, &[u8]),
        path: &[u8],
        announced: &AnnouncedPaths,
        is_ours: impl Fn(&OwnedFd, &[u8]) -> bool,
    ) -> Vec<Deletion> {
        let here = beneath(root, place, OFlags::RDONLY);
        let listed = here.and_then(|here| list(&here).map(|contents| (here, contents.names)));
        let (here, names) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                let is_opened = || {
                    let directory = beneath(root, place, OFlags::PATH);
                    directory.is_ok_and(|it| is_made_writable(&it, self.keeps_modes))
                };
                let end = match self.dry_run && error == Errno::ACCESS && is_opened() {
                    true => EntryEnd::new(EntryCode::Skipped, CLOSED),
                    false => {
                        explain::at_destination("cannot look for what to delete", &error.into())
                    }
                };
                return vec![Deletion { path: path.to_vec(), result: Err(end) }];
            }
        };
        let mut others = names.into_iter().filter_map(|found| {
            let path = join(path, &found.name);
            let is_other = !announced.contains(&path) && !is_ours(&here, &found.name);
            is_other.then_some((found, path))
        });
        if self.is_elsewhere(&here) {
            if !others.any(|(found, path)| self.admits(&path, found.is_directory)) {
                return Vec::new();
            }
            let end = EntryEnd::new(EntryCode::Skipped, OTHER_MOUNT);
            return vec![Deletion { path: path.to_vec(), result: Err(end) }];
        }
        let mut removal = Removal { limits: self, is_counted: false, deletions: Vec::new() };
        for (found, path) in others {
            removal.delete((&here, &found), path, 0);
        }
        removal.deletions
    }

    /// Deletes a name; an error with the code `of_mount` where something is mounted there.
    fn remove(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        flags: AtFlags,
        of_mount: EntryCode,
    ) -> Result<(), EntryEnd> {
        let removed = match self.dry_run {
            true => match forbids_removal(directory, name, self.keeps_modes) {
                Some(error) => Err(error),
                None if is_mounted(directory, name) => Err(Errno::BUSY),
                None => Ok(()),
            },
            false => unlinkat(directory, name, flags),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::BUSY) if is_mounted(directory, name) => {
                Err(EntryEnd::new(of_mount, MOUNTED))
            }
            Err(error) => Err(cannot_delete(error)),
        }
    }
}

/// Names that are deleted one after the other, and what came of each.
struct Removal<'a> {
    limits: &'a DeletionLimits,
    /// They were counted before the first went.
    is_counted: bool,
    deletions: Vec<Deletion>,
}

impl Removal<'_> {
    /// The end of what is mounted, which fails nothing but an entry that is to have its place.
    fn of_mount(&self) -> EntryCode {
        if self.is_counted { EntryCode::InTheWay } else { EntryCode::Skipped }
    }

    /// Deletes a name, and what is in it, and notes each: of many in a directory that goes, that alone.
    /// False if it stays: a rule keeps it, or something in it.
    fn delete(
        &mut self,
        (directory, found): (&OwnedFd, &Found),
        path: Vec<u8>,
        depth: usize,
    ) -> bool {
        if !self.limits.admits(&path, found.is_directory) {
            return false;
        }
        let before = self.deletions.len();
        let result = match found.is_directory {
            true => match self.empty((directory, &found.name), &path, depth) {
                Ok(false) => return false,
                Ok(true) => self.unlink(directory, &found.name, AtFlags::REMOVEDIR),
                Err(end) => Err(end),
            },
            false => self.unlink(directory, &found.name, AtFlags::empty()),
        };
        let is_gone = result.is_ok();
        if is_gone && self.deletions.len() > NAMED_MAX {
            self.deletions.truncate(before);
        }
        self.deletions.push(Deletion { path, result });
        is_gone
    }

    /// Deletes what is in a directory. False if something stays.
    fn empty(
        &mut self,
        (directory, name): (&OwnedFd, &[u8]),
        path: &[u8],
        depth: usize,
    ) -> Result<bool, EntryEnd> {
        let inside = open_to_empty(directory, name, depth, self.of_mount())?;
        let Contents { names, has_hidden } = list(&inside).map_err(cannot_delete)?;
        // Where that is not let be, what is in it says so.
        let is_opened = self.limits.keeps_modes && !self.limits.dry_run;
        let had = is_opened.then(|| make_writable(&inside).ok().flatten()).flatten();
        let mut is_empty = !has_hidden;
        for found in names {
            let path = join(path, &found.name);
            is_empty &= self.delete((&inside, &found), path, depth + 1);
        }
        if let Some(mode) = had.filter(|_| !is_empty) {
            let _ = fchmod(&inside, mode);
        }
        Ok(is_empty)
    }

    fn unlink(&self, directory: &OwnedFd, name: &[u8], flags: AtFlags) -> Result<(), EntryEnd> {
        if !self.is_counted && !self.limits.take(1) {
            return Err(no_more());
        }
        self.limits.remove(directory, name, flags, self.of_mount())
    }
}

/// Opens a directory whose contents are to go; `depth` others are open above it. An error with the code `of_mount`
/// where it is a mount.
fn open_to_empty(
    parent: &OwnedFd,
    name: &[u8],
    depth: usize,
    of_mount: EntryCode,
) -> Result<OwnedFd, EntryEnd> {
    if depth == DEPTH_MOST {
        return Err(EntryEnd::new(EntryCode::TooLarge, "directories in it are too deep"));
    }
    open_dir_here(parent, name).map_err(|error| match error {
        Errno::XDEV => EntryEnd::new(of_mount, MOUNTED),
        error => cannot_delete(error),
    })
}

fn in_other_mount() -> EntryEnd {
    EntryEnd::new(EntryCode::InTheWay, IN_OTHER_MOUNT)
}

fn no_more() -> EntryEnd {
    EntryEnd::new(EntryCode::Refused, "--max-delete allows no more")
}

fn cannot_delete(error: Errno) -> EntryEnd {
    explain::at_destination("cannot delete it", &error.into())
}

impl SinkTree {
    /// Deletes what is in the directory and was not announced.
    pub(crate) fn delete_others(
        &self,
        directory: &NamedEntry,
        announced: &AnnouncedPaths,
    ) -> Vec<Deletion> {
        // What this run has made holds nothing else.
        if lock(&self.made).contains(directory.id.as_wire()) {
            return Vec::new();
        }
        let path = directory.entry.path.as_bytes();
        let place = match self.place(&directory.entry) {
            Ok(place) => place,
            Err(end) => return vec![Deletion { path: path.to_vec(), result: Err(end) }],
        };
        let is_ours = |here: &OwnedFd, name: &[u8]| self.is_of_this_copy(here, name);
        self.deletes.delete_others((&self.root, &place), path, announced, is_ours)
    }

    /// True of an announced name that the file system keeps in other letters.
    fn is_of_this_copy(&self, directory: &OwnedFd, name: &[u8]) -> bool {
        self.folding.as_ref().is_some_and(|folding| {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| lock(folding).has_seen(&stat))
        })
    }
}

fn list(directory: &OwnedFd) -> rustix::io::Result<Contents> {
    let mut contents = Contents { names: Vec::new(), has_hidden: false };
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if is_hidden_name(name) {
            contents.has_hidden = true;
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        let is_directory = kind == FileType::Directory;
        contents.names.push(Found { name: name.to_vec(), is_directory });
    }
    Ok(contents)
}

/// Why something stays in the way.
const EXCLUDED: &str = "what has its name at the destination is excluded, and so not deleted";
const HOLDS_EXCLUDED: &str =
    "a directory at the destination has its name, and holds what is excluded and so not deleted";
const HOLDS_INTERRUPTED: &str = "a directory at the destination has its name, and holds what an interrupted copy has left (.longhaul-*)";
const CHANGED: &str =
    "the directory that has its name at the destination got more meanwhile, which stays";
const IN_OTHER_MOUNT: &str =
    "what has its name at the destination is in another mount, where nothing is deleted";
const MOUNTED: &str = "something is mounted there at the destination, so that it stays";
/// Why a directory keeps what only it has.
const OTHER_MOUNT: &str =
    "nothing in it is deleted at the destination, since it is in another mount";
/// In a dry run.
const CLOSED: &str = "it cannot be listed at the destination before a copy makes it accessible, so what would be deleted in it is not known";
/// Names in directories that go which are named one by one.
const NAMED_MAX: usize = 1 << 16;
/// Directories in one another, each of which takes a descriptor and a part of the stack.
const DEPTH_MOST: usize = 200;
