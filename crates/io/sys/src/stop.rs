//! The wish that something running comes to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks a running copy or server to stop cleanly. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks; safe in a signal handler.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once it was asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
