use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::entry::{EntryId, PathKey};

/// Every path that was announced, and the number of what is there if it is a directory. Copies of it share
/// one tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedPaths(Arc<BTreeMap<PathKey, Option<EntryId>>>);

impl AnnouncedPaths {
    /// True if an entry has this path.
    pub fn contains(&self, path: &[u8]) -> bool {
        self.get(&PathKey::of(path)).is_some()
    }

    /// True if an entry has this path, or one that is no directory that of a directory above.
    pub(crate) fn settle(&self, path: &[u8]) -> bool {
        let is_leaf = |path: &[u8]| matches!(self.get(&PathKey::of(path)), Some(None));
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        self.contains(path) || ends.into_iter().any(|(end, _)| is_leaf(&path[..end]))
    }

    /// The number of the directory that has the path; nothing of another entry.
    pub(crate) fn get(&self, key: &PathKey) -> Option<&Option<EntryId>> {
        self.0.get(key)
    }

    /// More are announced. Nobody has a copy before all are.
    pub(crate) fn extend(&mut self, more: BTreeMap<PathKey, Option<EntryId>>) {
        Arc::make_mut(&mut self.0).extend(more);
    }
}
