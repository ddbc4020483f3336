mod follow;
mod hard_links;
mod holes;
pub(crate) mod metadata;
pub(crate) mod pseudo;
pub(crate) mod scan;
pub(crate) mod stand_in;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_objects::{EntryId, FileIdentity, GroupTask, NameList, ReadPiece, identity, is_large};
use longhaul_sys::descriptors::patiently;
use longhaul_sys::files::{Access, ConfinedDir, FileOptions, PositionedFile, read_up_to_at};
use longhaul_sys::sync::lock;
use longhaul_units::{Bytes, RangeSet, counted};
use longhaul_wire::{Entry, EntryCode, EntryEnd, KeptAttributes};
use rustix::fs::{CWD, Mode, OFlags, Stat};

use crate::cache::HandleCache;
use crate::explain;
use crate::filter::Filter;
use crate::identify::as_path;
use crate::large::large;
use crate::metadata::node::Node;
use crate::place::{beneath, open_at, split};
use crate::source::metadata::Reading;
use crate::source::scan::Scan;

/// The files to be copied: scanned once ([`SourceTree::scan`]), read by group in any order and by
/// any number of threads ([`SourceTree::read_group`]).
///
/// Each source appears under its own name, the last component of its path. A source whose path is
/// empty or ends in `.` or `..` has no name of its own: its contents are copied, and so they are of
/// all sources under `copy_contents`. A source that is a symbolic link is followed; links further
/// down are copied as links, or as what they point at ([`KeptAttributes::FOLLOW`]).
///
/// Nothing is held open but a bounded number of directories and large files.
#[derive(Debug)]
pub struct SourceTree {
    base: Base,
    pub(crate) roots: Vec<Root>,
    /// Which source a first component belongs to, where there are several sources.
    tops: Mutex<BTreeMap<Vec<u8>, usize>>,
    /// By source, because contents of several share their top, and path.
    directories: HandleCache<(usize, Vec<u8>), OwnedFd>,
    files: HandleCache<EntryId, PositionedFile>,
    /// Whole blocks of large files are read past the page cache.
    direct: bool,
    /// Memory for names of directories that were found and are still to be read.
    pub(crate) names_most: usize,
    filter: Option<Filter>,
    /// Of the contents of the one source these alone are copied.
    pub(crate) names: OnceLock<Arc<NameList>>,
    reading: Reading,
    /// Nothing is read but what is compared.
    pub(crate) dry_run: bool,
}

/// Directory that paths are relative to, and confined to.
#[derive(Debug)]
enum Base {
    Local,
    Below(Arc<ConfinedDir>),
}

/// One of the sources.
#[derive(Debug)]
pub(crate) struct Root {
    path: Vec<u8>,
    /// First component of its entries; `None` where its contents are copied.
    pub(crate) name: Option<Vec<u8>>,
}

impl SourceTree {
    /// Sources anywhere on this host.
    pub fn local(sources: &[PathBuf], copy_contents: bool) -> Self {
        let paths = sources.iter().map(|path| path.clone().into_os_string().into_vec());
        Self::new(Base::Local, paths, copy_contents)
    }

    /// Sources below `root`, which nothing leads out of: paths as REQUEST names them
    /// (docs/protocol.md section 7.2).
    pub fn below(root: Arc<ConfinedDir>, paths: &[Vec<u8>], copy_contents: bool) -> Self {
        Self::new(Base::Below(root), paths.iter().cloned(), copy_contents)
    }

    fn new(base: Base, paths: impl Iterator<Item = Vec<u8>>, copy_contents: bool) -> Self {
        let root = |path: Vec<u8>| {
            let name = own_name(&path).filter(|_| !copy_contents).map(<[u8]>::to_vec);
            Root { path, name }
        };
        Self {
            base,
            roots: paths.map(root).collect(),
            tops: Mutex::new(BTreeMap::new()),
            directories: HandleCache::new(DIRECTORIES_OPEN),
            files: HandleCache::new(FILES_OPEN),
            direct: false,
            names_most: NAMES_MOST,
            filter: None,
            names: OnceLock::new(),
            reading: Reading::default(),
            dry_run: false,
        }
    }

    /// Of the contents of the one source only these names are copied, with what is in them and the directories
    /// above them. To be called once, before [`Self::scan`].
    pub fn list_names(&self, names: Arc<NameList>) {
        let _ = self.names.set(names);
    }

    /// Looks in a scan already, if `dry_run`, at what a copy finds out when it reads a file: attributes, and whether
    /// it can be read.
    pub fn dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// Keeps these attributes; those that are not the user's where they are `allowed`.
    pub fn keeping(self, kept: KeptAttributes, allowed: bool) -> Self {
        Self { reading: Reading::new(kept, allowed), ..self }
    }

    /// Entries with access lists, and with extended attributes of the user's, which are not kept: of files those that
    /// were read, or have nothing to read; in a dry run those that `would_change`, by their numbers, count as read.
    pub fn missed_attributes(&self, would_change: &RangeSet) -> (u64, u64) {
        self.reading.missed(would_change)
    }

    /// Memory for names of directories that were found and are still to be read: those beyond it are
    /// reported and not copied.
    pub fn limit_names(self, most: Bytes) -> Self {
        Self { names_most: usize::try_from(most.get()).unwrap_or(usize::MAX), ..self }
    }

    /// Names that are copied, and names that are not: all without rules.
    pub fn filter(self, filter: Option<Filter>) -> Self {
        Self { filter, ..self }
    }

    /// True if what has this path, as an entry has it, is copied.
    pub(crate) fn admits(&self, path: &[u8], is_directory: bool) -> bool {
        path.is_empty() || self.filter.as_ref().is_none_or(|it| it.admits(path, is_directory))
    }

    /// True if some names may not be copied.
    pub(crate) fn has_rules(&self) -> bool {
        self.filter.is_some()
    }

    /// Reads whole blocks of large files past the page cache (`O_DIRECT`), if `direct`.
    pub fn direct(self, direct: bool) -> Self {
        Self { direct, ..self }
    }

    /// The entries, in the order that [`longhaul_objects::Source::push_entry`] wants. To be called
    /// once.
    pub fn scan(&self) -> Scan<'_> {
        Scan::new(self)
    }

    /// Reads the bytes of `task` into the start of `into`, zeros where there are none.
    ///
    /// Returns the entries that could not be read as they were scanned, each with the reason, for
    /// [`longhaul_objects::Source::entry_failed`] before
    /// [`longhaul_objects::Source::group_hashed`]. Every read is followed by a look at the file, so
    /// that what is not reported was unchanged when its last byte was read.
    ///
    /// # Panics
    /// When `into` is shorter than the group.
    pub fn read_group(&self, task: &GroupTask, into: &mut [u8]) -> Vec<(EntryId, EntryEnd)> {
        let into = &mut into[..task.len as usize];
        let mut failed = Vec::new();
        let mut directory = None;
        let mut filled = 0;
        for pieces in task.pieces.chunk_by(|one, next| one.id == next.id) {
            let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { continue };
            let start = first.group_offset as usize;
            let end = (last.group_offset + last.len) as usize;
            into[filled..start].fill(0);
            filled = end;
            if let Err(reason) = self.read_pieces(pieces, into, &mut directory) {
                into[start..end].fill(0);
                self.files.remove(&first.id);
                failed.push((first.id, self.on_this_side(reason)));
            }
        }
        into[filled..].fill(0);
        failed
    }

    /// Reads the first byte of the file of the entry `path`, which has the status `stat`; 0 where
    /// there is none.
    pub(crate) fn read_first_byte(&self, path: &[u8], stat: &Stat) -> io::Result<usize> {
        let file = self.open_file(path, &mut None)?;
        let found = rustix::fs::fstat(&file)?;
        if (found.st_dev, found.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(io::ErrorKind::NotFound.into());
        }
        read_up_to_at(&file, &mut [0], 0)
    }

    /// As [`Self::read_group`], of the pieces of one file.
    fn read_pieces<'a>(
        &self,
        pieces: &'a [ReadPiece],
        into: &mut [u8],
        directory: &mut Option<OpenDirectory<'a>>,
    ) -> Result<(), EntryEnd> {
        let Some(ReadPiece { id, entry, .. }) = pieces.first() else { return Ok(()) };
        #[cfg(any(test, feature = "test-faults"))]
        crate::test_faults::inject_delay(entry, "read");
        let explain = |error| explain::at_source(&error);
        let path = entry.path.as_bytes();
        let file = if !is_large(entry) {
            Arc::new(PositionedFile::new(self.open_file(path, directory).map_err(explain)?))
        } else {
            match self.files.get(id) {
                Some(file) => file,
                None => {
                    let file = self.open_file(path, directory);
                    let file = file.and_then(|file| large(file, self.direct)).map_err(explain)?;
                    let file = Arc::new(file);
                    self.files.insert(*id, Arc::clone(&file));
                    file
                }
            }
        };
        let mut short = None;
        for piece in pieces {
            let start = piece.group_offset as usize;
            let part = &mut into[start..start + piece.len as usize];
            let count = read(&file, part, piece.file_offset).map_err(explain)?;
            if count < part.len() {
                short.get_or_insert(piece.file_offset + count as u64);
            }
        }
        let stat = rustix::fs::fstat(file.file()).map_err(|error| explain(error.into()))?;
        if identity(&file_identity(&stat), entry.attributes.data.as_ref()) != entry.identity {
            return Err(changed(entry, &stat));
        }
        if let Some(end) = short {
            // As files of `/sys` do, which say that they have a page.
            let size = entry.size;
            let reason = format!(
                "it reports {} but ends after {}, so it is not copied; longhaul pipe can send it",
                counted(size, "byte"),
                counted(end, "byte")
            );
            return Err(EntryEnd::new(EntryCode::Failed, &reason));
        }
        // Behind the comparison: in /sys to look for them gives a file new times.
        if entry.parts(0, 1).next().is_some_and(|first| pieces[0].file_offset == first.start) {
            let missed = self.reading.missed_of(&Node::open(file.file()));
            self.reading.count_missed(*id, missed);
        }
        Ok(())
    }

    /// Opens the file that was copied as the entry `path` with such an identity, to read it once more.
    ///
    /// # Errors
    /// It is not there any more, or is another.
    pub fn reopen(&self, path: &[u8], was: &[u8; 16]) -> io::Result<File> {
        let file = self.open_file(path, &mut None)?;
        let stat = rustix::fs::fstat(&file)?;
        let data = holes::may_have_holes(&stat).then(|| holes::data_ranges(&file, &stat)).flatten();
        let found = file_identity(&stat);
        match [identity(&found, None), identity(&found, data.as_ref())].contains(was) {
            true => Ok(file),
            false => Err(io::Error::other("it changed since it was copied")),
        }
    }

    /// Opens the file of the entry `path`. `directory` is kept from one call to the next, since
    /// files of a group are mostly neighbours.
    pub(crate) fn open_file<'a>(
        &self,
        path: &'a [u8],
        directory: &mut Option<OpenDirectory<'a>>,
    ) -> io::Result<File> {
        let (root, rest) = self.locate(path).ok_or(io::ErrorKind::NotFound)?;
        if rest.is_empty() {
            return self.open_root_file(root);
        }
        if self.follows() {
            return self.open_behind(root, rest);
        }
        let (parent, name) = split(path);
        let handle = match directory {
            Some(open) if (open.root, open.path) == (root, parent) => &open.handle,
            _ => {
                let handle = self.directory(root, parent, split(rest).0)?;
                &directory.insert(OpenDirectory { root, path: parent, handle }).handle
            }
        };
        Ok(open_at(&**handle, name, READ | OFlags::NOFOLLOW, Mode::empty())?.into())
    }

    /// The directory of the entry `path`, which is `rest` below source number `root`.
    pub(crate) fn directory(
        &self,
        root: usize,
        path: &[u8],
        rest: &[u8],
    ) -> io::Result<Arc<OwnedFd>> {
        let key = (root, path.to_vec());
        if let Some(handle) = self.directories.get(&key) {
            return Ok(handle);
        }
        let handle = Arc::new(self.open_directory(root, rest, OFlags::PATH)?);
        self.directories.insert(key, Arc::clone(&handle));
        Ok(handle)
    }

    /// Opens the directory `rest` below source number `root`, through no link, unless they are followed, or above a
    /// listed name.
    pub(crate) fn open_directory(
        &self,
        root: usize,
        rest: &[u8],
        flags: OFlags,
    ) -> io::Result<OwnedFd> {
        if self.follows() && !rest.is_empty() {
            return self.open_directory_behind(root, rest, flags);
        }
        match self.open_directory_itself(root, rest, flags) {
            Err(error) if is_no_directory(&error) => self.open_listed(root, rest, flags, error),
            result => result,
        }
    }

    /// The same through links above a listed name, or that a name with a slash means, but not below; without such
    /// a name `error`.
    fn open_listed(
        &self,
        root: usize,
        rest: &[u8],
        flags: OFlags,
        error: io::Error,
    ) -> io::Result<OwnedFd> {
        let ends = rest.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let mut prefixes = [rest.len()].into_iter().chain(ends.map(|(end, _)| end));
        let leads_on = |end: &usize| {
            let path = &rest[..*end];
            self.names.get().is_some_and(|it| it.is_above(path) || it.follows(path))
        };
        let Some(end) = prefixes.find(leads_on) else { return Err(error) };
        match rest.get(end + 1..) {
            None => self.open_directory_behind(root, rest, flags),
            Some(below) => {
                let above = self.open_directory_behind(root, &rest[..end], OFlags::PATH)?;
                Ok(beneath(above, below, flags)?)
            }
        }
    }

    fn open_directory_itself(
        &self,
        root: usize,
        rest: &[u8],
        flags: OFlags,
    ) -> io::Result<OwnedFd> {
        let path = as_path(&self.roots[root].path);
        let access = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match &self.base {
            Base::Local => {
                let path = if path.as_os_str().is_empty() { as_path(b".") } else { path };
                if rest.is_empty() {
                    return Ok(open_at(CWD, path, access, Mode::empty())?);
                }
                let top = open_at(CWD, path, OFlags::PATH | access, Mode::empty())?;
                Ok(beneath(top, rest, flags)?)
            }
            Base::Below(confined) => {
                let top = patiently(|| confined.open_dir(path).map_err(io::Error::from))?;
                Ok(beneath(top, rest, flags)?)
            }
        }
    }

    /// The end of an entry for a reason on this side, which it names.
    pub(crate) fn on_this_side(&self, end: EntryEnd) -> EntryEnd {
        match &self.base {
            Base::Local => explain::with_side(end, "on this host"),
            Base::Below(_) => explain::with_side(end, explain::AT_SERVER),
        }
    }

    /// Status of source number `root`, through links.
    pub(crate) fn root_stat(&self, root: usize) -> io::Result<Stat> {
        let path = as_path(&self.roots[root].path);
        match &self.base {
            Base::Local if path.as_os_str().is_empty() => Ok(rustix::fs::stat(".")?),
            Base::Local => Ok(rustix::fs::stat(path)?),
            // Opened for reading, a FIFO or device does not block, and a file is opened anyway.
            Base::Below(confined) => {
                Ok(rustix::fs::fstat(confined.open(path, &FileOptions::default())?)?)
            }
        }
    }

    fn open_root_file(&self, root: usize) -> io::Result<File> {
        let path = as_path(&self.roots[root].path);
        match &self.base {
            Base::Local => Ok(open_at(CWD, path, READ, Mode::empty())?.into()),
            Base::Below(confined) => {
                let options = FileOptions { access: Access::Read, ..FileOptions::default() };
                patiently(|| confined.open(path, &options).map_err(io::Error::from))
            }
        }
    }

    /// The source that the entry `path` belongs to, and its path below it.
    fn locate<'a>(&self, path: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        let root = match self.roots.len() {
            1 => 0,
            _ => *lock(&self.tops).get(first)?,
        };
        let rest = match &self.roots[root].name {
            Some(_) => path.get(first.len() + 1..).unwrap_or_default(),
            None => path,
        };
        Some((root, rest))
    }

    /// Notes that the first component `top` belongs to source number `root`; false when it belongs
    /// to another.
    pub(crate) fn claim_top(&self, top: &[u8], root: usize) -> bool {
        self.roots.len() == 1 || *lock(&self.tops).entry(top.to_vec()).or_insert(root) == root
    }

    /// Bytes of the own name of source number `root`, and the slash behind it, in paths of its entries.
    pub(crate) fn own_len(&self, root: usize) -> usize {
        self.roots[root].name.as_ref().map_or(0, |own| own.len() + 1)
    }

    /// Name of source number `root` in a report when it cannot be copied at all.
    pub(crate) fn label(&self, root: usize) -> &[u8] {
        let root = &self.roots[root];
        let mut components = root.path.rsplit(|byte| *byte == b'/');
        let plain = |component: &&[u8]| !matches!(*component, b"" | b"." | b"..");
        root.name.as_deref().or_else(|| components.find(plain)).unwrap_or(b"source")
    }
}

/// A directory that files were just opened in.
pub(crate) struct OpenDirectory<'a> {
    root: usize,
    path: &'a [u8],
    handle: Arc<OwnedFd>,
}

/// Last component of the path of a source; `None` when it has no name of its own.
pub fn own_name(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let name = path[..end].rsplit(|byte| *byte == b'/').next()?;
    (name != b"." && name != b"..").then_some(name)
}

/// Reads as much of `into` as the file has from `offset`.
pub(crate) fn read(file: &PositionedFile, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let done = file.read_blocks_at(into, offset)?;
    let more = read_up_to_at(file.file(), &mut into[done..], offset + done as u64)?;
    Ok(done + more)
}

/// Attributes of a file that identify its contents.
pub(crate) fn file_identity(stat: &Stat) -> FileIdentity {
    FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size as u64,
        modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64),
        changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64),
    }
}

pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// True if a link is in the way, of which a client learns no more than that.
fn is_no_directory(error: &io::Error) -> bool {
    explain::is_link(error) || error.kind() == io::ErrorKind::NotADirectory
}

fn changed(entry: &Entry, stat: &Stat) -> EntryEnd {
    let size = stat.st_size as u64;
    let reason = match size.cmp(&entry.size) {
        Ordering::Equal => "it changed while it was copied".to_owned(),
        Ordering::Less => {
            format!(
                "it shrank from {} to {} while it was copied",
                entry.size,
                counted(size, "byte")
            )
        }
        Ordering::Greater => {
            format!("it grew from {} to {} while it was copied", entry.size, counted(size, "byte"))
        }
    };
    EntryEnd::new(EntryCode::Changed, &reason)
}

pub(crate) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Unless it is limited otherwise: some half a million.
const NAMES_MOST: usize = 64 << 20;

/// Directories kept open for opening files in them.
const DIRECTORIES_OPEN: usize = 32;

/// Large files kept open between their groups.
const FILES_OPEN: usize = 64;
