pub(crate) mod contents;
pub(crate) mod deletion;
pub(crate) mod free_space;
pub(crate) mod hard_links;
pub(crate) mod inherited;
pub(crate) mod keeping;
pub(crate) mod staged_directories;
pub(crate) mod stamp;
pub(crate) mod sync;
pub(crate) mod times;
pub(crate) mod top;
pub(crate) mod writable;
pub(crate) mod write;

use crate::destination::SinkOptions;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_objects::storage::Storage;
use longhaul_objects::{
    Action, AnnouncedPaths, ChainingValue, Checked, Checkpoint, Compared, ComparedFile, Deletion,
    Existing, ExistingEntry, FilledDirectory, Fsync, Made, NamedEntry, NamedFile, Prepared,
    Publication, RecordedFile, ResumeState, Stamp, TempName, WritePiece, record,
};
use longhaul_sys::files::{ConfinedDir, FileLock};
use longhaul_sys::sync::lock;
use longhaul_units::{Bytes, RangeSet};
use longhaul_wire::{Deletes, Entry, EntryCode, EntryEnd, EntryKind, Summary};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, mkdirat, readlinkat, statat, unlinkat};
use rustix::io::Errno;

use crate::cache::HandleCache;
use crate::destination::{Destination, DestinationError, is_empty};
use crate::explain;
use crate::filter::Filter;
use crate::folding::{self, Folding};
use crate::hidden::{RECORD, read_record, remove_hidden, remove_temp, temps};
use crate::identify::{as_path, hex, is_hidden_name, is_staged_name};
use crate::metadata::node::Node;
use crate::moved_destination::DestinationPath;
use crate::parents::Parents;
use crate::place::{beneath, open_at, split};
use crate::record::Record;
use crate::sink::deletion::DeletionLimits;
use crate::sink::free_space::SpaceBudget;
use crate::sink::hard_links::lacks_names;
use crate::sink::inherited::{Inherited, Parent};
use crate::sink::keeping::{Keeping, provisional_mode};
use crate::sink::staged_directories::StagedDirectories;
use crate::sink::stamp::keeps_change_times;
use crate::sink::sync::sync_whole;
use crate::sink::times::may_have_time;
use crate::sink::top::{TimeBefore, Top};
use crate::sink::writable::make_writable;
use crate::sink::write::{PRIVATE, Unpublished};
use crate::source::nanoseconds;
use crate::trust::Trust;

/// A destination, for any number of threads: each has a storage of its own
/// ([`SinkTree::storage`]), which does what a sink wants done and writes groups.
///
/// Files grow in a hidden directory in the destination directory and get their names by `rename`,
/// small ones of a new directory together with it, so that what is under a name is whole, and what
/// was there before is replaced in one step. No link at the destination is ever followed, and
/// nothing leads out of the destination directory. docs/files.md tells the rules.
///
/// Dropped before its end it leaves what a later run resumes from, and nothing where there is
/// nothing to resume.
#[derive(Debug)]
pub struct SinkTree {
    pub(crate) root: ConfinedDir,
    pub(crate) top: Top,
    /// See [`SinkOptions::only_empty`].
    only_empty: bool,
    rename: Option<Rename>,
    /// Something has the new name that the source does not replace.
    is_in_the_way: AtomicBool,
    pub(crate) hidden_name: Vec<u8>,
    pub(crate) hidden: OwnedFd,
    /// The attributes that files which are made in it take from it.
    pub(crate) hidden_gives: Inherited,
    /// Trust in what is in it.
    pub(crate) trust: Trust,
    record: Mutex<Record>,
    removed: AtomicBool,
    /// The copy is over, and what has its name is found without the record.
    ended: AtomicBool,
    pub(crate) fsync: Fsync,
    pub(crate) direct: bool,
    pub(crate) files: HandleCache<TempName, Unpublished>,
    /// Unpublished files that have not got their mode and modification time yet.
    pub(crate) rough: Mutex<BTreeSet<TempName>>,
    /// Device and inode of the unpublished files that this run has made or found.
    pub(crate) own: Mutex<BTreeMap<TempName, (u64, u64)>>,
    pub(crate) space_budget: Mutex<SpaceBudget>,
    /// Path by which the destination directory was found.
    pub(crate) found_at: DestinationPath,
    /// Parents of the destination directory that the first checkpoint is to make durable.
    pub(crate) parents: Mutex<Parents>,
    /// Where the destination directory folds names.
    pub(crate) folding: Option<Mutex<Folding>>,
    /// Entries whose directories this run has made.
    pub(crate) made: Mutex<RangeSet>,
    /// A directory of the destination is on another file system than the hidden one.
    pub(crate) elsewhere: AtomicBool,
    /// New directories that are filled in the hidden one.
    pub(crate) staged: Mutex<StagedDirectories>,
    /// Limits of deletion.
    pub(crate) deletes: DeletionLimits,
    /// Attributes that are kept.
    pub(crate) keeping: Keeping,
    /// Notes for the user, as [`longhaul_wire::Summary::notes`].
    pub(crate) notes: AtomicU64,
    /// See [`keeps_change_times`].
    pub(crate) keeps_change_times: bool,
    /// Keeps other runs of the transfer out.
    _lock: Option<FileLock>,
}

/// The destination as a whole failed: the transfer ends. What is recorded stays valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The written data cannot be made durable.
    #[error("{}", explain::at_whole_destination("cannot make durable what was written", .0))]
    Sync(#[source] io::Error),
    /// The copy was to have a name that something else has, which it cannot replace.
    #[error("{path}: {reason}")]
    InTheWay {
        /// The destination.
        path: String,
        /// Its kind, and that of the source.
        reason: &'static str,
    },
    /// The name of the destination directory no longer leads to it.
    #[error(
        "the destination directory {0} was moved or replaced during the copy; what was written is in \
         the directory that had this name before"
    )]
    Moved(String),
    /// The resume record cannot be written.
    #[error("{}", explain::at_whole_destination("cannot write the resume record", .0))]
    Record(#[source] io::Error),
    /// The resume record cannot be removed. All files are complete.
    #[error(
        "all files are complete, but the hidden directory of the transfer cannot be removed at the destination: {0}"
    )]
    Remove(#[source] io::Error),
}

/// The source takes a new name.
#[derive(Debug)]
pub(crate) struct Rename {
    to: Vec<u8>,
    /// The destination, for people.
    shown: String,
    /// Its own name: the first component of its entries; empty where they have none.
    from: OnceLock<Vec<u8>>,
    /// A later run takes it for the new name though it is a directory by then, and nothing tells that.
    is_found_again: bool,
}

impl SinkTree {
    /// Opens a destination, by `cp`'s habits: into a directory that is there under the source's
    /// own name, else the destination is the new name of the source.
    ///
    /// Returns with it what an earlier run of the transfer left there, for
    /// [`longhaul_objects::Sink::new`]; what of
    /// it is of no use is removed.
    pub fn open(
        destination: Destination<'_>,
        options: &SinkOptions,
    ) -> Result<(Self, ResumeState), DestinationError> {
        let place = destination.resolve(options)?;
        if options.only_empty {
            destination.check_empty(&place, &options.transfer)?;
        }
        let had = match options.keeps_modes && place.name.is_none() && !place.stays {
            true => make_writable(&place.root)
                .map_err(|error| destination.error("cannot make it writable", error))?,
            false => None,
        };
        let time = TimeBefore::of(&place.root);
        let hidden = destination.hide(&place.root, &options.transfer)?;
        let time = time.and_then(|time| time.put_back(&place.root));
        let name = String::from_utf8_lossy(&hidden.name).into_owned();
        let explain = |doing: &'static str| {
            let doing = format!("{doing} {name}");
            move |error| destination.error(&doing, error)
        };
        let bytes = read_record(&hidden.record).map_err(explain("cannot read the record in"))?;
        let resume = match options.goes_on {
            true => record::replay(&bytes, &options.transfer, options.fsync),
            false => ResumeState::default(),
        };
        let left = remove_unrecorded(&hidden.directory, &resume);
        let left =
            left.map_err(explain("cannot list, or remove what an earlier run has left in"))?;
        let keeps_change_times = keeps_change_times(&hidden.record);
        let folds = folding::folds(&hidden.directory, RECORD);
        let folds = folds.map_err(explain("cannot look up names in"))?;
        let notes =
            [(hidden.others, Summary::LEFT_ALONE), (place.name.is_some(), Summary::NEW_NAME)];
        let notes = notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note).sum();
        let tree = Self {
            root: place.root,
            top: Top::new(place.stays, place.made, had, time),
            found_at: place.found_at,
            parents: Mutex::new(place.parents),
            only_empty: options.only_empty,
            rename: place.name.map(|name| Rename::of(name, destination.shown(), options)),
            is_in_the_way: AtomicBool::new(false),
            hidden_name: hidden.name,
            hidden_gives: Inherited::of(&hidden.directory),
            hidden: hidden.directory,
            trust: hidden.trust,
            record: Mutex::new(Record::new(hidden.record)),
            removed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            fsync: options.fsync,
            direct: options.direct,
            files: HandleCache::new(FILES_OPEN),
            rough: Mutex::new(BTreeSet::new()),
            own: Mutex::default(),
            space_budget: Mutex::new(SpaceBudget::default()),
            folding: folds.then(Mutex::default),
            made: Mutex::new(RangeSet::new()),
            elsewhere: AtomicBool::new(false),
            staged: Mutex::new(StagedDirectories::new(left)),
            deletes: DeletionLimits::default(),
            keeping: Keeping::default(),
            notes: AtomicU64::new(notes),
            keeps_change_times,
            _lock: hidden.lock,
        };
        Ok((tree, resume))
    }

    /// Deletes at most as many names as `deletes` says, and none that `filter` leaves out of the copy: where its sink
    /// deletes, and what stands in the way of an entry of another kind.
    pub fn deleting(mut self, deletes: Option<Deletes>, filter: Option<Filter>) -> Self {
        let name = self.rename.as_ref().map(Rename::to);
        let limits = DeletionLimits::new(deletes, filter).below(&self.root, name);
        self.deletes = limits.keeping_modes(self.keeping.keeps_modes());
        self
    }

    /// Leaves so many bytes of the file system free, if not more.
    pub fn leaving(mut self, least: Bytes) -> Self {
        self.space_budget = Mutex::new(SpaceBudget::leaving(least));
        self
    }

    /// See [`Rename::check`].
    pub(crate) fn check_name(&self, action: &Action) -> Result<(), StorageError> {
        let checked = self.rename.as_ref().map_or(Ok(()), |it| it.check(&self.root, action));
        self.is_in_the_way.fetch_or(checked.is_err(), Ordering::Relaxed);
        checked
    }

    /// Its storage, for one thread.
    pub fn storage(&self) -> TreeStorage<'_> {
        TreeStorage { tree: self, last: None }
    }

    /// Where the entry is to be, below the destination directory; empty for that itself.
    pub(crate) fn place<'a>(&self, entry: &'a Entry) -> Result<Cow<'a, [u8]>, EntryEnd> {
        self.place_of(entry.path.as_bytes(), entry.kind == EntryKind::Directory)
    }

    /// The same of what has this path.
    pub(crate) fn place_of<'a>(
        &self,
        path: &'a [u8],
        is_directory: bool,
    ) -> Result<Cow<'a, [u8]>, EntryEnd> {
        let place = place_under(self.rename.as_ref(), path, is_directory)?;
        if self.folding.as_ref().is_some_and(|folding| lock(folding).is_refused(&place)) {
            return Err(EntryEnd::new(
                EntryCode::Name,
                "its directory was not made, since another has that name",
            ));
        }
        Ok(place)
    }

    /// Opens the directory `path`, or gives the one that was opened last if it is that.
    pub(crate) fn parent<'a>(
        &self,
        path: &[u8],
        last: &'a mut Option<LastDirectory>,
    ) -> io::Result<&'a Parent> {
        LastDirectory::or_open(last, path, || Ok(beneath(&self.root, path, OFlags::PATH)?))
    }

    fn make_directory(
        &self,
        directory: &NamedEntry,
        last: &mut Option<LastDirectory>,
    ) -> Result<Made, EntryEnd> {
        let NamedEntry { entry, id } = directory;
        let place = self.place(entry)?;
        let explain = |error| explain::at_destination("cannot make the directory", &error);
        if place.is_empty() {
            if self.begin_top(directory).map_err(explain)? {
                lock(&self.made).insert_one(id.as_wire());
            }
            return Ok(Made::InPlace);
        }
        let mode = provisional_mode(entry);
        if let Some(made) = self.make_staged(&place, mode) {
            lock(&self.made).insert_one(id.as_wire());
            return made.map_err(explain);
        }
        let (parent, name) = split(&place);
        let parent = self.parent(parent, last).map_err(explain)?;
        let mut folding = self.folding.as_ref().map(lock);
        if let Some(folding) = &mut folding
            && let Err(error) = folding.check(parent, name)
        {
            folding.refuse(&place);
            return Err(explain(error));
        }
        let make = || mkdirat(parent, name, Mode::from_raw_mode(mode));
        let made = match make() {
            Err(Errno::EXIST)
                if self.deletes.make_room_for_directory(&parent.handle, name, entry)? =>
            {
                make()
            }
            made => made,
        };
        match made {
            Ok(()) => {
                lock(&self.made).insert_one(id.as_wire());
                self.note_made_in_place(&place);
            }
            Err(Errno::EXIST) => {
                check_directory(parent, name)?;
                if self.keeping.keeps_modes() {
                    let made = self.keeping.made_writable.make(*id, parent, name);
                    made.map_err(|error| {
                        explain::at_destination("cannot make it writable", &error)
                    })?;
                }
            }
            Err(error) => return Err(explain(error.into())),
        }
        if let Some(folding) = &mut folding {
            folding.note(parent, name);
        }
        Ok(Made::InPlace)
    }

    /// Sets modification time and mode. A directory that was there before keeps its mode: it has
    /// another than this or an earlier run would have made it with.
    fn finish_directory(&self, directory: &NamedEntry) -> Result<(), EntryEnd> {
        let NamedEntry { entry, id } = directory;
        let place = self.place(entry)?;
        if place.is_empty() && self.top.stays() {
            let was_there = EntryEnd::new(EntryCode::Unchanged, "");
            return if self.top.is_new() { Ok(()) } else { Err(was_there) };
        }
        let is_ours = lock(&self.made).contains(id.as_wire());
        let had = self.keeping.made_writable.take(*id);
        let result = (|| -> io::Result<_> {
            let directory = beneath(&self.root, &place, OFlags::RDONLY)?;
            let stat = rustix::fs::fstat(&directory)?;
            let mode = stat.st_mode & 0o7777;
            let wanted = self.keeping.mode_of_directory(&directory, entry, mode, is_ours);
            let node = Node::open(&directory).having(had);
            self.set_attributes_of(&node, wanted, entry)?;
            if !has_time(&stat, entry) {
                self.set_time(&directory, entry)?;
            }
            // One that an earlier run has made for this copy is new.
            let was_changed = node.was_changed() || had.is_some() && had != wanted;
            Ok((!is_ours && !self.keeping.is_provisional(entry, mode)).then_some(was_changed))
        })();
        if place.is_empty() {
            self.top.finished(entry);
        }
        match result {
            Err(error) if is_ours => {
                Err(explain::at_destination("cannot set mode and time of the directory", &error))
            }
            Ok(None) => Ok(()),
            Ok(Some(true)) => Err(EntryEnd::new(EntryCode::Mended, "")),
            Ok(Some(false)) | Err(_) => Err(EntryEnd::new(EntryCode::Unchanged, "")),
        }
    }

    pub(crate) fn is_published(&self, entry: &Entry, last: &mut Option<LastDirectory>) -> bool {
        let look = |parent: &Parent, name: &[u8]| is_whole(parent, name, entry).then_some(());
        self.look_in_place(entry, last, look).is_some()
    }

    /// Opens the file that has the name of the entry `path`.
    pub(crate) fn reopen(&self, path: &[u8]) -> io::Result<File> {
        let place = self.place_of(path, false).map_err(io::Error::other)?;
        let (parent, name) = split(&place);
        let parent = beneath(&self.root, parent, OFlags::PATH)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(open_at(parent, name, flags, Mode::empty())?.into())
    }

    /// Compares the file that has the entry's name with it. One that is unchanged, and `stays` then, gets its attributes.
    fn compare(
        &self,
        entry: &Entry,
        (stays, newer_stays): (bool, bool),
        last: &mut Option<LastDirectory>,
    ) -> Compared {
        let mut found = Compared::Other { same_size: false };
        let look = |parent: &Parent, name: &[u8]| {
            let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            found = compare(&parent.handle, name, &stat, entry);
            if stays
                && found == Compared::Unchanged
                && lacks_names((&parent.handle, name), &stat, entry, |other| {
                    self.at(other, |_, stat| *stat)
                })
            {
                found = Compared::Other { same_size: true };
            }
            if stays
                && found == Compared::Unchanged
                && self.keeping.mend((parent, name), &stat, entry, false)
            {
                found = Compared::Mended;
            }
            (!matches!(found, Compared::Other { .. })).then_some(())
        };
        self.look_in_place(entry, last, look);
        match found {
            Compared::Newer { .. } if newer_stays => found,
            Compared::Other { .. } | Compared::Newer { .. } if stays => {
                self.find_elsewhere(entry).map_or(found, Compared::Elsewhere)
            }
            found => found,
        }
    }

    /// Looks at the entry's name in its directory. What `look` finds there is not replaced by an entry
    /// whose name the file system takes for the same.
    pub(crate) fn look_in_place<T>(
        &self,
        entry: &Entry,
        last: &mut Option<LastDirectory>,
        look: impl FnOnce(&Parent, &[u8]) -> Option<T>,
    ) -> Option<T> {
        let place = self.place(entry).ok()?;
        let (parent, name) = split(&place);
        let parent = self.parent(parent, last).ok()?;
        let found = look(parent, name);
        if let Some(folding) = self.folding.as_ref().filter(|_| found.is_some()) {
            lock(folding).note(parent, name);
        }
        found
    }

    fn check_published(&self, file: &RecordedFile, last: &mut Option<LastDirectory>) -> Checked {
        if self.is_published(&file.entry, last) {
            // That may have been by a run that kept less.
            if self.keeping.is_on() {
                self.compare(&file.entry, (true, true), last);
            }
            return Checked::There;
        }
        self.take_left(file, last)
    }

    fn append_record(&self, offset: u64, bytes: &[u8], sync: bool) -> io::Result<()> {
        let mut record = lock(&self.record);
        record.append(offset, bytes, sync.then_some(&self.notes))?;
        if sync && !std::mem::replace(&mut record.is_findable, true) {
            sync_whole(&self.hidden, &self.notes)?;
            sync_whole(beneath(&self.root, b"", OFlags::RDONLY)?, &self.notes)?;
        }
        Ok(())
    }

    /// Checks that the destination directory is still where the user has named it.
    fn check_not_moved(&self) -> Result<(), StorageError> {
        match self.found_at.leads_to(&self.root).map_err(StorageError::Sync)? {
            true => Ok(()),
            false => Err(StorageError::Moved(self.found_at.shown())),
        }
    }

    fn remove_record(&self) -> io::Result<()> {
        self.removed.store(true, Ordering::Relaxed);
        self.behind_top(|| remove_hidden(&self.root, &self.hidden_name, &self.hidden))
    }

    fn discard(&self, temp: TempName) {
        self.files.remove(&temp);
        self.forget_promise(temp);
        lock(&self.rough).remove(&temp);
        lock(&self.own).remove(&temp);
        // What is left now is removed with the hidden directory, or by the next run.
        let _ = unlinkat(&self.hidden, &hex(&temp.0)[..], AtFlags::empty());
    }

    /// The mode that a whole file is made with, and the one that it gets then, if that is another: what is kept
    /// may forbid others what its mode would let them.
    pub(crate) fn modes_of_whole(&self, entry: &Entry) -> (u32, Option<u32>) {
        match self.keeping.is_on() {
            true => (PRIVATE, Some(self.keeping.mode(entry))),
            false => (u32::from(entry.mode) & 0o777, None),
        }
    }

    /// Removes what no later run needs, where that was not done.
    fn leave(&self) {
        if self.removed.load(Ordering::Relaxed) {
            return;
        }
        if lock(&self.record).is_removed() {
            // With the record the lock is gone: what is in it may be another run's by now.
            let _ = unlinkat(&self.root, &self.hidden_name[..], AtFlags::REMOVEDIR);
        } else if !self.is_worth_keeping() {
            self.removed.store(true, Ordering::Relaxed);
            // Nobody is left to know of it; the next run finds it and tries again.
            let _ = self.behind_top(|| remove_hidden(&self.root, &self.hidden_name, &self.hidden));
            self.remove_unused_top();
        }
    }

    /// True if a later run could go on from what is in the hidden directory, or could not tell
    /// without it that the destination is the new name, or that this transfer has begun to fill it.
    fn is_worth_keeping(&self) -> bool {
        if self.is_in_the_way.load(Ordering::Relaxed) && lock(&self.record).is_of_this_run() {
            return false;
        }
        let is_useless = self.ended.load(Ordering::Relaxed)
            && temps(&self.hidden).is_ok_and(|temps| temps.is_empty());
        !is_useless && !lock(&self.record).is_empty()
            || self.only_empty && self.rename.is_none() && !is_empty(&self.root).unwrap_or(false)
            || self.rename.as_ref().is_some_and(|Rename { to, is_found_again, .. }| {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                !is_found_again && beneath(&self.root, to, flags).is_ok()
            })
    }
}

impl Drop for SinkTree {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Rename {
    pub(crate) fn new(to: Vec<u8>, shown: String) -> Self {
        Self { to, shown, from: OnceLock::new(), is_found_again: false }
    }

    /// The same, by a copy with these options.
    fn of(to: Vec<u8>, shown: String, options: &SinkOptions) -> Self {
        let is_found_again = options.is_name || options.contents && !options.only_empty;
        Self { is_found_again, ..Self::new(to, shown) }
    }

    /// The new name.
    pub(crate) fn to(&self) -> &[u8] {
        &self.to
    }

    /// Checks what is in the place of the source in `root`, if `action` is about that: a file and a directory do
    /// not replace each other.
    pub(crate) fn check(&self, root: &ConfinedDir, action: &Action) -> Result<(), StorageError> {
        let entry = match action {
            Action::MakeDirectories(all) => all.first().map(|first| &first.entry),
            Action::CompareExisting(all) => all.first().map(|first| &first.entry),
            Action::PrepareFile { file, .. } => Some(&file.entry),
            Action::Publish(all) => all.first().map(|first| &first.entry),
            _ => None,
        };
        let is_source = |entry: &&Arc<Entry>| {
            let path = entry.path.as_bytes();
            !path.contains(&b'/') && self.apply(path).is_ok_and(|place| place == self.to)
        };
        let Some(entry) = entry.filter(is_source) else { return Ok(()) };
        let stat = statat(root, &self.to[..], AtFlags::SYMLINK_NOFOLLOW);
        let found = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
        let reason = match (&entry.kind, found) {
            (EntryKind::Directory, Ok(FileType::RegularFile)) => {
                "it is a file, and the source is a directory, which does not replace it"
            }
            (EntryKind::Directory, Ok(FileType::Symlink)) => {
                "it is a link, and the source is a directory; links at the destination are not followed"
            }
            (EntryKind::File | EntryKind::Link { .. }, Ok(FileType::Directory)) => {
                "it is a directory, and the source is none and does not replace it"
            }
            _ => return Ok(()),
        };
        Err(StorageError::InTheWay { path: self.shown.clone(), reason })
    }

    fn apply(&self, path: &[u8]) -> Result<Vec<u8>, EntryEnd> {
        let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        let from = self.from.get_or_init(|| first.to_vec());
        let rest = if from.is_empty() {
            path
        } else if from == first {
            path.get(first.len() + 1..).unwrap_or_default()
        } else {
            return Err(EntryEnd::new(
                EntryCode::Name,
                "several sources need a directory as destination",
            ));
        };
        let slash: &[u8] = if rest.is_empty() { b"" } else { b"/" };
        Ok([&self.to, slash, rest].concat())
    }
}

/// Where what has this path is to be, below the destination directory; empty for that itself.
pub(crate) fn place_under<'a>(
    rename: Option<&Rename>,
    path: &'a [u8],
    is_directory: bool,
) -> Result<Cow<'a, [u8]>, EntryEnd> {
    let place = match rename {
        None => Cow::Borrowed(path),
        Some(rename) => Cow::Owned(rename.apply(path)?),
    };
    if place.split(|byte| *byte == b'/').any(is_hidden_name) {
        return Err(EntryEnd::new(
            EntryCode::Name,
            "the name is that of the hidden directory of a transfer",
        ));
    }
    if place.is_empty() && !is_directory {
        return Err(EntryEnd::new(EntryCode::Name, "the source gives it no name"));
    }
    Ok(place)
}

/// A [`SinkTree`] as one thread sees it, which remembers the directory that it needed last.
#[derive(Debug)]
pub struct TreeStorage<'t> {
    tree: &'t SinkTree,
    last: Option<LastDirectory>,
}

impl Storage for TreeStorage<'_> {
    type Error = EntryEnd;
    type Failure = StorageError;

    fn make_directory(&mut self, directory: &NamedEntry) -> Result<Made, EntryEnd> {
        let made = self.tree.make_directory(directory, &mut self.last);
        made.map_err(|end| explain::in_directory(&self.tree.root, end))
    }

    fn prepare(
        &mut self,
        entry: &Entry,
        temp: TempName,
        existing: Existing,
    ) -> Result<Prepared, EntryEnd> {
        let prepared = self.tree.prepare(entry, temp, existing);
        prepared.map_err(|end| explain::in_directory(&self.tree.root, end))
    }

    fn recheck(
        &mut self,
        entry: &Entry,
        temp: TempName,
        groups: &[(u32, ChainingValue)],
    ) -> Vec<u32> {
        self.tree.recheck(entry, temp, groups)
    }

    fn compare(&mut self, existing: &ExistingEntry) -> Compared {
        let stays = (existing.stays, existing.newer_stays);
        self.tree.compare(&existing.entry, stays, &mut self.last)
    }

    fn take_over(&mut self, entry: &Entry, temp: TempName, groups: &[(u32, ChainingValue)]) {
        // What was not copied is found when the groups are compared once more.
        let _ = self.tree.take_over(entry, temp, groups, &mut self.last);
    }

    fn compare_contents(&mut self, file: &ComparedFile) -> Vec<(u32, ChainingValue)> {
        self.tree.compare_contents(file, &mut self.last).unwrap_or_default()
    }

    fn mend(&mut self, entry: &Entry) -> Option<EntryCode> {
        self.tree.mend(entry, &mut self.last).ok()
    }

    fn check_published(&mut self, file: &RecordedFile) -> Checked {
        self.tree.check_published(file, &mut self.last)
    }

    fn write(&mut self, piece: &WritePiece, data: &[u8]) -> Result<(), EntryEnd> {
        let written = self.tree.write_piece(piece, data, &mut self.last);
        let explain = |error| explain::at_destination("cannot write", &error);
        written.map_err(|error| explain::in_directory(&self.tree.root, explain(error)))
    }

    fn publish(&mut self, file: &Publication) -> Result<(), EntryEnd> {
        let published = self.tree.publish(file, &mut self.last);
        published.map_err(|end| explain::in_directory(&self.tree.root, end))
    }

    fn place_directory(&mut self, directory: &FilledDirectory) -> bool {
        self.tree.place_directory(directory)
    }

    fn finish_directory(&mut self, directory: &NamedEntry) -> Result<(), EntryEnd> {
        self.tree.finish_directory(directory)
    }

    fn delete_others(
        &mut self,
        directory: &NamedEntry,
        announced: &AnnouncedPaths,
    ) -> Vec<Deletion> {
        self.tree.delete_others(directory, announced)
    }

    fn take_cleared(&mut self) -> Vec<Deletion> {
        self.tree.deletes.take_cleared()
    }

    fn sync(&mut self, checkpoint: &Checkpoint) -> Result<(), StorageError> {
        self.tree.sync(checkpoint).map_err(StorageError::Sync)?;
        // What is confirmed next is where the user looks for it.
        self.tree.check_not_moved()
    }

    fn stamps(&mut self, files: &[NamedFile], settle: bool) -> Vec<Option<Stamp>> {
        self.tree.stamp_files(files, settle)
    }

    fn append_record(&mut self, offset: u64, bytes: &[u8], sync: bool) -> Result<(), StorageError> {
        self.tree.append_record(offset, bytes, sync).map_err(StorageError::Record)
    }

    fn remove_record(&mut self) -> Result<(), StorageError> {
        self.tree.check_not_moved()?;
        self.tree.remove_record().map_err(StorageError::Remove)
    }

    fn discard(&mut self, temp: TempName) {
        self.tree.discard(temp);
    }

    fn end(&mut self, keeps_record: bool) {
        self.tree.ended.store(!keeps_record, Ordering::Relaxed);
        self.tree.leave();
    }
}

/// Removes what earlier runs have left and the record does not vouch for. Returns the staged directories that stay.
fn remove_unrecorded(hidden: &OwnedFd, resume: &ResumeState) -> io::Result<BTreeSet<[u8; 36]>> {
    let kept: BTreeSet<[u8; 32]> = resume.temps().map(|temp| hex(&temp.0)).collect();
    let mut left = BTreeSet::new();
    for temp in temps(hidden)? {
        match <[u8; 36]>::try_from(temp.as_os_str().as_bytes()) {
            // Files that the record vouches for may lie in it.
            Ok(name) if resume.kept() > 0 && is_staged_name(&name) => {
                left.insert(name);
            }
            _ if kept.iter().any(|name| as_path(name) == temp) => {}
            _ => remove_temp(hidden, &temp)?,
        }
    }
    Ok(left)
}

/// Checks that what has the name of a directory is one.
pub(crate) fn check_directory(parent: impl AsFd, name: &[u8]) -> Result<(), EntryEnd> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let reason = match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Directory) => return Ok(()),
        Ok(FileType::Symlink) => {
            "a symbolic link of that name is in the way; links at the destination are not followed"
        }
        Ok(FileType::RegularFile) => "a file of that name is in the way at the destination",
        Ok(_) => "something that is no directory is in the way at the destination",
        Err(error) => {
            return Err(explain::at_destination("cannot make the directory", &error.into()));
        }
    };
    Err(EntryEnd::new(EntryCode::InTheWay, reason))
}

/// True if a file of that name has the size and the modification time of `entry`.
pub(crate) fn is_whole(directory: impl AsFd, name: &[u8], entry: &Entry) -> bool {
    stat_of_file(directory, name)
        .is_some_and(|stat| stat.st_size as u64 == entry.size && has_time(&stat, entry))
}

/// Status of the file of that name, if it is one.
fn stat_of_file(directory: impl AsFd, name: &[u8]) -> Option<Stat> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat)
}

/// True if it has the modification time of `entry`.
pub(crate) fn has_time(stat: &Stat, entry: &Entry) -> bool {
    nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64) == entry.modified
}

/// Compares what is there with a file or link that is announced: by size or target, and time.
pub(crate) fn compare(parent: &OwnedFd, name: &[u8], stat: &Stat, entry: &Entry) -> Compared {
    let is_same = match (&entry.kind, FileType::from_raw_mode(stat.st_mode)) {
        (EntryKind::File, FileType::RegularFile) => stat.st_size as u64 == entry.size,
        (EntryKind::Link { target }, FileType::Symlink) => {
            readlinkat(parent, name, Vec::new()).is_ok_and(|there| there.as_bytes() == target)
        }
        _ => return Compared::Other { same_size: false },
    };
    let is_newer = nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64) > entry.modified;
    match entry.kind {
        _ if is_same && may_have_time(stat, entry.modified) => Compared::Unchanged,
        EntryKind::File if is_newer => Compared::Newer { same_size: is_same },
        _ => Compared::Other { same_size: is_same },
    }
}

/// The directory that was needed last: neighbours need it again.
#[derive(Debug)]
pub(crate) struct LastDirectory {
    path: Vec<u8>,
    parent: Parent,
}

impl LastDirectory {
    /// The one called `path`: the last, or what `open` gives.
    pub(crate) fn or_open<'a>(
        last: &'a mut Option<Self>,
        path: &[u8],
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> io::Result<&'a Parent> {
        let open = match last.take() {
            Some(open) if open.path == path => open,
            _ => Self { path: path.to_vec(), parent: Parent::new(open()?) },
        };
        Ok(&last.insert(open).parent)
    }
}

/// Unpublished files kept open between their groups.
const FILES_OPEN: usize = 128;
