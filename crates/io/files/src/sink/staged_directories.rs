//! New directories, filled out of sight and placed by one `rename` (docs/files.md).

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use longhaul_objects::{Checked, FilledDirectory, Fsync, Made, RecordedFile};
use longhaul_sys::sync::lock;
use longhaul_wire::Entry;
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, RenameFlags, mkdirat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::identify::{PlaceKey, as_path, place_key, staged_name};
use crate::place::gone;
use crate::place::{beneath, open_at, split};
use crate::sink::keeping::provisional_mode;
use crate::sink::stamp::stat_file;
use crate::sink::sync::sync_whole;
use crate::sink::write::create_new_file;
use crate::sink::{LastDirectory, SinkTree, is_whole};

/// Which directories are where.
#[derive(Debug, Default)]
pub(crate) struct StagedDirectories {
    /// Directories that this run has made where nothing but the destination directory gives them
    /// group, access list or quota: one made in the hidden directory is then the same.
    plain: BTreeSet<PlaceKey>,
    /// Those of them that are not in their places.
    unplaced: BTreeSet<PlaceKey>,
    /// Names in the hidden directory that an earlier run has left.
    left: BTreeSet<[u8; 36]>,
}

impl StagedDirectories {
    /// `left` are names in the hidden directory.
    pub(crate) fn new(left: BTreeSet<[u8; 36]>) -> Self {
        Self { left, ..Self::default() }
    }
}

impl SinkTree {
    /// Makes the new directory `place` in the hidden directory, if that is as good: `None` where it
    /// is not.
    ///
    /// A directory that an earlier run has left is not filled further: it may hold files that are
    /// not whole. Those that are get their names when they are looked for ([`Self::take_left`]).
    pub(crate) fn make_staged(&self, place: &[u8], mode: u32) -> Option<io::Result<Made>> {
        // There, which of two gets the name shows only in its place.
        if self.folding.is_some() {
            return None;
        }
        let (parent, _) = split(place);
        let name = staged_name(place);
        let mut staged = lock(&self.staged);
        let above = place_key(parent);
        let is_unplaced = staged.unplaced.contains(&above);
        if !parent.is_empty() && !staged.plain.contains(&above) {
            return None;
        }
        if staged.left.contains(&name) {
            if !is_unplaced {
                return None;
            }
            // What would hold its files is new again: somebody has removed it.
            staged.left.remove(&name);
            if let Err(error) = remove_staged(&self.hidden, &name) {
                return Some(Err(error));
            }
        }
        if !is_unplaced && self.is_there(place) {
            return None;
        }
        if let Err(error) = mkdirat(&self.hidden, &name[..], Mode::from_raw_mode(mode)) {
            return Some(Err(error.into()));
        }
        let key = place_key(place);
        staged.plain.insert(key);
        staged.unplaced.insert(key);
        Some(Ok(Made::Aside))
    }

    /// A new directory was made in its place: those in it may be staged all the same.
    pub(crate) fn note_made_in_place(&self, place: &[u8]) {
        let mut staged = lock(&self.staged);
        let (parent, _) = split(place);
        if parent.is_empty() || staged.plain.contains(&place_key(parent)) {
            staged.plain.insert(place_key(place));
        }
    }

    /// See [`longhaul_objects::Action::PlaceDirectories`]. Obstacles are reported for the files,
    /// when they are published one by one.
    pub(crate) fn place_directory(&self, directory: &FilledDirectory) -> bool {
        let Ok(place) = self.place(&directory.entry) else {
            return false;
        };
        let mut last = None;
        let result = self.try_to_place(&place, directory, &mut last);
        let (parent, name) = split(&place);
        if result.is_err()
            && let Ok(parent) = self.parent(parent, &mut last)
        {
            // Where somebody has made it, it is as good, and keeps its mode.
            let mode = Mode::from_raw_mode(provisional_mode(&directory.entry));
            if mkdirat(parent, name, mode).is_err() && beneath(parent, name, OFlags::PATH).is_ok() {
                let id = directory.id.as_wire();
                lock(&self.made).remove(id..id + 1);
            }
        }
        lock(&self.staged).unplaced.remove(&place_key(&place));
        result.is_ok()
    }

    fn try_to_place(
        &self,
        place: &[u8],
        directory: &FilledDirectory,
        last: &mut Option<LastDirectory>,
    ) -> io::Result<()> {
        let staged = staged_name(place);
        if !directory.spoiled.is_empty() {
            let inside = open_staged(&self.hidden, &staged, OFlags::RDONLY)?;
            for name in &directory.spoiled {
                gone(unlinkat(&inside, &name[..], AtFlags::empty()))?;
            }
            // What is not whole must not come back behind the name.
            if self.fsync == Fsync::End {
                sync_whole(inside, &self.notes)?;
            }
        }
        let (parent, name) = split(place);
        let parent = self.parent(parent, last)?;
        Ok(renameat_with(&self.hidden, &staged[..], parent, name, RenameFlags::NOREPLACE)?)
    }

    /// Writes a whole file straight into its staged directory.
    pub(crate) fn write_staged(
        &self,
        entry: &Entry,
        data: &[u8],
        last: &mut Option<LastDirectory>,
    ) -> io::Result<()> {
        // Its directory may be open already, which says nothing of its own name.
        self.place(entry).map_err(io::Error::other)?;
        let (parent, name) = split(entry.path.as_bytes());
        let open = || self.open_staged_of(entry, OFlags::PATH);
        let directory = LastDirectory::or_open(last, parent, open)?;
        let (made_with, mode) = self.modes_of_whole(entry);
        let file = File::from(create_new_file(directory, name, made_with)?);
        file.write_all_at(data, 0)?;
        self.set_attributes(&file, mode, entry)
    }

    /// The directory that holds `entry` and is, or was, staged.
    pub(crate) fn open_staged_of(&self, entry: &Entry, flags: OFlags) -> io::Result<OwnedFd> {
        let place = self.place(entry).map_err(io::Error::other)?;
        open_staged(&self.hidden, &staged_name(split(&place).0), flags)
    }

    /// Makes durable a file that was written straight into its directory.
    pub(crate) fn sync_staged(&self, entry: &Entry) -> io::Result<()> {
        let directory = self.open_staged_of(entry, OFlags::RDONLY)?;
        let (_, name) = split(entry.path.as_bytes());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        sync_whole(open_at(&directory, name, flags, Mode::empty())?, &self.notes)?;
        sync_whole(directory, &self.notes)
    }

    /// A file that was recorded as whole and is not there lies, perhaps, in what an earlier run has
    /// left: then it gets its name, unless somebody may have written to it.
    pub(crate) fn take_left(
        &self,
        file: &RecordedFile,
        last: &mut Option<LastDirectory>,
    ) -> Checked {
        let entry = &*file.entry;
        let mut take = || {
            let place = self.place(entry).ok()?;
            let (parent, name) = split(&place);
            let staged = staged_name(parent);
            if !lock(&self.staged).left.contains(&staged) {
                return None;
            }
            let left = open_staged(&self.hidden, &staged, OFlags::PATH).ok()?;
            let parent = self.parent(parent, last).ok()?;
            let stat = stat_file(&left, name).ok()?;
            let stamp = self.stamp(&stat).filter(|_| self.trust.has_file(&stat));
            let is_as_it_was = stamp.is_some() && stamp == file.stamp;
            if !is_as_it_was || !is_whole(&left, name, entry) || self.is_there(&place) {
                return None;
            }
            renameat(&left, name, parent, name).ok()
        };
        take().map_or(Checked::Missing, |()| Checked::There)
    }

    /// True if something has the name.
    fn is_there(&self, place: &[u8]) -> bool {
        let (parent, name) = split(place);
        let parent = beneath(&self.root, parent, OFlags::PATH);
        parent.is_ok_and(|parent| {
            !matches!(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
        })
    }
}

/// Opens a directory of the hidden directory.
fn open_staged(hidden: impl AsFd, name: &[u8; 36], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open_at(hidden, &name[..], flags, Mode::empty())?)
}

/// Removes a directory of the hidden directory, with the files in it.
pub(crate) fn remove_staged(hidden: impl AsFd, name: &[u8]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match open_at(&hidden, name, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(error) => return gone(Err(error)),
    };
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            gone(unlinkat(&directory, as_path(name), AtFlags::empty()))?;
        }
    }
    gone(unlinkat(hidden, name, AtFlags::REMOVEDIR))
}
