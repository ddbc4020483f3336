use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use longhaul_wire::EntryKind;

use crate::entry::{EntryId, PathKey};

/// Every path that was announced, and of what. Copies of it share one tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedPaths(Arc<BTreeMap<PathKey, Node>>);

/// A kind of thing that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A file, or what stands for something that cannot be had.
    File,
}

/// Something that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// With its number.
    Directory(EntryId),
    Link,
    File,
}

impl AnnouncedPaths {
    /// True if an entry has this path.
    pub fn contains(&self, path: &[u8]) -> bool {
        self.get(&PathKey::of(path)).is_some()
    }

    /// The kind of the entry that has this path.
    pub(crate) fn kind(&self, path: &[u8]) -> Option<Announced> {
        Some(match self.get(&PathKey::of(path))? {
            Node::Directory(_) => Announced::Directory,
            Node::Link => Announced::Link,
            Node::File => Announced::File,
        })
    }

    /// True if an entry has this path, or one that is no directory that of a directory above.
    pub(crate) fn settle(&self, path: &[u8]) -> bool {
        let is_leaf = |path| self.kind(path).is_some_and(|kind| kind != Announced::Directory);
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        self.contains(path) || ends.into_iter().any(|(end, _)| is_leaf(&path[..end]))
    }

    /// The thing that has the path.
    pub(crate) fn get(&self, key: &PathKey) -> Option<Node> {
        self.0.get(key).copied()
    }

    /// More are announced. Nobody has a copy before all are.
    pub(crate) fn extend(&mut self, more: BTreeMap<PathKey, Node>) {
        Arc::make_mut(&mut self.0).extend(more);
    }
}

impl Node {
    /// Of an entry of this number and kind.
    pub(crate) fn of(id: EntryId, kind: &EntryKind) -> Self {
        match kind {
            EntryKind::Directory => Self::Directory(id),
            EntryKind::Link { .. } => Self::Link,
            EntryKind::File => Self::File,
        }
    }

    /// The number of a directory.
    pub(crate) fn directory(self) -> Option<EntryId> {
        match self {
            Self::Directory(id) => Some(id),
            Self::Link | Self::File => None,
        }
    }
}
