//! A bounded number of open handles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use longhaul_sys::descriptors::{Keeps, keep, let_go, register};
use longhaul_sys::sync::lock;

/// Handles by key. When there are too many, here or in the process, the one that was not used for
/// longest is forgotten, and closed once nobody uses it.
#[derive(Debug)]
pub(crate) struct HandleCache<K, V> {
    capacity: usize,
    inner: Arc<Handles<K, V>>,
}

#[derive(Debug)]
struct Handles<K, V>(Mutex<Inner<K, V>>);

#[derive(Debug)]
struct Inner<K, V> {
    handles: BTreeMap<K, (u64, Arc<V>)>,
    uses: u64,
}

impl<K, V> HandleCache<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Send + Sync + 'static,
{
    pub(crate) fn new(capacity: usize) -> Self {
        let inner = Inner { handles: BTreeMap::new(), uses: 0 };
        let inner = Arc::new(Handles(Mutex::new(inner)));
        let known: Weak<Handles<K, V>> = Arc::downgrade(&inner);
        register(known);
        Self { capacity, inner }
    }

    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut inner = lock(&self.inner.0);
        inner.uses += 1;
        let uses = inner.uses;
        let (used, handle) = inner.handles.get_mut(key)?;
        *used = uses;
        Some(Arc::clone(handle))
    }

    /// Keeps `handle`, if it may.
    pub(crate) fn insert(&self, key: K, handle: Arc<V>) {
        let mut inner = lock(&self.inner.0);
        inner.uses += 1;
        let uses = inner.uses;
        inner.remove(&key);
        if inner.handles.len() >= self.capacity {
            inner.remove_oldest();
        }
        if keep() || inner.remove_oldest() && keep() {
            inner.handles.insert(key, (uses, handle));
        }
    }

    pub(crate) fn remove(&self, key: &K) {
        lock(&self.inner.0).remove(key);
    }
}

impl<K: Ord + Clone, V> Inner<K, V> {
    fn remove(&mut self, key: &K) {
        if self.handles.remove(key).is_some() {
            let_go(1);
        }
    }

    /// True where there was any.
    fn remove_oldest(&mut self) -> bool {
        let oldest = self.handles.iter().min_by_key(|(_, (used, _))| *used);
        let oldest = oldest.map(|(key, _)| key.clone());
        oldest.inspect(|oldest| self.remove(oldest)).is_some()
    }
}

impl<K: Ord + Clone + Send, V: Send + Sync> Keeps for Handles<K, V> {
    fn shrink(&self) {
        let handles = &mut lock(&self.0).handles;
        let before = handles.len();
        handles.retain(|_, (_, handle)| Arc::strong_count(handle) > 1);
        let_go(before - handles.len());
    }
}

impl<K, V> Drop for Inner<K, V> {
    fn drop(&mut self) {
        let_go(self.handles.len());
    }
}
