//! What a running copy or pipe shows.

use std::mem;
use std::sync::Mutex;

use longhaul_sys::sync::lock;

use crate::api::Snapshot;

/// Where a running copy or pipe leaves its state for a display on another thread.
#[derive(Debug, Default)]
pub struct Progress {
    snapshot: Mutex<Snapshot>,
    news: Mutex<Vec<String>>,
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

    pub(crate) fn set(&self, snapshot: Snapshot) {
        *lock(&self.snapshot) = snapshot;
    }

    pub(crate) fn tell(&self, news: &str) {
        lock(&self.news).push(news.into());
    }
}
