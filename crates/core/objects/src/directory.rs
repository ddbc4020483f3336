//! Directories as both ends keep them until the end of a copy.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_wire::{Attributes, Entry, EntryKind, EntryPath, Metadata};

use crate::entry::metadata_cost;
use crate::limits::DIRECTORY_COST;

/// A directory: its own name, and what holds it. So long paths cost no more than short ones.
#[derive(Debug, PartialEq, Eq)]
pub struct Directory {
    within: Option<Arc<Self>>,
    /// Below that.
    name: Box<[u8]>,
    mode: u16,
    modified: i64,
    metadata: Option<Box<Metadata>>,
    /// Bytes that it took in the manifest.
    metadata_len: usize,
}

impl Directory {
    /// That of `entry`, which is in `within`; where that is not known it keeps its whole path.
    pub(crate) fn new(entry: &Entry, within: Option<Arc<Self>>) -> Arc<Self> {
        let path = entry.path.as_bytes();
        let name = match &within {
            Some(within) => path.get(within.end()..).unwrap_or_default(),
            None => path,
        };
        let (mode, modified) = (entry.mode, entry.modified);
        let metadata_len = entry.attributes.metadata_len();
        let metadata = entry.attributes.metadata.clone();
        Arc::new(Self { name: name.into(), mode, modified, metadata, metadata_len, within })
    }

    /// Where names of what is in it begin, in their paths.
    fn end(&self) -> usize {
        let chain = core::iter::successors(Some(self), |directory| directory.within.as_deref());
        chain.filter(|directory| !directory.name.is_empty()).map(|it| it.name.len() + 1).sum()
    }

    /// Its path.
    pub fn path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut next = Some(self);
        while let Some(directory) = next {
            if !directory.name.is_empty() {
                names.push(&directory.name[..]);
            }
            next = directory.within.as_deref();
        }
        names.reverse();
        names.join(&b'/')
    }

    /// It as it was announced, but for what means nothing of a directory.
    ///
    /// # Panics
    /// Never: its path is part of one that was checked.
    pub fn entry(&self) -> Arc<Entry> {
        let path = EntryPath::new(self.path()).expect("the path of an entry that was announced");
        let (mode, modified) = (self.mode, self.modified);
        let kind = EntryKind::Directory;
        let attributes = Attributes { data: None, metadata: self.metadata.clone() };
        Arc::new(Entry { kind, mode, modified, size: 0, identity: [0; 16], path, attributes })
    }

    /// Memory that it takes.
    pub(crate) fn cost(&self) -> u64 {
        DIRECTORY_COST + self.name.len() as u64 + metadata_cost(self.metadata_len)
    }
}

/// Something that got its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A directory.
    Directory(Arc<Directory>),
    /// A file or link.
    Other(Arc<Entry>),
}

impl Named {
    /// Its path.
    pub fn path(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Directory(directory) => directory.path().into(),
            Self::Other(entry) => entry.path.as_bytes().into(),
        }
    }

    /// True where it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::file;

    #[test]
    fn a_directory_keeps_its_own_name_and_tells_its_path() {
        let at = |path: &str| Entry { kind: EntryKind::Directory, ..file(path, 0) };
        let mut within = None;
        for path in ["", "a", "a/bc", "a/bc/d"] {
            let directory = Directory::new(&at(path), within);
            assert_eq!(directory.path(), path.as_bytes());
            assert_eq!(*directory.entry(), at(path));
            assert!(directory.cost() <= DIRECTORY_COST + 2);
            within = Some(directory);
        }
        let orphan = Directory::new(&at("a/bc"), None);
        let below = Directory::new(&at("a/bc/d"), Some(orphan));
        assert_eq!(below.path(), b"a/bc/d");
    }
}
