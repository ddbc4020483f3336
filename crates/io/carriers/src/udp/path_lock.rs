//! Paths behind their locks.

use std::ops::DerefMut;
use std::sync::Mutex;

use longhaul_connection::SharedPath;
use longhaul_engine::Path;
use longhaul_sys::sync::lock;

/// A path, for the time of a batch or a look.
pub struct PathLock<'p>(pub &'p Mutex<Path>);

impl SharedPath for PathLock<'_> {
    fn lock(&self) -> impl DerefMut<Target = Path> {
        lock(self.0)
    }
}
