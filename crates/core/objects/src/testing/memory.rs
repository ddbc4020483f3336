use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use longhaul_wire::{Entry, EntryKind};
use rand_core::Rng;

use crate::entry::parent;
use crate::storage::Storage;
use crate::{Checkpoint, Existing, Prepared, TempName};

/// Files in memory, of which a power cut loses what was not synced.
///
/// The model of the file system: writes are kept, lost or torn one by one until the file is
/// synced; names change in order, as with a journal, and a cut loses the end of that order.
/// What is visible before a cut is everything that was done.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    files: Vec<File>,
    visible: Names,
    durable: Names,
    /// What changed from `durable` to `visible`.
    journal: Vec<Change>,
    record: File,
    /// Bytes that can still be allocated; `None` for no limit.
    space: Option<u64>,
}

/// What is under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory {
        /// Permission bits.
        mode: u16,
        /// Modification time.
        modified: i64,
    },
    /// A file.
    File {
        /// Permission bits.
        mode: u16,
        /// Modification time.
        modified: i64,
        /// Number of the contents; see [`MemoryStorage::contents`].
        inode: usize,
    },
    /// A symbolic link.
    Link {
        /// Its target.
        target: Box<[u8]>,
    },
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
}

#[derive(Clone, Debug, Default)]
struct Names {
    temps: BTreeMap<TempName, usize>,
    nodes: BTreeMap<Box<[u8]>, Node>,
}

#[derive(Clone, Debug)]
enum Change {
    Temp(TempName, usize),
    Discard(TempName),
    Node(Box<[u8]>, Node),
    Publish(Box<[u8]>, Node, TempName),
    RemoveRecord,
}

#[derive(Clone, Debug, Default)]
struct File {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// Writes from `durable` to `visible`.
    writes: Vec<(usize, Vec<u8>)>,
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

    /// Cuts the power: of what was not synced, a random part is lost.
    pub fn crash(&mut self, rng: &mut impl Rng) {
        for file in &mut self.files {
            file.crash(rng);
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

    /// What is under `path`.
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

    /// Whether what is under `path` would be there, with the same contents, after a power cut.
    pub fn is_durable(&self, path: &[u8]) -> bool {
        let node = self.visible.nodes.get(path);
        let synced = match node {
            Some(Node::File { inode, .. }) => self.files[*inode].writes.is_empty(),
            Some(_) => true,
            None => false,
        };
        synced && node == self.durable.nodes.get(path)
    }

    /// Every name and what is under it.
    pub fn nodes(&self) -> impl Iterator<Item = (&[u8], &Node)> {
        self.visible.nodes.iter().map(|(path, node)| (&path[..], node))
    }

    /// Number of unpublished files.
    pub fn temp_count(&self) -> usize {
        self.visible.temps.len()
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
        let mut file = File::default();
        if size > 0 {
            file.write(0, &vec![0; size]);
        }
        self.files.push(file);
        let inode = self.files.len() - 1;
        self.change(Change::Temp(temp, inode));
        Ok(inode)
    }

    fn check_parent(&self, entry: &Entry) -> Result<(), MemoryError> {
        match parent(entry).map(|parent| self.node(parent)) {
            None | Some(Some(Node::Directory { .. })) => Ok(()),
            Some(_) => Err(MemoryError::Missing),
        }
    }
}

impl Storage for MemoryStorage {
    type Error = MemoryError;

    fn make_directory(&mut self, entry: &Entry) -> Result<(), MemoryError> {
        self.check_parent(entry)?;
        match self.node(entry.path.as_bytes()) {
            Some(Node::Directory { .. }) => Ok(()),
            Some(_) => Err(MemoryError::Exists),
            None => {
                let node = Node::Directory { mode: 0o700, modified: 0 };
                self.change(Change::Node(entry.path.as_bytes().into(), node));
                Ok(())
            }
        }
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
            Some(inode) if self.files[*inode].visible.len() == size => Ok(Prepared::Ready),
            _ if existing == Existing::Whole && self.is_published(entry) => Ok(Prepared::Published),
            _ => Ok(Prepared::Missing),
        }
    }

    fn is_published(&self, entry: &Entry) -> bool {
        match self.node(entry.path.as_bytes()) {
            Some(Node::File { modified, inode, .. }) => {
                *modified == entry.modified && self.files[*inode].visible.len() as u64 == entry.size
            }
            _ => false,
        }
    }

    fn write(
        &mut self,
        entry: &Entry,
        temp: TempName,
        offset: u64,
        data: &[u8],
    ) -> Result<(), MemoryError> {
        self.check_parent(entry)?;
        let inode = match self.visible.temps.get(&temp) {
            Some(inode) => *inode,
            None => self.create(temp, 0)?,
        };
        let end = offset as usize + data.len();
        let more = end.saturating_sub(self.files[inode].visible.len());
        self.allocate(more as u64)?;
        self.files[inode].write(offset as usize, data);
        Ok(())
    }

    fn publish(&mut self, entry: &Entry, temp: TempName) -> Result<(), MemoryError> {
        self.check_parent(entry)?;
        if matches!(self.node(entry.path.as_bytes()), Some(Node::Directory { .. })) {
            return Err(MemoryError::Exists);
        }
        let node = match &entry.kind {
            EntryKind::Link { target } => Node::Link { target: target[..].into() },
            _ => {
                let inode = match self.visible.temps.get(&temp) {
                    Some(inode) => *inode,
                    None if entry.size == 0 => self.create(temp, 0)?,
                    None => return Err(MemoryError::Missing),
                };
                Node::File { mode: entry.mode, modified: entry.modified, inode }
            }
        };
        self.change(Change::Publish(entry.path.as_bytes().into(), node, temp));
        Ok(())
    }

    fn finish_directory(&mut self, entry: &Entry) -> Result<(), MemoryError> {
        let node = Node::Directory { mode: entry.mode, modified: entry.modified };
        self.change(Change::Node(entry.path.as_bytes().into(), node));
        Ok(())
    }

    fn sync(&mut self, checkpoint: &Checkpoint) -> Result<(), MemoryError> {
        for file in &checkpoint.files {
            if let Some(inode) = self.visible.temps.get(&file.temp) {
                self.files[*inode].sync();
            }
        }
        for change in core::mem::take(&mut self.journal) {
            self.durable.apply(change);
        }
        Ok(())
    }

    fn append_record(&mut self, offset: u64, bytes: &[u8], sync: bool) -> Result<(), MemoryError> {
        self.record.write(offset as usize, bytes);
        if sync {
            self.record.sync();
        }
        Ok(())
    }

    fn read_record(&self) -> Vec<u8> {
        self.record.visible.clone()
    }

    fn remove_record(&mut self) -> Result<(), MemoryError> {
        self.record.visible.clear();
        self.change(Change::RemoveRecord);
        let temps: Vec<TempName> = self.visible.temps.keys().copied().collect();
        temps.into_iter().for_each(|temp| self.discard(temp));
        Ok(())
    }

    fn discard(&mut self, temp: TempName) {
        self.change(Change::Discard(temp));
    }
}

impl Names {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Temp(temp, inode) => drop(self.temps.insert(temp, inode)),
            Change::Discard(temp) => drop(self.temps.remove(&temp)),
            Change::Node(path, node) => drop(self.nodes.insert(path, node)),
            Change::Publish(path, node, temp) => {
                self.temps.remove(&temp);
                self.nodes.insert(path, node);
            }
            Change::RemoveRecord => {}
        }
    }
}

impl File {
    fn write(&mut self, offset: usize, data: &[u8]) {
        put(&mut self.visible, offset, data);
        self.writes.push((offset, data.to_vec()));
    }

    fn sync(&mut self) {
        for (offset, data) in core::mem::take(&mut self.writes) {
            put(&mut self.durable, offset, &data);
        }
    }

    fn crash(&mut self, rng: &mut impl Rng) {
        for (offset, data) in core::mem::take(&mut self.writes) {
            let kept = match rng.next_u64() % 4 {
                0 => 0,
                1 => rng.next_u64() as usize % (data.len() + 1),
                _ => data.len(),
            };
            put(&mut self.durable, offset, &data[..kept]);
        }
        self.visible.clone_from(&self.durable);
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}
