mod listed;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::take;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longhaul_objects::{EntryId, identity};
use longhaul_sys::random;
use longhaul_wire::{
    Attributes, Entry, EntryCode, EntryEnd, EntryKind, EntryPath, HardLink, Metadata,
};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;

use self::listed::ListedScan;
use super::hard_links::{FoundLinks, FoundName};
use super::holes::{data_ranges, may_have_holes};
use super::{pseudo, stand_in};
use crate::metadata::node::Node;
use crate::place::open_at;
use crate::source::metadata::Missed;
use crate::source::{READ, SourceTree, file_identity, nanoseconds};
use crate::{explain, identify};

/// Entries that are found, one after the other: parents before what is in them, files of a
/// directory one after the other. Memory depends on the directories found and not read, not on the
/// tree.
///
/// The scan reports what cannot be copied and goes on. Hidden directories of transfers that
/// are not finished (docs/files.md) are passed over.
#[derive(Debug)]
pub struct Scan<'a> {
    tree: &'a SourceTree,
    next_root: usize,
    listed: ListedScan<'a>,
    /// True if anything was given out: the entry with the empty path comes first, or not at all.
    has_begun: bool,
    listing: Option<Listing>,
    /// Directories that are to be read, the next one last, and memory that their names take.
    pending: Vec<Pending>,
    pending_cost: usize,
    /// Failures of what has no path that an entry could have.
    nameless: u32,
    /// Of the names that stand in.
    salt: u32,
    links: FoundLinks,
    /// Attributes that are not kept of the entry that was given out last, which is not read.
    missed: Missed,
}

/// Something found by a [`Scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// To be copied: for [`longhaul_objects::Source::push_entry`], and its number for [`Scan::number`].
    Entry(Entry),
    /// Is not copied.
    Failed(ScanFailure),
}

/// Something found by a [`Scan`] that is not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanFailure {
    /// Its path as an entry would have it; longer than an entry allows, perhaps.
    pub path: Vec<u8>,
    /// Why.
    pub end: EntryEnd,
    /// An entry to push and to fail at once with [`longhaul_objects::Source::entry_failed`], so
    /// that the sink, its report and its exit status know of it. It is a file of one byte, since
    /// only entries with contents are sure not to be published before the failure is known.
    /// Where no entry can have the path, or another has it, it is called otherwise.
    pub stand_in: Option<Entry>,
}

#[derive(Debug)]
struct Listing {
    dir: Dir,
    true_sizes: Option<pseudo::DeviceId>,
    root: usize,
    path: Arc<[u8]>,
    /// Directory of a source whose contents are copied together with other sources.
    shares_top: bool,
}

/// Those of one directory share its path, so that long ones cost no more than short ones.
#[derive(Debug)]
struct Pending {
    root: usize,
    /// Path of its directory, as an entry has it; `None` for a source.
    above: Option<Arc<[u8]>>,
    name: Box<[u8]>,
}

impl Pending {
    /// Its path, as an entry has it.
    fn path(&self) -> Vec<u8> {
        self.above.as_ref().map_or(self.name.to_vec(), |above| join(above, &self.name))
    }

    fn cost(&self) -> usize {
        size_of::<Self>() + PENDING_COST + self.name.len()
    }
}

impl<'a> Scan<'a> {
    pub(crate) fn new(tree: &'a SourceTree) -> Self {
        Self {
            tree,
            next_root: 0,
            listed: ListedScan::of(tree.names.get().map(|names| &**names)),
            has_begun: false,
            listing: None,
            pending: Vec::new(),
            pending_cost: 0,
            nameless: 0,
            // Without randomness TLS would have failed before.
            salt: random::number().unwrap_or_default(),
            links: FoundLinks::new(tree.follows() || tree.names.get().is_some()),
            missed: Missed::default(),
        }
    }

    fn start_root(&mut self, root: usize) -> Option<Scanned> {
        let name = self.tree.roots[root].name.clone().unwrap_or_default();
        if !name.is_empty() && !self.tree.claim_top(&name, root) {
            return Some(failed(&name, name_taken("another source has the same name"), None));
        }
        let stat = match self.tree.root_stat(root) {
            Ok(stat) => stat,
            Err(error) => return Some(self.root_failed(root, explain::at_root(&error))),
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !self.tree.admits(&name, is_directory) {
            let end = EntryEnd::new(EntryCode::Skipped, "a pattern excludes it");
            return Some(self.root_failed(root, end));
        }
        if is_directory && self.listed.is_begun() {
            return Some(self.start_listed(root, &stat));
        }
        if is_directory {
            self.pend(Pending { root, above: None, name: name.into() });
            return None;
        }
        if name.is_empty() {
            let end = EntryEnd::new(EntryCode::Failed, "it is not a directory");
            return Some(self.root_failed(root, end));
        }
        let found = leaf(self.tree, name, &stat, None, None);
        let missed = missed_of(self.tree, &found, &stat, None, None);
        self.give_out(found, missed, &stat)
    }

    fn root_failed(&mut self, root: usize, end: EntryEnd) -> Scanned {
        self.listed.give_up();
        let label = self.tree.label(root);
        if self.tree.claim_top(label, root) {
            unreadable(label.to_vec(), end)
        } else {
            failed(label, end, None)
        }
    }

    /// Stands in for what is at `path`, which no entry can have: in the same tree.
    fn nameless(&mut self, path: &[u8]) -> Option<Entry> {
        self.nameless += 1;
        EntryPath::new(stand_in::path(path, self.nameless, self.salt)).ok().map(stand_in_at)
    }

    fn start_directory(&mut self, pending: Pending) -> Option<Scanned> {
        let (root, path) = (pending.root, pending.path());
        let Ok(entry_path) = EntryPath::new(path.clone()) else { return Some(too_long(path)) };
        let own = self.tree.own_len(root);
        let rest = path.get(own..).unwrap_or_default();
        let opened = self.tree.open_directory(root, rest, OFlags::RDONLY);
        let opened = opened.and_then(|fd| {
            let stat = fstat(&fd)?;
            let true_sizes = pseudo::true_sizes(&fd, &stat);
            let metadata = self.tree.reading.read(&stat, Some(&Node::open(&fd)))?;
            let missed = missed_of_directory(self.tree, &Node::open(&fd), true_sizes);
            Ok((Dir::new(fd)?, stat, true_sizes, (metadata, missed)))
        });
        let (dir, stat, true_sizes, (metadata, missed)) = match opened {
            Ok(opened) => opened,
            Err(error) => return Some(unreadable(path, explain::at_source(&error))),
        };
        let is_top = path.is_empty();
        let shares_top = is_top && self.tree.roots.len() > 1;
        let is_known = is_top && self.has_begun;
        let entry = (!is_known).then(|| {
            let entry = entry(EntryKind::Directory, &stat, 0, [0; 16], entry_path);
            self.missed = missed;
            Entry { attributes: Attributes { data: None, metadata }, ..entry }
        });
        self.listing = Some(Listing { dir, true_sizes, root, path: path.into(), shares_top });
        entry.map(Scanned::Entry)
    }

    /// The next thing in the directory that is being read.
    fn step(&mut self) -> Option<Scanned> {
        let listing = self.listing.as_mut()?;
        let found = match listing.dir.read() {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                let rest = join(&listing.path, b"(what could not be listed)");
                self.listing = None;
                return Some(unreadable(rest, explain::at_source(&error.into())));
            }
            None => {
                self.listing = None;
                return None;
            }
        };
        let name = found.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        let path = join(&listing.path, name.to_bytes());
        if listing.shares_top && !self.tree.claim_top(name.to_bytes(), listing.root) {
            let end = name_taken("another source holds the same name");
            return Some(failed(&path, end, None));
        }
        let directory = match listing.dir.fd() {
            Ok(directory) => directory,
            Err(error) => return Some(unreadable(path, explain::at_source(&error.into()))),
        };
        let (kind, stat) = match found.file_type() {
            FileType::Directory => (FileType::Directory, None),
            // Saves a look at what cannot be copied, and finds the kind where the directory does
            // not list it.
            _ => match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => (FileType::from_raw_mode(stat.st_mode), Some(stat)),
                // Gone since it was listed, as if it had never been there.
                Err(Errno::NOENT) => return None,
                Err(error) => return Some(unreadable(path, explain::at_source(&error.into()))),
            },
        };
        let follows = kind == FileType::Symlink && self.tree.follows();
        let followed =
            follows.then(|| self.tree.look_behind(listing.root, &path, (directory, name)));
        let (kind, stat) = match &followed {
            Some(Ok(stat)) => (FileType::from_raw_mode(stat.st_mode), Some(*stat)),
            _ => (kind, stat),
        };
        if !self.tree.admits(&path, kind == FileType::Directory) {
            return None;
        }
        if let Some(Err(end)) = followed {
            return Some(unreadable(path, end));
        }
        match stat {
            Some(stat) if kind != FileType::Directory => {
                let place = followed.is_none().then_some((directory, name));
                let found = leaf(self.tree, path, &stat, listing.true_sizes, place);
                let missed = missed_of(self.tree, &found, &stat, listing.true_sizes, place);
                self.give_out(found, missed, &stat)
            }
            _ if identify::is_hidden_name(name.to_bytes()) => None,
            _ => {
                let (root, above) = (listing.root, Some(listing.path.clone()));
                let found = Pending { root, above, name: name.to_bytes().into() };
                if !self.has_room(found.cost()) {
                    return Some(unreadable(path, too_many()));
                }
                self.pend(found);
                None
            }
        }
    }

    /// Gives out what was found, unless it is one of several names, where these are kept.
    fn give_out(&mut self, found: Scanned, missed: Missed, stat: &Stat) -> Option<Scanned> {
        let name = match &found {
            Scanned::Entry(entry) if self.tree.reading.keeps_links() => {
                FoundName::new(entry, missed, stat)
            }
            _ => None,
        };
        let Some(name) = name else {
            self.missed = missed;
            return Some(found);
        };
        self.links.find(name, self.tree.names_most / 8);
        None
    }

    /// One of several names that need not wait for others.
    fn ready_name(&mut self) -> Option<Scanned> {
        let (FoundName { entry, missed, .. }, link) = self.links.take_ready()?;
        match link {
            HardLink::First if !self.has_room(0) => {
                return Some(unreadable(entry.path.as_bytes().to_vec(), too_many()));
            }
            HardLink::First => self.missed = missed,
            // They are those of the first.
            HardLink::To(_) => {}
        }
        Some(Scanned::Entry(entry.with_link(link)))
    }

    /// The entry that was given out last was announced with this number. Until that is known it has no other names.
    pub fn number(&mut self, id: EntryId) {
        self.links.number(id);
        self.tree.reading.count_missed(id, take(&mut self.missed));
    }

    /// The entry that was given out last is not announced, and has other names all the same.
    pub fn pass(&mut self) {
        self.links.number(EntryId(0));
    }

    fn has_room(&self, more: usize) -> bool {
        self.pending_cost + self.links.cost() + more <= self.tree.names_most
    }

    fn pend(&mut self, found: Pending) {
        self.pending_cost += found.cost();
        self.pending.push(found);
    }

    /// There is no memory for the directory that was given out last: nothing that is in it is.
    pub fn leave_out_directory(&mut self, path: EntryPath) -> ScanFailure {
        self.listing = None;
        self.listed.leave_out(path.as_bytes());
        let bytes = path.as_bytes().to_vec();
        let stand_in = (!path.is_empty()).then(|| stand_in_at(path));
        ScanFailure { path: bytes, end: too_many(), stand_in }
    }
}

impl Iterator for Scan<'_> {
    type Item = Scanned;

    fn next(&mut self) -> Option<Scanned> {
        self.links.forget_unnumbered();
        self.missed = Missed::default();
        loop {
            let ready = self.ready_name();
            let scanned = if ready.is_some() {
                ready
            } else if self.listing.is_some() {
                self.step()
            } else if self.listed.is_next_beside() {
                self.step_listed()
            } else if let Some(pending) = self.pending.pop() {
                self.pending_cost -= pending.cost();
                self.start_directory(pending)
            } else if self.next_root < self.tree.roots.len() {
                self.next_root += 1;
                self.start_root(self.next_root - 1)
            } else if self.listed.is_left() {
                self.step_listed()
            } else if self.links.release_all() {
                None
            } else {
                return None;
            };
            match scanned {
                Some(Scanned::Failed(ScanFailure { path, end, stand_in })) => {
                    self.has_begun = true;
                    let stand_in = stand_in.or_else(|| self.nameless(&path));
                    let end = self.tree.on_this_side(end);
                    return Some(Scanned::Failed(ScanFailure { path, end, stand_in }));
                }
                Some(scanned) => {
                    self.has_begun = true;
                    return Some(scanned);
                }
                None => {}
            }
        }
    }
}

/// Anything that is not a directory. `link` says where the target is read, for a link.
fn leaf(
    tree: &SourceTree,
    path: Vec<u8>,
    stat: &Stat,
    true_sizes: Option<pseudo::DeviceId>,
    link: Option<(BorrowedFd<'_>, &CStr)>,
) -> Scanned {
    let kind = match (FileType::from_raw_mode(stat.st_mode), link) {
        (FileType::RegularFile, _) => EntryKind::File,
        (FileType::Symlink, Some((directory, name))) => {
            match readlinkat(directory, name, Vec::new()) {
                Ok(target) => EntryKind::Link { target: target.into_bytes() },
                Err(error) => return unreadable(path, explain::at_source(&error.into())),
            }
        }
        (special, _) => {
            let what = match special {
                FileType::Fifo => "a FIFO",
                FileType::Socket => "a socket",
                FileType::CharacterDevice | FileType::BlockDevice => "a device",
                _ => "no file, directory or link",
            };
            let reason = format!("it is {what}, which is not copied");
            return unreadable(path, EntryEnd::new(EntryCode::Skipped, &reason));
        }
    };
    let Ok(path) = EntryPath::new(path.clone()) else {
        return too_long(path);
    };
    let is_file = kind == EntryKind::File;
    let size = if is_file { stat.st_size as u64 } else { 0 };
    let data = match is_file && may_have_holes(stat) {
        true => open_leaf(tree, &path, link).ok().and_then(|file| data_ranges(&file, stat)),
        false => None,
    };
    let metadata = match metadata_of(tree, &path, stat, link) {
        Ok(metadata) => metadata,
        Err(error) => return unreadable(path.as_bytes().to_vec(), explain::at_source(&error)),
    };
    let identity = match size > 0 {
        true => identity(&file_identity(stat), data.as_ref()),
        false => [0; 16],
    };
    let mut entry = entry(kind, stat, size, identity, path);
    entry.attributes = Attributes { data, metadata };
    // A copy finds out when it reads it.
    if tree.dry_run
        && entry.data_len() > 0
        && let Err(error) = open_leaf(tree, &entry.path, link)
    {
        return unreadable(entry.path.as_bytes().to_vec(), explain::at_source(&error));
    }
    match pseudo::hidden_contents(tree, &entry, stat, true_sizes) {
        Some(end) => unreadable(entry.path.as_bytes().to_vec(), end),
        None => Scanned::Entry(entry),
    }
}

/// Attributes that are not kept of what a [`leaf`] has found and nobody will read. Only of a file that lies somewhere:
/// one that the system makes up gets new times when it is looked at.
fn missed_of(
    tree: &SourceTree,
    found: &Scanned,
    stat: &Stat,
    true_sizes: Option<pseudo::DeviceId>,
    link: Option<(BorrowedFd<'_>, &CStr)>,
) -> Missed {
    let Scanned::Entry(entry) = found else { return Missed::default() };
    let is_read = entry.data_len() > 0;
    let is_unread = is_read && tree.dry_run;
    if entry.kind != EntryKind::File || is_read && !is_unread || !tree.reading.misses_any() {
        return Missed::default();
    }
    let missed = match link {
        Some((directory, name)) if true_sizes == Some(stat.st_dev) => {
            tree.reading.missed_of(&Node::named(&directory, name.to_bytes()))
        }
        Some(_) => Missed::default(),
        None => open_leaf(tree, &entry.path, None)
            .ok()
            .filter(|file| pseudo::true_sizes(file, stat).is_some())
            .map_or_else(Missed::default, |file| tree.reading.missed_of(&Node::open(&file))),
    };
    missed.unread(is_unread)
}

/// The same of a directory.
fn missed_of_directory(
    tree: &SourceTree,
    directory: &Node<'_>,
    true_sizes: Option<pseudo::DeviceId>,
) -> Missed {
    true_sizes.map_or_else(Missed::default, |_| tree.reading.missed_of(directory))
}

/// Opens the file of an entry.
fn open_leaf(
    tree: &SourceTree,
    path: &EntryPath,
    link: Option<(BorrowedFd<'_>, &CStr)>,
) -> io::Result<File> {
    match link {
        Some((directory, name)) => {
            Ok(open_at(directory, name, READ | OFlags::NOFOLLOW, Mode::empty())?.into())
        }
        None => tree.open_file(path.as_bytes(), &mut None),
    }
}

fn metadata_of(
    tree: &SourceTree,
    path: &EntryPath,
    stat: &Stat,
    link: Option<(BorrowedFd<'_>, &CStr)>,
) -> io::Result<Option<Box<Metadata>>> {
    if !tree.reading.looks_further() {
        return Ok(tree.reading.read(stat, None)?);
    }
    Ok(match link {
        Some((directory, name)) => {
            tree.reading.read(stat, Some(&Node::named(&directory, name.to_bytes())))?
        }
        None => tree.reading.read(stat, Some(&Node::open(&open_leaf(tree, path, link)?)))?,
    })
}

fn entry(kind: EntryKind, stat: &Stat, size: u64, identity: [u8; 16], path: EntryPath) -> Entry {
    let mode = (stat.st_mode & 0o7777) as u16;
    let modified = nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64);
    let attributes = Attributes::default();
    Entry { kind, mode, modified, size, identity, path, attributes }
}

/// A failure that can be reported to the sink.
fn unreadable(path: Vec<u8>, end: EntryEnd) -> Scanned {
    let stand_in = EntryPath::new(path.clone()).ok().filter(|path| !path.is_empty());
    failed(&path, end, stand_in.map(stand_in_at))
}

fn stand_in_at(path: EntryPath) -> Entry {
    let (kind, attributes) = (EntryKind::File, Attributes::default());
    Entry { kind, mode: 0, modified: 0, size: 1, identity: [0; 16], path, attributes }
}

fn failed(path: &[u8], end: EntryEnd, stand_in: Option<Entry>) -> Scanned {
    Scanned::Failed(ScanFailure { path: path.to_vec(), end, stand_in })
}

fn too_long(path: Vec<u8>) -> Scanned {
    let reason = format!("its path is longer than {} bytes", longhaul_wire::MAX_PATH);
    failed(&path, EntryEnd::new(EntryCode::Name, &reason), None)
}

fn name_taken(reason: &str) -> EntryEnd {
    EntryEnd::new(EntryCode::Name, reason)
}

fn too_many() -> EntryEnd {
    EntryEnd::new(EntryCode::OutOfResources, TOO_MANY)
}

/// Bytes that the allocations of a directory that is to be read take beside its name.
const PENDING_COST: usize = 32;
const TOO_MANY: &str = "the sending side has no memory left for the names of more directories and files \
                        with several names (--memory); copy it in parts";

pub(crate) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parent.len() + 1 + name.len());
    if !parent.is_empty() {
        path.extend_from_slice(parent);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
