//! What a running copy shows.

use std::sync::Mutex;

use crate::api::Snapshot;
use crate::buffer::lock;

/// Where a running copy leaves its state for a display on another thread.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Snapshot>);

impl Progress {
    /// The state now.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.0).clone()
    }

    pub(crate) fn set(&self, snapshot: Snapshot) {
        *lock(&self.0) = snapshot;
    }
}
