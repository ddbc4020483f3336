//! Whether the name of the destination directory still leads to the one that is held open.

use std::io;

use longhaul_sys::files::ConfinedDir;
use rustix::fs::fstat;

use super::above::identity;
use super::destination::is_escape;
use super::explain::is_link;
use super::identify::as_path;

/// How the destination directory was found.
#[derive(Debug)]
pub(super) struct Way {
    /// What it is confined to, if it is.
    top: Option<ConfinedDir>,
    path: Vec<u8>,
}

impl Way {
    /// By `path`, below the directory `top` if it is confined.
    pub(super) fn new(path: &[u8], top: Option<&ConfinedDir>) -> io::Result<Self> {
        let path = if path.is_empty() { b"." } else { path };
        Ok(Self { top: top.map(ConfinedDir::try_clone).transpose()?, path: path.to_vec() })
    }

    /// Whether it leads to `directory`: somebody may have moved that meanwhile, or put another in its
    /// place.
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

/// Whether nothing has the name, or what is on the way to it is no directory, or leads out.
fn leads_nowhere(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind()) || is_link(error) || is_escape(error)
}
