//! What a running copy or pipe shows.

use std::mem;
use std::sync::Mutex;

use longhaul_objects::NamedChange;
use longhaul_sys::sync::lock;

use crate::api::Snapshot;

/// Where a running copy or pipe leaves its state for a display on another thread.
#[derive(Debug, Default)]
pub struct Progress {
    snapshot: Mutex<Snapshot>,
    news: Mutex<Vec<String>>,
    changes: Mutex<(Vec<NamedChange>, u64)>,
}

impl Progress {
    /// The state now.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.snapshot).clone()
    }

    /// What has happened since the last call that everybody should know at once, as that TCP
    /// carries because UDP does not pass. What still matters at the end is in
    /// [`crate::api::LinkReport::notices`] too.
    pub fn take_news(&self) -> Vec<String> {
        mem::take(&mut *lock(&self.news))
    }

    /// Changes at the destination since the last call, where they were
    /// [asked for](crate::CopyOptions::names_changes), and how many were left out: those of more than 65,536
    /// at once.
    pub fn take_changes(&self) -> (Vec<NamedChange>, u64) {
        mem::take(&mut *lock(&self.changes))
    }

    /// True if there is room for more changes.
    pub(crate) fn has_room(&self) -> bool {
        lock(&self.changes).0.len() < CHANGES_MAX
    }

    /// More changes, and how many were left out.
    pub(crate) fn keep_changes(&self, (changes, left_out): (Vec<NamedChange>, u64)) {
        let mut kept = lock(&self.changes);
        kept.0.extend(changes);
        kept.1 += left_out;
    }

    pub(crate) fn set(&self, snapshot: Snapshot) {
        *lock(&self.snapshot) = snapshot;
    }

    pub(crate) fn tell(&self, news: &str) {
        lock(&self.news).push(news.into());
    }
}

/// Changes that wait to be taken, before those that come wait elsewhere.
const CHANGES_MAX: usize = 1 << 16;
