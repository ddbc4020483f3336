//! Directories of this host that users name.

use std::path::Path;

use longhaul_files::at_directory;
use longhaul_sys::files::ConfinedDir;

use crate::error::Error;

/// Opens a directory of this host.
///
/// # Errors
/// It is not there, no directory, or may not be read.
pub fn open_directory(path: &Path) -> Result<ConfinedDir, Error> {
    ConfinedDir::open_own(path).map_err(|error| {
        let path = path.display().to_string();
        let message = format!("{path}: {}", at_directory(&error.into()).reason);
        Error::path(path, message)
    })
}
