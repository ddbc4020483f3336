//! A bounded number of open handles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::sync::lock;

/// Handles by key. When there are too many, the one that was not used for longest is forgotten,
/// and closed once nobody uses it.
#[derive(Debug)]
pub(super) struct HandleCache<K, V> {
    capacity: usize,
    inner: Mutex<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    handles: BTreeMap<K, (u64, Arc<V>)>,
    uses: u64,
}

impl<K: Ord + Clone, V> HandleCache<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, inner: Mutex::new(Inner { handles: BTreeMap::new(), uses: 0 }) }
    }

    pub(super) fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut inner = lock(&self.inner);
        inner.uses += 1;
        let uses = inner.uses;
        let (used, handle) = inner.handles.get_mut(key)?;
        *used = uses;
        Some(Arc::clone(handle))
    }

    pub(super) fn insert(&self, key: K, handle: Arc<V>) {
        let mut inner = lock(&self.inner);
        inner.uses += 1;
        let uses = inner.uses;
        if inner.handles.len() >= self.capacity {
            let oldest = inner.handles.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                inner.handles.remove(&oldest);
            }
        }
        inner.handles.insert(key, (uses, handle));
    }

    pub(super) fn remove(&self, key: &K) {
        lock(&self.inner).handles.remove(key);
    }
}
