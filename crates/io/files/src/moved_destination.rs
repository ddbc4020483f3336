//! Checks that the name of the destination directory still leads to the one that is held open.

use longhaul_sys::files::ConfinedError;
use std::io;
use std::path::Path;

use longhaul_sys::files::ConfinedDir;
use rustix::fs::fstat;

use crate::explain::is_link;
use crate::identify::as_path;
use crate::parents::identity;

/// Path by which the destination directory was found.
#[derive(Debug)]
pub(crate) struct DestinationPath {
    /// Directory that it is confined to, if it is.
    top: Option<ConfinedDir>,
    path: Vec<u8>,
}

impl DestinationPath {
    /// By `path`, below the directory `top` if it is confined.
    pub(crate) fn new(path: &[u8], top: Option<&ConfinedDir>) -> io::Result<Self> {
        let path = if path.is_empty() { b"." } else { path };
        Ok(Self { top: top.map(ConfinedDir::try_clone).transpose()?, path: path.to_vec() })
    }

    /// True if it leads to `directory`: somebody may have moved that meanwhile, or put another in
    /// its place.
    ///
    /// # Errors
    /// The operating system does not tell.
    pub(crate) fn leads_to(&self, directory: &ConfinedDir) -> io::Result<bool> {
        let path = as_path(&self.path);
        let found = match &self.top {
            None => rustix::fs::stat(path).map_err(io::Error::from),
            Some(top) => top.path_stat(path).map_err(io::Error::from),
        };
        match found {
            Ok(found) => Ok(identity(&found) == identity(&fstat(directory)?)),
            Err(error) if leads_nowhere(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the directory if it is empty, and then as many in all, each above the other, as are.
    pub(crate) fn remove(&self, most: usize) {
        let remove = |path: &Path| match &self.top {
            None => std::fs::remove_dir(path).is_ok(),
            Some(top) => top.remove_dir(path).is_ok(),
        };
        // One that holds something stays, with those above.
        let _ = as_path(&self.path).ancestors().take(most).all(remove);
    }

    /// It, for people.
    pub(crate) fn shown(&self) -> String {
        self.path.escape_ascii().to_string()
    }
}

/// True if nothing has the name, or a parent of it is no directory, or it leads out.
fn leads_nowhere(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind()) || is_link(error) || is_escape(error)
}

/// True if it leads out of what it is confined to.
pub(crate) fn is_escape(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ConfinedError>());
    matches!(inner, Some(ConfinedError::Escapes))
}
