//! A path that several lanes use.

use core::ops::DerefMut;

use longhaul_engine::Path;

/// A path that other lanes use too: locked for a batch or a report, never longer.
pub trait SharedPath {
    /// Access to it.
    fn lock(&self) -> impl DerefMut<Target = Path>;
}
