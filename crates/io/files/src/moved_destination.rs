//! Checks that the name of the destination directory still leads to the one that is held open.

use std::io;

use longhaul_sys::files::ConfinedDir;
use rustix::fs::fstat;

use super::destination::is_escape;
use super::explain::is_link;
use super::identify::as_path;
use super::parents::identity;

/// Path by which the destination directory was found.
#[derive(Debug)]
pub(super) struct DestinationPath {
    /// Directory that it is confined to, if it is.
    top: Option<ConfinedDir>,
    path: Vec<u8>,
}

impl DestinationPath {
    /// By `path`, below the directory `top` if it is confined.
    pub(super) fn new(path: &[u8], top: Option<&ConfinedDir>) -> io::Result<Self> {
        let path = if path.is_empty() { b"." } else { path };
        Ok(Self { top: top.map(ConfinedDir::try_clone).transpose()?, path: path.to_vec() })
    }

    /// True if it leads to `directory`: somebody may have moved that meanwhile, or put another in
    /// its place.
    ///
    /// # Errors
    /// The operating system does not tell.
    pub(super) fn leads_to(&self, directory: &ConfinedDir) -> io::Result<bool> {
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

    /// It, for people.
    pub(super) fn shown(&self) -> String {
        self.path.escape_ascii().to_string()
    }
}

/// True if nothing has the name, or a parent of it is no directory, or it leads out.
fn leads_nowhere(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind()) || is_link(error) || is_escape(error)
}
