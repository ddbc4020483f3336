//! A destination that is looked at and not changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use longhaul_objects::storage::Storage;
use longhaul_objects::{
    Action, AnnouncedPaths, ChainingValue, Checked, Checkpoint, Compared, ComparedFile, Deletion,
    Existing, ExistingEntry, FilledDirectory, FirstName, Keeps, Made, NamedEntry, NamedFile,
    Prepared, Publication, RecordedFile, Stamp, TempName, WritePiece,
};
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::sync::lock;
use longhaul_units::Bytes;
use longhaul_wire::{
    Deletes, Entry, EntryCode, EntryEnd, EntryKind, EntryPath, KeptAttributes, Metadata, Summary,
};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, statat};
use rustix::io::Errno;

use crate::destination::{Destination, DestinationError, SinkOptions};
use crate::explain;
use crate::filter::Filter;
use crate::hidden::is_begun;
use crate::identify::hidden_name;
use crate::metadata::node::Node;
use crate::place::{beneath, split};
use crate::sink::contents::{Contents, may_be_all_holes, mended, open_existing};
use crate::sink::deletion::DeletionLimits;
use crate::sink::free_space::has_room;
use crate::sink::hard_links::{is_it_elsewhere, lacks_names};
use crate::sink::inherited::Parent;
use crate::sink::keeping::Keeping;
use crate::sink::times::may_have_time;
use crate::sink::writable::{forbids_removal, is_made_writable};
use crate::sink::{Rename, StorageError, check_directory, compare, place_under};

/// A destination as a copy would find it.
#[derive(Debug)]
pub struct DryRun {
    /// The directory that it would work in; `None` where it would make that.
    root: Option<ConfinedDir>,
    /// The one above it then.
    above: Option<ConfinedDir>,
    /// It would leave so many bytes free.
    free_least: Bytes,
    rename: Option<Rename>,
    deletes: DeletionLimits,
    keeping: Keeping,
    /// The destination directory itself keeps its mode and attributes.
    stays: bool,
    /// A copy makes this user's directories writable.
    keeps_modes: bool,
    /// Entries that are there and stay.
    keeps: Keeps,
    /// By device and inode: files with more names than one that would be mended, as they would be then.
    mended: Mutex<BTreeMap<(u64, u64), Given>>,
}

/// Attributes that a file would have: mode, modification time and metadata.
type Given = (u16, i64, Option<Box<Metadata>>);

impl DryRun {
    /// Looks for the destination as [`crate::SinkTree::open`] does, and makes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn open(
        destination: Destination<'_>,
        options: &SinkOptions,
    ) -> Result<Self, DestinationError> {
        let (deletes, keeping) = (DeletionLimits::default(), Keeping::default());
        let &SinkOptions { keeps_modes, keeps, .. } = options;
        let nothing = Self {
            root: None,
            above: None,
            free_least: Bytes::ZERO,
            rename: None,
            deletes,
            keeping,
            stays: true,
            keeps_modes,
            keeps,
            mended: Mutex::default(),
        };
        if destination.would_be_made(options)? {
            let above = destination.found_above();
            if let Some(above) = &above {
                destination.check_writable(above, false, "cannot make it")?;
            }
            return Ok(Self { above, ..nothing });
        }
        let place = destination.resolve(options)?;
        if options.only_empty {
            destination.check_empty(&place, &options.transfer)?;
        }
        // In what an earlier run has left the copy goes on.
        if !is_begun(&place.root, &options.transfer) {
            let hidden = hidden_name(&options.transfer, 0).escape_ascii().to_string();
            let makes_writable = keeps_modes && place.name.is_none() && !place.stays;
            destination.check_writable(
                &place.root,
                makes_writable,
                &format!("cannot make {hidden}"),
            )?;
        }
        let rename = place.name.map(|name| Rename::new(name, destination.shown()));
        Ok(Self { root: Some(place.root), rename, stays: place.stays, ..nothing })
    }

    /// It would delete as [`crate::SinkTree::deleting`] does.
    pub(crate) fn deleting(self, deletes: Option<Deletes>, filter: Option<Filter>) -> Self {
        let limits = DeletionLimits::new(deletes, filter).keeping_modes(self.keeps_modes);
        let limits = limits.of_dry_run();
        let deletes = match &self.root {
            Some(root) => limits.below(root, self.rename.as_ref().map(Rename::to)),
            None => limits,
        };
        Self { deletes, ..self }
    }

    /// It would keep attributes as [`crate::SinkTree::keeping`] does.
    pub(crate) fn keeping(self, kept: KeptAttributes, allowed: bool) -> Self {
        Self { keeping: Keeping::new(kept, allowed), ..self }
    }

    /// It would leave so many bytes free, if not more.
    pub(crate) fn leaving(self, free_least: Bytes) -> Self {
        Self { free_least, ..self }
    }

    /// Notes for the user, as [`longhaul_wire::Summary::notes`].
    pub(crate) fn notes(&self) -> u64 {
        self.keeping.notes()
    }

    /// The note on room for so many bytes that a copy would write.
    pub(crate) fn note_of_size(&self, bytes: u64) -> u64 {
        let directory = self.root.as_ref().or(self.above.as_ref());
        match directory.is_none_or(|it| has_room(it, bytes, self.free_least)) {
            true => 0,
            false => Summary::MORE_THAN_FREE,
        }
    }

    /// See [`Rename::check`].
    pub(crate) fn check_name(&self, action: &Action) -> Result<(), StorageError> {
        match (&self.root, &self.rename) {
            (Some(root), Some(rename)) => rename.check(root, action),
            _ => Ok(()),
        }
    }

    /// Opens the directory at `place`, if there is one.
    fn directory(&self, place: &[u8], flags: OFlags) -> Result<Option<OwnedFd>, Errno> {
        let Some(root) = &self.root else { return Ok(None) };
        match beneath(root, place, flags) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if what was not found for that `error` is in a directory that would take the place of a file or link by
    /// then.
    fn is_made_room_for(&self, entry: &Entry, error: Errno) -> bool {
        if !matches!(error, Errno::NOTDIR | Errno::LOOP) || !self.deletes.makes_room() {
            return false;
        }
        let path = entry.path.as_bytes();
        let mut above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        !above.any(|(end, _)| self.stays(&path[..end]))
    }

    /// True if a file or link with this path stays, since it is excluded.
    fn stays(&self, path: &[u8]) -> bool {
        let Ok(place) = place_under(self.rename.as_ref(), path, true) else { return false };
        let (parent, name) = split(&place);
        let found = self.look(parent, name).ok().flatten();
        found.is_some_and(|(parent, stat)| {
            self.deletes.replaces(&stat) && self.deletes.gives_up_its_place(&parent, path).is_err()
        })
    }

    /// Finds what has a name in a directory.
    fn look(&self, parent: &[u8], name: &[u8]) -> Result<Option<(OwnedFd, Stat)>, Errno> {
        let Some(parent) = self.directory(parent, OFlags::PATH)? else { return Ok(None) };
        match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((parent, stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Why a copy could not make or replace what has a name in the directory `parent`, where that is known: it is not
    /// there and would be made perhaps.
    fn forbids(&self, (parent, name): (&[u8], &[u8]), doing: &str) -> Option<EntryEnd> {
        let (mut parent, mut name) = (parent, name);
        // Where a directory above cannot be made, that is all that is known of what is in it.
        let mut first = None;
        loop {
            let error = match self.directory(parent, OFlags::PATH) {
                Ok(Some(directory)) => {
                    let error = forbids_removal(&directory, name, self.keeps_modes)?;
                    return Some(explain::at_destination(doing, &first.unwrap_or(error).into()));
                }
                Err(error @ Errno::ACCESS) if !self.keeps_modes => {
                    return Some(explain::at_destination(doing, &first.unwrap_or(error).into()));
                }
                _ if parent.is_empty() => return None,
                found => found.err().unwrap_or(Errno::NOENT),
            };
            first = first.or(Some(error).filter(|error| *error != Errno::ACCESS));
            (parent, name) = split(parent);
        }
    }

    /// The same of a file or link.
    fn forbids_entry(&self, entry: &Entry) -> Option<EntryEnd> {
        let place = place_under(self.rename.as_ref(), entry.path.as_bytes(), false).ok()?;
        self.forbids(split(&place), NAMING)
    }

    fn find_directory(&self, entry: &Entry) -> Result<Made, EntryEnd> {
        let path = entry.path.as_bytes();
        let missing = || {
            let place = place_under(self.rename.as_ref(), path, true).unwrap_or_default();
            let end = self.forbids(split(&place), "cannot make the directory");
            end.unwrap_or_else(|| EntryEnd::new(EntryCode::New, ""))
        };
        let place = place_under(self.rename.as_ref(), path, true)?;
        if place.is_empty() {
            return self.root.as_ref().map(|_| Made::InPlace).ok_or_else(missing);
        }
        let (parent, name) = split(&place);
        let looked = match self.look(parent, name) {
            Err(error) if self.is_made_room_for(entry, error) => None,
            // The copy lets its user in. Nobody knows before what is there.
            Err(Errno::ACCESS) if self.keeps_modes => None,
            looked => looked.map_err(|error| {
                explain::at_destination("cannot look at what has its name", &error.into())
            })?,
        };
        let (parent, stat) = looked.ok_or_else(missing)?;
        match check_directory(&parent, name) {
            Err(_) if self.deletes.replaces(&stat) => {
                let stays = self.deletes.gives_up_its_place(&parent, path).err();
                let stays = stays.or_else(|| self.forbids(split(&place), "cannot delete it"));
                Err(stays.unwrap_or_else(|| EntryEnd::new(EntryCode::New, "")))
            }
            checked => checked.map(|()| Made::InPlace),
        }
    }

    /// True if a file or link that is there, unchanged, has not the attributes that it would get.
    fn lacks_attributes(&self, entry: &Entry) -> bool {
        let found = self.at(entry.path.as_bytes(), |(parent, name), stat| {
            let lacks = || self.keeping.mend((&Parent::new(parent), name), stat, entry, true);
            self.mends(stat, entry, lacks)
        });
        found == Some(true)
    }

    /// True if a copy would mend what has this status, as `lacks` says, and has not under another name.
    fn mends(&self, stat: &Stat, entry: &Entry, lacks: impl FnOnce() -> bool) -> bool {
        if stat.st_nlink == 1 {
            return lacks();
        }
        let given = (entry.mode, entry.modified, entry.attributes.metadata.clone());
        let mut mended = lock(&self.mended);
        let mends = match mended.get(&(stat.st_dev, stat.st_ino)) {
            Some(has) => *has != given,
            None => lacks(),
        };
        if mends {
            mended.insert((stat.st_dev, stat.st_ino), given);
        }
        mends
    }

    /// Opens the file that has the name, if it has the size, and its directory.
    fn open_contents(&self, entry: &Entry) -> Option<(File, Parent)> {
        let place = place_under(self.rename.as_ref(), entry.path.as_bytes(), false).ok()?;
        let (parent, name) = split(&place);
        let parent = self.directory(parent, OFlags::PATH).ok()??;
        Some((open_existing(&parent, name, entry).ok()?, Parent::new(parent)))
    }

    /// Says of a directory that is there what it would be after a copy.
    fn end_of_directory(&self, entry: &Entry) -> rustix::io::Result<EntryCode> {
        let place = place_under(self.rename.as_ref(), entry.path.as_bytes(), true);
        let Ok(place) = place else { return Ok(EntryCode::Unchanged) };
        let directory = self.directory(&place, OFlags::PATH)?;
        let Some(directory) = directory.filter(|_| !(place.is_empty() && self.stays)) else {
            return Ok(EntryCode::Unchanged);
        };
        let mode = fstat(&directory)?.st_mode & 0o7777;
        if self.keeping.is_provisional(entry, mode) {
            return Ok(EntryCode::Differs);
        }
        let wanted = self.keeping.mode_of_directory(&directory, entry, mode, false);
        let opened = match self.directory(&place, OFlags::RDONLY) {
            Err(Errno::ACCESS) if is_made_writable(&directory, self.keeps_modes) => {
                return Ok(mended(wanted.is_some_and(|wanted| wanted != mode)));
            }
            opened => opened?.ok_or(Errno::NOENT)?,
        };
        let node = Node::open(&opened).dry(true);
        match wanted {
            wanted if self.keeping.is_on() => self.keeping.keep(&node, wanted, entry)?,
            Some(wanted) => node.chmod(wanted)?,
            None => {}
        }
        Ok(mended(node.was_changed()))
    }

    /// Finds another name under which the file is there unchanged.
    fn find_elsewhere(&self, entry: &Entry) -> Option<EntryPath> {
        let is_it = |path: &&EntryPath| {
            self.at(path.as_bytes(), |(parent, name), stat| {
                is_it_elsewhere((&parent, name), stat, entry)
            }) == Some(true)
        };
        entry.other_names().iter().find(is_it).cloned()
    }

    /// It is unchanged under its first name, and is copied.
    fn lacks_names(&self, entry: &Entry) -> bool {
        let find = |other: &EntryPath| self.at(other.as_bytes(), |_, stat| *stat);
        let found = self.at(entry.path.as_bytes(), |(parent, name), stat| {
            lacks_names((&parent, name), stat, entry, find)
        });
        found == Some(true)
    }

    /// Looks at what has this path, if anything: at its name in its directory, and its status.
    fn at<T>(&self, path: &[u8], look: impl FnOnce((OwnedFd, &[u8]), &Stat) -> T) -> Option<T> {
        let place = place_under(self.rename.as_ref(), path, false).ok()?;
        let (parent, name) = split(&place);
        let (parent, stat) = self.look(parent, name).ok()??;
        Some(look((parent, name), &stat))
    }

    /// Says of a later name what a copy would do.
    fn compare_link(&self, entry: &Entry, first: &FirstName) -> EntryEnd {
        let code = match self.compare_entry(entry, true) {
            Compared::Missing => EntryCode::New,
            Compared::Blocked(end) => return *end,
            _ => {
                let at = |path: &[u8]| self.at(path, |_, stat| (stat.st_dev, stat.st_ino));
                let is_that = at(entry.path.as_bytes()) == at(first.path.as_bytes());
                let stays = (!is_that).then(|| self.forbids_entry(entry)).flatten();
                match stays {
                    Some(end) => return end,
                    None if is_that && first.stays => EntryCode::Unchanged,
                    None => EntryCode::Differs,
                }
            }
        };
        EntryEnd::new(code, "")
    }

    /// Compares a file or link with what has its name; what cannot be looked at is another. One for which a
    /// directory would make room does so once, when `it_is_time`.
    fn compare_entry(&self, entry: &Entry, it_is_time: bool) -> Compared {
        let place = place_under(self.rename.as_ref(), entry.path.as_bytes(), false);
        let Ok(place) = place else { return OTHER };
        let (parent, name) = split(&place);
        let compared = self.compare_at((parent, name), entry, it_is_time);
        let Keeps { unchanged, newer, equal, .. } = self.keeps;
        let is_compared = equal && entry.kind == EntryKind::File;
        let is_changed = match compared {
            Compared::Missing => true,
            Compared::Other { same_size } => !(same_size && is_compared),
            Compared::Newer { same_size } => !(newer || same_size && is_compared),
            Compared::Unchanged | Compared::Mended => !unchanged && !equal,
            Compared::Blocked(_) | Compared::Elsewhere(_) => false,
        };
        let end = is_changed.then(|| self.forbids((parent, name), NAMING)).flatten();
        end.map_or(compared, |end| Compared::Blocked(Box::new(end)))
    }

    fn compare_at(
        &self,
        (place, name): (&[u8], &[u8]),
        entry: &Entry,
        it_is_time: bool,
    ) -> Compared {
        let blocked = |end| Compared::Blocked(Box::new(end));
        let in_the_way = || blocked(EntryEnd::new(EntryCode::InTheWay, IN_THE_WAY));
        match self.look(place, name) {
            Ok(Some((parent, stat))) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile | FileType::Symlink => compare(&parent, name, &stat, entry),
                FileType::Directory if self.deletes.makes_room() && !it_is_time => OTHER,
                FileType::Directory if self.deletes.makes_room() => {
                    // A copy finds that first, and clears nothing then.
                    let forbidden = self.forbids((place, name), NAMING);
                    let end = forbidden.or_else(|| self.deletes.clears(&parent, name, entry).err());
                    end.map_or(OTHER, blocked)
                }
                _ => in_the_way(),
            },
            Ok(None) => Compared::Missing,
            Err(error) if self.is_made_room_for(entry, error) => Compared::Missing,
            Err(Errno::NOTDIR | Errno::LOOP) => in_the_way(),
            Err(_) => OTHER,
        }
    }
}

impl Storage for &DryRun {
    type Error = EntryEnd;
    type Failure = StorageError;

    fn make_directory(&mut self, directory: &NamedEntry) -> Result<Made, EntryEnd> {
        self.find_directory(&directory.entry)
    }

    fn compare(&mut self, existing: &ExistingEntry) -> Compared {
        // A later name of a file has its turn when the first has its name.
        let entry = &existing.entry;
        let elsewhere = existing.stays.then(|| self.find_elsewhere(entry)).flatten();
        let it_is_time = entry.linked_to().is_none() && elsewhere.is_none();
        let compared = match self.compare_entry(entry, it_is_time) {
            Compared::Unchanged if existing.stays && self.lacks_names(entry) => {
                Compared::Other { same_size: true }
            }
            compared => compared,
        };
        match compared {
            Compared::Unchanged if existing.stays && self.lacks_attributes(entry) => {
                Compared::Mended
            }
            Compared::Newer { .. } if existing.newer_stays => compared,
            Compared::Missing | Compared::Other { .. } | Compared::Newer { .. } => {
                elsewhere.map_or(compared, Compared::Elsewhere)
            }
            compared => compared,
        }
    }

    fn compare_contents(&mut self, compared: &ComparedFile) -> Vec<(u32, ChainingValue)> {
        let entry = &*compared.file.entry;
        let opened = self.open_contents(entry);
        let contents = opened.and_then(|(file, _)| Contents::new(file).ok());
        contents.map(|mut contents| contents.equal(entry, &compared.groups)).unwrap_or_default()
    }

    fn forbids(&mut self, entry: &Entry) -> Option<EntryEnd> {
        self.forbids_entry(entry)
    }

    /// One that is there stays; what cannot be looked at is as it was.
    fn finish_directory(&mut self, directory: &NamedEntry) -> Result<(), EntryEnd> {
        let code = self.end_of_directory(&directory.entry).unwrap_or(EntryCode::Unchanged);
        Err(EntryEnd::new(code, ""))
    }

    fn mend(&mut self, entry: &Entry) -> Option<EntryCode> {
        let (file, parent) = self.open_contents(entry)?;
        let file = may_be_all_holes(file, entry).ok()?;
        let stat = fstat(&file).ok()?;
        let node = Node::open(&file).dry(true);
        let gets_time = || !may_have_time(&stat, entry.modified) && node.may_set_time();
        let lacks = || self.keeping.mend_node(&node, &parent, &stat, entry) | gets_time();
        Some(mended(self.mends(&stat, entry, lacks)))
    }

    fn delete_others(
        &mut self,
        directory: &NamedEntry,
        announced: &AnnouncedPaths,
    ) -> Vec<Deletion> {
        let path = directory.entry.path.as_bytes();
        let place = place_under(self.rename.as_ref(), path, true);
        let (Some(root), Ok(place)) = (&self.root, place) else { return Vec::new() };
        self.deletes.delete_others((root, &place), path, announced, |_, _| false)
    }

    fn take_cleared(&mut self) -> Vec<Deletion> {
        self.deletes.take_cleared()
    }

    // Nothing below is asked of it: no contents are taken in.

    fn prepare(&mut self, _: &Entry, _: TempName, _: Existing) -> Result<Prepared, EntryEnd> {
        Err(nothing_is_written())
    }

    fn recheck(&mut self, _: &Entry, _: TempName, _: &[(u32, ChainingValue)]) -> Vec<u32> {
        Vec::new()
    }

    fn take_over(&mut self, _: &Entry, _: TempName, _: &[(u32, ChainingValue)]) {}

    fn check_published(&mut self, _: &RecordedFile) -> Checked {
        Checked::Missing
    }

    fn write(&mut self, _: &WritePiece, _: &[u8]) -> Result<(), EntryEnd> {
        Err(nothing_is_written())
    }

    fn publish(&mut self, file: &Publication) -> Result<(), EntryEnd> {
        Err(match &file.first {
            Some(first) => self.compare_link(&file.entry, first),
            None => nothing_is_written(),
        })
    }

    fn place_directory(&mut self, _: &FilledDirectory) -> bool {
        false
    }

    fn sync(&mut self, _: &Checkpoint) -> Result<(), StorageError> {
        Ok(())
    }

    fn stamps(&mut self, files: &[NamedFile], _: bool) -> Vec<Option<Stamp>> {
        vec![None; files.len()]
    }

    fn append_record(&mut self, _: u64, _: &[u8], _: bool) -> Result<(), StorageError> {
        Ok(())
    }

    fn remove_record(&mut self) -> Result<(), StorageError> {
        Ok(())
    }

    fn discard(&mut self, _: TempName) {}

    fn end(&mut self, _: bool) {}
}

const NAMING: &str = "cannot give it its name";
const IN_THE_WAY: &str =
    "what is never replaced has its name at the destination, or that of its directory";
const OTHER: Compared = Compared::Other { same_size: false };

fn nothing_is_written() -> EntryEnd {
    EntryEnd::new(EntryCode::Refused, "nothing is written in a dry run")
}
