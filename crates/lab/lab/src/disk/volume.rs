//! A tree of files in memory, as a disk would hold it. Knows nothing of time.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::{Duration, SystemTime};

use fuser::{Errno, FileAttr, FileType, INodeNo};

/// Folders, files and symbolic links, and what still fits.
#[derive(Debug)]
pub(super) struct Volume {
    nodes: HashMap<INodeNo, Node>,
    /// The number given last.
    last: u64,
    used: u64,
    capacity: u64,
}

#[derive(Debug)]
struct Node {
    attr: FileAttr,
    contents: Contents,
    /// Answers from which the kernel knows it: it may come back to it, even when no name is left.
    known: u64,
}

/// Contents of a node.
#[derive(Debug)]
pub(super) enum Contents {
    File(Vec<u8>),
    Folder(BTreeMap<OsString, INodeNo>),
    Link(Vec<u8>),
}

/// Owner of a node, and its permissions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub user: u32,
    pub group: u32,
    pub permissions: u16,
}

type Result<T> = std::result::Result<T, Errno>;

impl Volume {
    /// An empty one for so many bytes of files.
    pub fn new(capacity: u64, owner: Owner) -> Self {
        let root = node(INodeNo::ROOT, Contents::Folder(BTreeMap::new()), owner);
        let nodes = HashMap::from([(INodeNo::ROOT, Node { known: 1, ..root })]);
        Self { nodes, last: INodeNo::ROOT.0, used: 0, capacity }
    }

    /// Bytes that files may have in all, bytes that are free, and nodes.
    pub fn room(&self) -> (u64, u64, u64) {
        (self.capacity, self.capacity - self.used, self.nodes.len() as u64)
    }

    pub fn attr(&self, node: INodeNo) -> Result<FileAttr> {
        Ok(self.node(node)?.attr)
    }

    pub fn attr_mut(&mut self, node: INodeNo) -> Result<&mut FileAttr> {
        let attr = &mut self.nodes.get_mut(&node).ok_or(Errno::ENOENT)?.attr;
        attr.ctime = SystemTime::now();
        Ok(attr)
    }

    /// The node of that name, which the kernel then knows.
    pub fn look_up(&mut self, folder: INodeNo, name: &OsStr) -> Result<FileAttr> {
        let node = self.named(folder, name)?;
        self.answer(node)
    }

    /// The kernel knows `node` from `times` fewer answers.
    pub fn forget(&mut self, node: INodeNo, times: u64) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.known = node.known.saturating_sub(times);
        }
        self.discard_if_gone(node);
    }

    /// Makes something new.
    pub fn make(
        &mut self,
        folder: INodeNo,
        name: &OsStr,
        contents: Contents,
        owner: Owner,
    ) -> Result<FileAttr> {
        let next = INodeNo(self.last + 1);
        self.put(folder, name, next)?;
        self.last = next.0;
        self.nodes.insert(next, node(next, contents, owner));
        self.answer(next)
    }

    /// Gives a file another name.
    pub fn link(&mut self, file: INodeNo, folder: INodeNo, name: &OsStr) -> Result<FileAttr> {
        self.node(file)?;
        self.put(folder, name, file)?;
        self.attr_mut(file)?.nlink += 1;
        self.answer(file)
    }

    /// Takes a name away, of a folder or of anything else.
    pub fn remove(&mut self, parent: INodeNo, name: &OsStr, folder: bool) -> Result<()> {
        let node = self.named(parent, name)?;
        match &self.node(node)?.contents {
            Contents::Folder(_) if !folder => return Err(Errno::EISDIR),
            Contents::Folder(names) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
            Contents::Folder(_) => {}
            _ if folder => return Err(Errno::ENOTDIR),
            _ => {}
        }
        self.names(parent)?.remove(name);
        self.unlinked(node)
    }

    /// Moves a name; what had the new one loses it, if it may be replaced.
    pub fn rename(
        &mut self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        replace: bool,
    ) -> Result<()> {
        let moved = self.named(from.0, from.1)?;
        if let Ok(there) = self.named(to.0, to.1) {
            if !replace {
                return Err(Errno::EEXIST);
            }
            if there == moved {
                return Ok(());
            }
            let folder = matches!(self.node(moved)?.contents, Contents::Folder(_));
            self.remove(to.0, to.1, folder)?;
        }
        self.put(to.0, to.1, moved)?;
        self.names(from.0)?.remove(from.1);
        self.attr_mut(moved)?;
        Ok(())
    }

    /// The names in a folder, sorted.
    pub fn list(&self, folder: INodeNo) -> Result<Vec<(INodeNo, FileType, OsString)>> {
        let Contents::Folder(names) = &self.node(folder)?.contents else {
            return Err(Errno::ENOTDIR);
        };
        let one = |(name, node): (&OsString, &INodeNo)| {
            Ok((*node, self.node(*node)?.attr.kind, name.clone()))
        };
        names.iter().map(one).collect()
    }

    /// Where a symbolic link leads.
    pub fn target(&self, link: INodeNo) -> Result<&[u8]> {
        match &self.node(link)?.contents {
            Contents::Link(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Up to `len` bytes of a file.
    pub fn read(&self, file: INodeNo, offset: u64, len: u64) -> Result<&[u8]> {
        let Contents::File(bytes) = &self.node(file)?.contents else { return Err(Errno::EISDIR) };
        let end = offset.saturating_add(len).min(bytes.len() as u64);
        Ok(&bytes[offset.min(end) as usize..end as usize])
    }

    /// Writes all of `data`, or says that the disk is full.
    pub fn write(&mut self, file: INodeNo, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if end > self.attr(file)?.size {
            self.resize(file, end)?;
        }
        let bytes = self.bytes(file)?;
        bytes[offset as usize..end as usize].copy_from_slice(data);
        self.attr_mut(file)?.mtime = SystemTime::now();
        Ok(())
    }

    /// Makes a file longer, by zeros, or shorter.
    pub fn resize(&mut self, file: INodeNo, size: u64) -> Result<()> {
        let used = self.used - self.attr(file)?.size;
        if size > self.capacity - used {
            return Err(Errno::ENOSPC);
        }
        self.bytes(file)?.resize(size as usize, 0);
        self.used = used + size;
        let attr = self.attr_mut(file)?;
        (attr.size, attr.blocks, attr.mtime) = (size, size.div_ceil(512), SystemTime::now());
        Ok(())
    }

    fn node(&self, node: INodeNo) -> Result<&Node> {
        self.nodes.get(&node).ok_or(Errno::ENOENT)
    }

    fn bytes(&mut self, file: INodeNo) -> Result<&mut Vec<u8>> {
        match self.nodes.get_mut(&file).map(|node| &mut node.contents) {
            Some(Contents::File(bytes)) => Ok(bytes),
            Some(_) => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn named(&self, folder: INodeNo, name: &OsStr) -> Result<INodeNo> {
        match &self.node(folder)?.contents {
            Contents::Folder(names) => names.get(name).copied().ok_or(Errno::ENOENT),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn names(&mut self, folder: INodeNo) -> Result<&mut BTreeMap<OsString, INodeNo>> {
        self.attr_mut(folder)?.mtime = SystemTime::now();
        match self.nodes.get_mut(&folder).map(|node| &mut node.contents) {
            Some(Contents::Folder(names)) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn put(&mut self, folder: INodeNo, name: &OsStr, node: INodeNo) -> Result<()> {
        let names = self.names(folder)?;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), node);
        Ok(())
    }

    fn answer(&mut self, node: INodeNo) -> Result<FileAttr> {
        let node = self.nodes.get_mut(&node).ok_or(Errno::ENOENT)?;
        node.known += 1;
        Ok(node.attr)
    }

    fn unlinked(&mut self, node: INodeNo) -> Result<()> {
        self.attr_mut(node)?.nlink -= 1;
        self.discard_if_gone(node);
        Ok(())
    }

    fn discard_if_gone(&mut self, number: INodeNo) {
        let gone = |node: &Node| node.attr.nlink == 0 && node.known == 0;
        if self.nodes.get(&number).is_some_and(gone)
            && let Some(node) = self.nodes.remove(&number)
        {
            self.used -= node.attr.size;
        }
    }
}

fn node(number: INodeNo, contents: Contents, owner: Owner) -> Node {
    let now = SystemTime::now();
    let kind = match &contents {
        Contents::File(_) => FileType::RegularFile,
        Contents::Folder(_) => FileType::Directory,
        Contents::Link(_) => FileType::Symlink,
    };
    let attr = FileAttr {
        ino: number,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm: owner.permissions,
        nlink: 1,
        uid: owner.user,
        gid: owner.group,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    };
    Node { attr, contents, known: 0 }
}

/// Bytes that programs are advised to read and write at once.
const BLOCK: u32 = 128 << 10;
/// Time for which the kernel may keep an answer: it alone changes the volume.
pub(super) const VALID: Duration = Duration::from_secs(60);
