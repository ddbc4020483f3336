use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;

use longhaul_wire::{Entry, EntryCode, EntryEnd, EntryKind, EntryPath, Metadata};
use rand_core::Rng;

use crate::action::{
    Checked, Checkpoint, Compared, ComparedFile, Deletion, Existing, ExistingEntry,
    FilledDirectory, Made, NamedEntry, NamedFile, Prepared, Publication, RecordedFile, WritePiece,
};
use crate::entry::TempName;
use crate::entry::parent;
use crate::hash::ChainingValue;
use crate::hash::{group_chaining_value, group_count, group_len};
use crate::limits::GROUP_SIZE;
use crate::paths::AnnouncedPaths;
use crate::record::Stamp;
use crate::storage::Storage;

/// Files in memory, of which a power cut loses what was not synced.
///
/// The model of the file system: writes are kept, lost or torn one by one until the file is
/// synced; names are durable once the directory that they are in was synced. The others change in
/// order, as with a journal, and a cut loses the end of that order.
/// Everything that was done is visible before a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStorage {
    files: Vec<File>,
    visible: Names,
    durable: Names,
    /// Changes from `durable` to `visible`.
    journal: Vec<Change>,
    record: File,
    /// Writes so far, of which the last to each file is its stamp.
    changes: u64,
    /// Bytes that can still be allocated; `None` for no limit.
    space: Option<u64>,
}

/// A node under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory {
        /// Permission bits.
        mode: u16,
        /// Modification time.
        modified: i64,
        /// Metadata that are kept of it.
        metadata: Option<Box<Metadata>>,
    },
    /// A file.
    File {
        /// Permission bits.
        mode: u16,
        /// Modification time.
        modified: i64,
        /// Number of the contents; see [`MemoryStorage::contents`].
        inode: usize,
        /// Metadata that are kept of it.
        metadata: Option<Box<Metadata>>,
    },
    /// A symbolic link.
    Link {
        /// Its target.
        target: Box<[u8]>,
    },
}

impl Node {
    fn of_file(entry: &Entry, inode: usize) -> Self {
        let metadata = metadata_of(entry);
        Self::File { mode: entry.mode, modified: entry.modified, inode, metadata }
    }

    fn of_directory(entry: &Entry) -> Self {
        let metadata = metadata_of(entry);
        Self::Directory { mode: entry.mode, modified: entry.modified, metadata }
    }

    /// True of a directory that has other attributes than the entry. Its time does not count.
    pub(super) fn lacks_attributes(&self, entry: &Entry) -> bool {
        match self {
            Self::Directory { mode, metadata, .. } => {
                (*mode, metadata) != (entry.mode, &metadata_of(entry))
            }
            _ => false,
        }
    }
}

/// Metadata that a node has: all but its names.
pub fn metadata_of(entry: &Entry) -> Option<Box<Metadata>> {
    let metadata = entry.attributes.metadata.as_deref()?;
    Metadata { hard_link: None, other_names: Vec::new(), ..metadata.clone() }.boxed()
}

/// Why the storage failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// No space is left.
    #[error("no space left on device")]
    Full,
    /// A directory or file that should be there is not.
    #[error("no such file or directory")]
    Missing,
    /// Something else has the name.
    #[error("file exists")]
    Exists,
    /// It has the name already, or was there before.
    #[error("unchanged")]
    Unchanged,
    /// The same, with other attributes than it has now.
    #[error("mended")]
    Mended,
}

impl From<MemoryError> for EntryEnd {
    fn from(error: MemoryError) -> Self {
        let code = match error {
            MemoryError::Full => EntryCode::NoSpace,
            MemoryError::Missing => EntryCode::NotFound,
            MemoryError::Exists => EntryCode::InTheWay,
            MemoryError::Unchanged => EntryCode::Unchanged,
            MemoryError::Mended => EntryCode::Mended,
        };
        Self::new(code, &error.to_string())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    temps: BTreeMap<TempName, usize>,
    nodes: BTreeMap<Box<[u8]>, Node>,
    /// Staged directories, and the files in them.
    asides: BTreeSet<Box<[u8]>>,
    unseen: BTreeMap<Box<[u8]>, Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Temp(TempName, usize),
    Discard(TempName),
    Node(Box<[u8]>, Node),
    Remove(Box<[u8]>),
    Publish(Box<[u8]>, Node, TempName),
    Aside(Box<[u8]>),
    Unseen(Box<[u8]>, Node),
    RemoveUnseen(Box<[u8]>),
    /// A file from a staged directory gets its name.
    Seen(Box<[u8]>),
    /// A directory does, with all that is in it.
    Place(Box<[u8]>),
    RemoveAside(Box<[u8]>),
    RemoveRecord,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// Bytes that it was made with, all zero, while they are not durable.
    made: Option<usize>,
    /// Writes since, from `durable` to `visible`.
    writes: Vec<(usize, Vec<u8>)>,
    /// The last of all writes to it, or what a power cut has made of it since.
    changed: u64,
}

impl MemoryStorage {
    /// An empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets at most `bytes` more be allocated.
    pub fn limit_space(&mut self, bytes: Option<u64>) {
        self.space = bytes;
    }

    /// The record, empty where there is none.
    pub fn read_record(&self) -> Vec<u8> {
        self.record.visible.clone()
    }

    /// Cuts the power: of what was not synced, a random part is lost.
    pub fn crash(&mut self, rng: &mut impl Rng) {
        for file in self.files.iter_mut().filter(|file| !file.is_synced()) {
            file.crash(rng);
            self.changes += 1;
            file.changed = self.changes;
        }
        self.record.crash(rng);
        let kept = rng.next_u64() as usize % (self.journal.len() + 1);
        for change in core::mem::take(&mut self.journal).into_iter().take(kept) {
            if matches!(change, Change::RemoveRecord) {
                self.record = File::default();
            }
            self.durable.apply(change);
        }
        self.visible = self.durable.clone();
    }

    /// Somebody else changes a byte of an unpublished file, if there is one.
    pub fn tamper(&mut self, rng: &mut impl Rng) {
        let inodes: Vec<usize> = self.unpublished().collect();
        let inode = inodes.get(rng.next_u64() as usize % inodes.len().max(1));
        let len = inode.map_or(0, |inode| self.files[*inode].visible.len());
        if let Some(inode) = inode.filter(|_| len > 0) {
            let at = rng.next_u64() as usize % len;
            let byte = self.files[*inode].visible[at] ^ 1;
            self.put(*inode, at, &[byte]);
        }
    }

    fn unpublished(&self) -> impl Iterator<Item = usize> + '_ {
        let unseen = self.visible.unseen.values().filter_map(|node| match node {
            Node::File { inode, .. } => Some(*inode),
            _ => None,
        });
        self.visible.temps.values().copied().chain(unseen)
    }

    fn put(&mut self, inode: usize, offset: usize, data: &[u8]) {
        self.changes += 1;
        self.files[inode].changed = self.changes;
        self.files[inode].write(offset, data);
    }

    fn stamp_of(&self, inode: usize) -> Stamp {
        let mut stamp = [0; 16];
        stamp[..8].copy_from_slice(&(inode as u64).to_be_bytes());
        stamp[8..].copy_from_slice(&self.files[inode].changed.to_be_bytes());
        Stamp(stamp)
    }

    /// Of an unpublished file.
    fn inode_of(&self, file: &NamedFile) -> Option<usize> {
        match &file.aside {
            None => self.visible.temps.get(&file.temp).copied(),
            Some(entry) => self.inode_of_unseen(entry.path.as_bytes()),
        }
    }

    fn inode_of_unseen(&self, path: &[u8]) -> Option<usize> {
        match self.visible.unseen.get(path)? {
            Node::File { inode, .. } => Some(*inode),
            _ => None,
        }
    }

    /// The node under `path`.
    pub fn node(&self, path: &[u8]) -> Option<&Node> {
        self.visible.nodes.get(path)
    }

    /// Contents of the file under `path`.
    pub fn contents(&self, path: &[u8]) -> Option<&[u8]> {
        match self.node(path)? {
            Node::File { inode, .. } => Some(&self.files.get(*inode)?.visible),
            _ => None,
        }
    }

    /// True if what is under `path` would be there, with the same contents, after a power cut.
    pub fn is_durable(&self, path: &[u8]) -> bool {
        let node = self.visible.nodes.get(path);
        let synced = match node {
            Some(Node::File { inode, .. }) => self.files[*inode].is_synced(),
            Some(_) => true,
            None => false,
        };
        let mut above = core::iter::successors(Some(path), |path| Some(directory_of(path)))
            .skip(1)
            .take_while(|path| !path.is_empty());
        synced
            && node == self.durable.nodes.get(path)
            && above.all(|path| self.durable.nodes.contains_key(path))
    }

    /// Every name and what is under it.
    pub fn nodes(&self) -> impl Iterator<Item = (&[u8], &Node)> {
        self.visible.nodes.iter().map(|(path, node)| (&path[..], node))
    }

    /// Number of unpublished files, and of staged directories.
    pub fn temp_count(&self) -> usize {
        self.visible.temps.len() + self.visible.asides.len()
    }

    /// Removes what is under the path, as somebody else might, at once and for ever.
    pub fn remove(&mut self, path: &[u8]) {
        self.visible.nodes.remove(path);
        self.durable.nodes.remove(path);
    }

    /// Puts a file there, as somebody else might, at once and for ever.
    pub fn plant(&mut self, entry: &Entry, data: &[u8]) {
        let inode = self.files.len();
        let (visible, durable) = (data.to_vec(), data.to_vec());
        self.files.push(File { visible, durable, ..File::default() });
        let node = Node::of_file(entry, inode);
        let path = entry.path.as_bytes();
        self.visible.nodes.insert(path.into(), node.clone());
        self.durable.nodes.insert(path.into(), node);
    }

    /// Makes directories of these paths, as somebody else might.
    pub fn intrude<'p>(&mut self, paths: impl IntoIterator<Item = &'p [u8]>) {
        for path in paths {
            let parent = path.iter().rposition(|byte| *byte == b'/').map(|slash| &path[..slash]);
            let has_parent =
                parent.is_none_or(|path| matches!(self.node(path), Some(Node::Directory { .. })));
            if has_parent && self.node(path).is_none() {
                self.change(Change::Node(path.into(), NEW_DIRECTORY));
            }
        }
    }

    /// Makes all names durable, as another program's sync might.
    pub fn sync_names(&mut self) {
        for change in core::mem::take(&mut self.journal) {
            self.durable.apply(change);
        }
    }

    fn change(&mut self, change: Change) {
        self.visible.apply(change.clone());
        self.journal.push(change);
    }

    fn allocate(&mut self, bytes: u64) -> Result<(), MemoryError> {
        if let Some(space) = &mut self.space {
            *space = space.checked_sub(bytes).ok_or(MemoryError::Full)?;
        }
        Ok(())
    }

    fn create(&mut self, temp: TempName, size: usize) -> Result<usize, MemoryError> {
        self.allocate(size as u64)?;
        let inode = self.files.len();
        let mut file = File::default();
        if size > 0 {
            self.changes += 1;
            (file.visible, file.made, file.changed) = (vec![0; size], Some(size), self.changes);
        }
        self.files.push(file);
        self.change(Change::Temp(temp, inode));
        Ok(inode)
    }

    fn check_parent(&self, entry: &Entry) -> Result<(), MemoryError> {
        match parent(entry).map(|parent| (self.node(parent), parent)) {
            None | Some((Some(Node::Directory { .. }), _)) => Ok(()),
            Some((_, parent)) if self.visible.asides.contains(parent) => Ok(()),
            Some(_) => Err(MemoryError::Missing),
        }
    }

    fn check_parent_seen(&self, entry: &Entry) -> Result<(), MemoryError> {
        match parent(entry).map(|parent| self.node(parent)) {
            None | Some(Some(Node::Directory { .. })) => Ok(()),
            Some(_) => Err(MemoryError::Missing),
        }
    }

    fn is(&self, node: Option<&Node>, entry: &Entry) -> bool {
        match node {
            Some(Node::File { modified, inode, .. }) => {
                *modified == entry.modified && self.files[*inode].visible.len() as u64 == entry.size
            }
            _ => false,
        }
    }

    /// The groups of a file that are equal under its name.
    pub(super) fn equal_groups(&self, compared: &ComparedFile) -> Vec<(u32, ChainingValue)> {
        let entry = &compared.file.entry;
        let contents = self.contents(entry.path.as_bytes()).unwrap_or_default();
        // Of the whole file, with its holes.
        let mut whole = Entry::clone(entry);
        whole.attributes.data = None;
        let is_equal = |group: &&(u32, ChainingValue)| has_group(contents, &whole, group);
        compared.groups.iter().filter(is_equal).copied().collect()
    }

    /// False if the entry is all holes, and the file that has its name is not.
    pub(super) fn may_be_all_holes(&self, entry: &Entry) -> bool {
        let contents = self.contents(entry.path.as_bytes()).unwrap_or_default();
        entry.data_len() > 0 || contents.iter().all(|byte| *byte == 0)
    }

    /// The file that has the entry's name, with the entry's attributes.
    pub(super) fn mended(&self, entry: &Entry) -> Option<Node> {
        match self.node(entry.path.as_bytes())? {
            Node::File { inode, .. } => Some(Node::of_file(entry, *inode)),
            _ => None,
        }
    }

    /// Compares what has the entry's name; it has to be mended where its attributes are others.
    pub(super) fn compared(&self, existing: &ExistingEntry) -> Compared {
        let ExistingEntry { entry, stays, newer_stays, .. } = existing;
        let compared = self.compared_itself(entry, *stays);
        let is_other = match compared {
            Compared::Newer { .. } => !newer_stays,
            Compared::Other { .. } | Compared::Missing => true,
            _ => false,
        };
        let is_it = |path: &&EntryPath| self.is(self.node(path.as_bytes()), entry);
        let other = entry.other_names().iter().find(is_it).filter(|_| *stays && is_other);
        other.map_or(compared, |other| Compared::Elsewhere(other.clone()))
    }

    fn compared_itself(&self, entry: &Entry, stays: bool) -> Compared {
        let node = self.node(entry.path.as_bytes());
        let Some(&Node::File { modified, inode, .. }) = node else {
            return Compared::Other { same_size: false };
        };
        let same_size = self.files[inode].visible.len() as u64 == entry.size;
        if modified > entry.modified {
            return Compared::Newer { same_size };
        }
        if !self.is(node, entry) {
            return Compared::Other { same_size };
        }
        match stays && node != self.mended(entry).as_ref() {
            true => Compared::Mended,
            false => Compared::Unchanged,
        }
    }

    /// The same file or link has both names.
    pub(super) fn is_one(&self, one: &[u8], other: &[u8]) -> bool {
        match (self.node(one), self.node(other)) {
            (Some(Node::File { inode: one, .. }), Some(Node::File { inode: other, .. })) => {
                one == other
            }
            (one, other) => one.is_some() && one == other,
        }
    }

    /// Names in a directory that were not announced.
    pub(super) fn others(
        &self,
        directory: &NamedEntry,
        announced: &AnnouncedPaths,
    ) -> Vec<Box<[u8]>> {
        let within = directory.entry.path.as_bytes();
        let is_other = |path: &[u8]| {
            !path.is_empty() && directory_of(path) == within && !announced.contains(path)
        };
        self.visible.nodes.keys().filter(|path| is_other(path)).cloned().collect()
    }

    /// Puts a node under the name of the entry; false if it was there.
    fn set(&mut self, entry: &Entry, node: Node) -> bool {
        let path = entry.path.as_bytes();
        let is_new = self.node(path) != Some(&node);
        if is_new {
            self.change(Change::Node(path.into(), node));
        }
        is_new
    }
}

impl Storage for MemoryStorage {
    type Error = MemoryError;
    type Failure = Infallible;

    fn make_directory(&mut self, directory: &NamedEntry) -> Result<Made, MemoryError> {
        let entry = &directory.entry;
        self.check_parent(entry)?;
        let path = entry.path.as_bytes();
        match self.node(path) {
            Some(Node::Directory { .. }) => return Ok(Made::InPlace),
            Some(_) => return Err(MemoryError::Exists),
            None => {}
        }
        // What an earlier run has left is a store to take files from, as long as they can be named.
        if self.visible.asides.contains(path) {
            if self.check_parent_seen(entry).is_ok() {
                self.change(Change::Node(path.into(), NEW_DIRECTORY));
                return Ok(Made::InPlace);
            }
            self.change(Change::RemoveAside(path.into()));
        }
        self.change(Change::Aside(path.into()));
        Ok(Made::Aside)
    }

    fn prepare(
        &mut self,
        entry: &Entry,
        temp: TempName,
        existing: Existing,
    ) -> Result<Prepared, MemoryError> {
        self.check_parent(entry)?;
        let size = entry.size as usize;
        if existing == Existing::Nothing {
            self.create(temp, size)?;
            return Ok(Prepared::Ready);
        }
        match self.visible.temps.get(&temp) {
            Some(&inode) if self.files[inode].visible.len() == size => match existing {
                Existing::Part(Some(stamp)) | Existing::Whole(Some(stamp))
                    if stamp == self.stamp_of(inode) =>
                {
                    Ok(Prepared::Ready)
                }
                _ => {
                    let data = entry.attributes.data.as_ref();
                    for hole in data.into_iter().flat_map(|data| data.holes(entry.size)) {
                        let zeros = vec![0; (hole.end - hole.start) as usize];
                        self.put(inode, hole.start as usize, &zeros);
                    }
                    Ok(Prepared::Altered)
                }
            },
            _ if matches!(existing, Existing::Whole(_))
                && self.is(self.node(entry.path.as_bytes()), entry) =>
            {
                Ok(Prepared::Published)
            }
            _ => Ok(Prepared::Missing),
        }
    }

    fn recheck(
        &mut self,
        entry: &Entry,
        temp: TempName,
        groups: &[(u32, ChainingValue)],
    ) -> Vec<u32> {
        let inode = self.visible.temps.get(&temp);
        let contents = inode.map_or(&[][..], |inode| &self.files[*inode].visible);
        let is_wrong = |group: &&(u32, ChainingValue)| !has_group(contents, entry, group);
        groups.iter().filter(is_wrong).map(|(group, _)| *group).collect()
    }

    fn take_over(&mut self, entry: &Entry, temp: TempName, groups: &[(u32, ChainingValue)]) {
        let Some(&Node::File { inode: old, .. }) = self.node(entry.path.as_bytes()) else { return };
        let Some(inode) = self.visible.temps.get(&temp).copied() else { return };
        for (group, _) in groups {
            let range = range_of(entry, *group);
            if let Some(data) = self.files[old].visible.get(range.clone()).map(<[u8]>::to_vec) {
                self.put(inode, range.start, &data);
            }
        }
    }

    fn compare_contents(&mut self, compared: &ComparedFile) -> Vec<(u32, ChainingValue)> {
        self.equal_groups(compared)
    }

    fn mend(&mut self, entry: &Entry) -> Option<EntryCode> {
        let mended = self.mended(entry).filter(|_| self.may_be_all_holes(entry))?;
        Some(match self.set(entry, mended) {
            true => EntryCode::Mended,
            false => EntryCode::Unchanged,
        })
    }

    fn compare(&mut self, existing: &ExistingEntry) -> Compared {
        let compared = self.compared(existing);
        if compared == Compared::Mended
            && let Some(mended) = self.mended(&existing.entry)
        {
            self.set(&existing.entry, mended);
        }
        compared
    }

    fn check_published(&mut self, file: &RecordedFile) -> Checked {
        let entry = &*file.entry;
        let path = entry.path.as_bytes();
        if self.is(self.node(path), entry) {
            return Checked::There;
        }
        let stamp = self.inode_of_unseen(path).map(|inode| self.stamp_of(inode));
        let is_unseen = stamp.is_some() && stamp == file.stamp;
        if !is_unseen || self.node(path).is_some() || self.check_parent_seen(entry).is_err() {
            return Checked::Missing;
        }
        self.change(Change::Seen(path.into()));
        Checked::There
    }

    fn write(&mut self, piece: &WritePiece, data: &[u8]) -> Result<(), MemoryError> {
        let WritePiece { entry, temp, file_offset: offset, .. } = piece;
        self.check_parent(entry)?;
        if piece.aside {
            self.allocate(data.len() as u64)?;
            let inode = self.files.len();
            self.files.push(File::default());
            self.put(inode, 0, data);
            let node = Node::of_file(entry, inode);
            self.change(Change::Unseen(entry.path.as_bytes().into(), node));
            return Ok(());
        }
        let inode = match self.visible.temps.get(temp) {
            Some(inode) => *inode,
            None => self.create(*temp, 0)?,
        };
        let end = *offset as usize + data.len();
        let more = end.saturating_sub(self.files[inode].visible.len());
        self.allocate(more as u64)?;
        self.put(inode, *offset as usize, data);
        Ok(())
    }

    fn place_directory(&mut self, directory: &FilledDirectory) -> bool {
        let path = directory.entry.path.as_bytes();
        for spoiled in &directory.spoiled {
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            self.change(Change::RemoveUnseen([path, slash, spoiled].concat().into()));
        }
        if self.check_parent_seen(&directory.entry).is_err() || self.node(path).is_some() {
            return false;
        }
        self.change(Change::Place(path.into()));
        true
    }

    fn publish(&mut self, file: &Publication) -> Result<(), MemoryError> {
        let Publication { entry, temp, .. } = file;
        self.check_parent_seen(entry)?;
        let path = entry.path.as_bytes();
        if matches!(self.node(path), Some(Node::Directory { .. })) {
            return Err(MemoryError::Exists);
        }
        if let Some(first) = &file.first {
            let node = self.node(first.path.as_bytes()).cloned().ok_or(MemoryError::Missing)?;
            let is_it = match (&node, &entry.kind) {
                (Node::File { .. }, EntryKind::File) => self.is(Some(&node), entry),
                (Node::Link { .. }, EntryKind::Link { .. }) => true,
                _ => false,
            };
            if !is_it {
                return Err(MemoryError::Missing);
            }
            if self.is_one(path, first.path.as_bytes()) {
                self.set(entry, node);
                return Err(MemoryError::Unchanged);
            }
            self.change(Change::Publish(path.into(), node, *temp));
            return Ok(());
        }
        if file.aside {
            if !self.visible.unseen.contains_key(path) {
                return Err(MemoryError::Missing);
            }
            self.change(Change::Seen(path.into()));
            return Ok(());
        }
        let node = match &entry.kind {
            EntryKind::Link { target } => Node::Link { target: target[..].into() },
            _ => {
                let inode = match self.visible.temps.get(temp) {
                    // Also in the place of what a power cut has left of an earlier publication.
                    _ if entry.data_len() == 0 => {
                        let inode = self.create(*temp, entry.size as usize)?;
                        self.files[inode].sync();
                        inode
                    }
                    Some(inode) => *inode,
                    None => return Err(MemoryError::Missing),
                };
                Node::of_file(entry, inode)
            }
        };
        self.change(Change::Publish(path.into(), node, *temp));
        Ok(())
    }

    fn finish_directory(&mut self, directory: &NamedEntry) -> Result<(), MemoryError> {
        let entry = &directory.entry;
        let was = self.node(entry.path.as_bytes()).cloned();
        self.set(entry, Node::of_directory(entry));
        match was {
            Some(was) if was != NEW_DIRECTORY => Err(match was.lacks_attributes(entry) {
                true => MemoryError::Mended,
                false => MemoryError::Unchanged,
            }),
            _ => Ok(()),
        }
    }

    fn end(&mut self, _: bool) {}

    /// Nothing is replaced but files and links.
    fn take_cleared(&mut self) -> Vec<Deletion> {
        Vec::new()
    }

    fn delete_others(
        &mut self,
        directory: &NamedEntry,
        announced: &AnnouncedPaths,
    ) -> Vec<Deletion> {
        let mut deleted = Vec::new();
        for other in self.others(directory, announced) {
            let is_below = |path: &[u8]| {
                path.strip_prefix(&*other).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
            };
            let all: Vec<Box<[u8]>> =
                self.visible.nodes.keys().filter(|path| is_below(path)).cloned().collect();
            all.into_iter().rev().for_each(|path| self.change(Change::Remove(path)));
            deleted.push(Deletion { path: other.into_vec(), result: Ok(()) });
        }
        deleted
    }

    fn sync(&mut self, checkpoint: &Checkpoint) -> Result<(), Infallible> {
        for file in &checkpoint.files {
            if let Some(inode) = self.inode_of(file) {
                self.files[inode].sync();
            }
        }
        let mut synced = BTreeSet::new();
        for named in &checkpoint.names {
            let path = named.path();
            synced.insert(directory_of(&path).to_vec());
            if named.is_directory() {
                synced.insert(path.into_owned());
            }
        }
        for change in core::mem::take(&mut self.journal) {
            match change.name().is_none_or(|path| synced.contains(directory_of(path))) {
                true => self.durable.apply(change),
                false => self.journal.push(change),
            }
        }
        Ok(())
    }

    fn stamps(&mut self, files: &[NamedFile], _: bool) -> Vec<Option<Stamp>> {
        let stamp = |file| self.inode_of(file).map(|inode| self.stamp_of(inode));
        files.iter().map(stamp).collect()
    }

    fn append_record(&mut self, offset: u64, bytes: &[u8], sync: bool) -> Result<(), Infallible> {
        self.record.write(offset as usize, bytes);
        if sync {
            self.record.sync();
        }
        Ok(())
    }

    fn remove_record(&mut self) -> Result<(), Infallible> {
        self.record.visible.clear();
        self.change(Change::RemoveRecord);
        let temps: Vec<TempName> = self.visible.temps.keys().copied().collect();
        temps.into_iter().for_each(|temp| self.discard(temp));
        let asides = self.visible.asides.clone();
        asides.into_iter().for_each(|path| self.change(Change::RemoveAside(path)));
        Ok(())
    }

    fn discard(&mut self, temp: TempName) {
        self.change(Change::Discard(temp));
    }
}

impl Change {
    /// The name outside of the hidden directory that it is about.
    fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Node(path, _)
            | Self::Remove(path)
            | Self::Publish(path, ..)
            | Self::Seen(path)
            | Self::Place(path) => Some(path),
            _ => None,
        }
    }
}

/// Bytes of a group within the file.
fn range_of(entry: &Entry, group: u32) -> core::ops::Range<usize> {
    let start = (u64::from(group) * GROUP_SIZE) as usize;
    start..start + group_len(entry.size, group) as usize
}

/// True if the group of these contents has this chaining value.
fn has_group(contents: &[u8], entry: &Entry, (group, value): &(u32, ChainingValue)) -> bool {
    let len = group_len(entry.data_len(), *group);
    let mut data = Vec::new();
    for part in entry.parts(u64::from(*group) * GROUP_SIZE, u64::from(len)) {
        let part = part.start as usize..part.end as usize;
        data.extend_from_slice(contents.get(part).unwrap_or_default());
    }
    let only = group_count(entry.data_len()) == 1;
    data.len() == len as usize && group_chaining_value(&data, *group, only) == *value
}

/// The directory that a path is in; the empty path is at the top.
fn directory_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or(&path[..0], |slash| &path[..slash])
}

impl Names {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Temp(temp, inode) => drop(self.temps.insert(temp, inode)),
            Change::Discard(temp) => drop(self.temps.remove(&temp)),
            Change::Node(path, node) => drop(self.nodes.insert(path, node)),
            Change::Remove(path) => drop(self.nodes.remove(&path)),
            Change::Publish(path, node, temp) => {
                self.temps.remove(&temp);
                self.nodes.insert(path, node);
            }
            Change::Aside(path) => drop(self.asides.insert(path)),
            Change::Unseen(path, node) => drop(self.unseen.insert(path, node)),
            Change::RemoveUnseen(path) => drop(self.unseen.remove(&path)),
            Change::Seen(path) => {
                if let Some(node) = self.unseen.remove(&path) {
                    self.nodes.insert(path, node);
                }
            }
            Change::Place(path) => {
                self.asides.remove(&path);
                for (file, node) in self.take_unseen(&path) {
                    self.nodes.insert(file, node);
                }
                self.nodes.insert(path, NEW_DIRECTORY);
            }
            Change::RemoveAside(path) => {
                self.asides.remove(&path);
                drop(self.take_unseen(&path));
            }
            Change::RemoveRecord => {}
        }
    }

    /// The files of a staged directory.
    fn take_unseen(&mut self, directory: &[u8]) -> Vec<(Box<[u8]>, Node)> {
        self.unseen.extract_if(.., |path, _| directory_of(path) == directory).collect()
    }
}

impl File {
    fn write(&mut self, offset: usize, data: &[u8]) {
        put(&mut self.visible, offset, data);
        self.writes.push((offset, data.to_vec()));
    }

    fn is_synced(&self) -> bool {
        self.made.is_none() && self.writes.is_empty()
    }

    fn sync(&mut self) {
        if let Some(size) = self.made.take() {
            self.durable = vec![0; size];
        }
        for (offset, data) in core::mem::take(&mut self.writes) {
            put(&mut self.durable, offset, &data);
        }
    }

    fn crash(&mut self, rng: &mut impl Rng) {
        let mut kept = |len: usize| match rng.next_u64() % 4 {
            0 => 0,
            1 => rng.next_u64() as usize % (len + 1),
            _ => len,
        };
        if let Some(size) = self.made.take() {
            self.durable = vec![0; kept(size)];
        }
        for (offset, data) in core::mem::take(&mut self.writes) {
            put(&mut self.durable, offset, &data[..kept(data.len())]);
        }
        self.visible.clone_from(&self.durable);
    }
}

/// State of a new directory until it is finished.
const NEW_DIRECTORY: Node = Node::Directory { mode: 0o700, modified: 0, metadata: None };

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}
