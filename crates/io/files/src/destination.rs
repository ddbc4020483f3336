//! Where a copy goes.

use crate::moved_destination::is_escape;
use longhaul_objects::{Fsync, Keeps};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_sys::descriptors;
use longhaul_sys::files::ConfinedDir;

use crate::explain;
use crate::hidden::{Failed, Hidden, is_begun};
use crate::identify::{as_path, is_hidden_name};
use crate::moved_destination::DestinationPath;
use crate::parents::Parents;
use crate::place::split;
use crate::sink::writable::forbids_names;
use crate::special::{Special, leads_to_open_file};

/// Where a copy goes: as the user wrote it.
#[derive(Clone, Copy, Debug)]
pub enum Destination<'a> {
    /// Anywhere on this host.
    Local(&'a Path),
    /// Below a directory that nothing leads out of: the path as REQUEST names it
    /// (docs/protocol.md section 7.2).
    Below {
        /// The directory.
        root: &'a ConfinedDir,
        /// The path below it.
        path: &'a [u8],
    },
}

/// Why nothing can be copied to a destination. Shown to people as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// A directory was asked for, and something else is there.
    #[error("{path}: is not a directory")]
    NotDirectory {
        /// The destination.
        path: String,
    },
    /// It is a device, a FIFO or a socket, or a link to one.
    #[error("{path}: is {what}; devices, FIFOs and sockets are never replaced")]
    Special {
        /// The destination.
        path: String,
        /// Kind of the thing.
        what: String,
    },
    /// It is in the hidden directory of a transfer.
    #[error("{path}: leads into the hidden directory of a transfer, which is its own")]
    Hidden {
        /// The destination.
        path: String,
    },
    /// Contents were asked for, and it holds something already.
    #[error(
        "{path}: is not empty, and of SRC/. the server chooses every name: copy into a new or empty \
         directory, or say --merge to let it replace what is there"
    )]
    NotEmpty {
        /// The destination.
        path: String,
    },
    /// A directory was asked for, and it, or one above it, is a link to nothing.
    #[error("{path}: is a link that leads nowhere")]
    Dangling {
        /// The link.
        path: String,
    },
    /// The directory that should hold it does not exist.
    #[error("{path}: no such directory")]
    NoParent {
        /// That directory.
        path: String,
    },
    /// It leads out of the directory that it is confined to.
    #[error("{path}: leads out of the served directory")]
    Escapes {
        /// The destination.
        path: String,
    },
    /// Another run of the same transfer is under way, or is ending.
    #[error(
        "{path}: the same copy is under way already, or its last run still writes what it has \
         received (after a lost connection, until its idle timeout); what it writes is kept, and \
         the same command goes on from there once it has ended"
    )]
    Busy {
        /// The destination.
        path: String,
    },
    /// The file system is read-only.
    #[error("{path}: the destination is on a read-only file system")]
    ReadOnly {
        /// The destination.
        path: String,
    },
    /// No permission.
    #[error(
        "{path}: {doing}: no permission; a copy lists its destination, to find what an earlier run left, \
         and writes to it"
    )]
    Permission {
        /// The destination.
        path: String,
        /// The step that failed, like "cannot open it".
        doing: String,
    },
    /// Not even the resume record fits.
    #[error(
        "{path}: {reason}; nothing was written, what an earlier run wrote is kept: make room and \
         run the same command again"
    )]
    NoRoom {
        /// The destination.
        path: String,
        /// Resource of which there is too little.
        reason: &'static str,
    },
    /// Anything else.
    #[error("{path}: {doing}: {error}")]
    Io {
        /// The destination.
        path: String,
        /// Action that failed there, like "cannot list it".
        doing: String,
        /// Error of the operating system.
        error: io::Error,
    },
}

impl DestinationError {
    /// Why, without the path.
    pub fn reason(&self) -> String {
        let words = self.to_string();
        let path = format!("{}: ", self.path());
        words.strip_prefix(&path).unwrap_or(&words).to_owned()
    }

    /// The destination, or what it is or should be in.
    pub fn path(&self) -> &str {
        match self {
            Self::NotDirectory { path }
            | Self::Special { path, .. }
            | Self::Hidden { path }
            | Self::NotEmpty { path }
            | Self::Dangling { path }
            | Self::NoParent { path }
            | Self::Escapes { path }
            | Self::Busy { path }
            | Self::ReadOnly { path }
            | Self::Permission { path, .. }
            | Self::NoRoom { path, .. }
            | Self::Io { path, .. } => path,
        }
    }
}

/// A destination with `cp`'s habits applied.
pub(crate) struct Resolved {
    /// The directory that everything happens in.
    pub(crate) root: ConfinedDir,
    /// The new name of the source in it; `None`: sources keep their own.
    pub(crate) name: Option<Vec<u8>>,
    /// Parents that may have been made for it.
    pub(crate) parents: Parents,
    pub(crate) found_at: DestinationPath,
    /// So many directories were made for this copy: it, and those above.
    pub(crate) made: usize,
    /// It keeps its mode, time and attributes.
    pub(crate) stays: bool,
}

impl Destination<'_> {
    /// Finds where the copy goes: into a directory that is there under the source's own name, else
    /// the destination is the new name. [`SinkOptions::is_directory`] asks for a directory, and makes it.
    ///
    /// The new name of an interrupted run is a directory by now: the hidden directory beside it
    /// tells that it was not when the transfer began.
    pub(crate) fn resolve(&self, options: &SinkOptions) -> Result<Resolved, DestinationError> {
        let SinkOptions { is_directory, is_name, contents, transfer, .. } = options;
        let path = self.bytes();
        if path.split(|byte| *byte == b'/').any(is_hidden_name) {
            return Err(DestinationError::Hidden { path: self.shown() });
        }
        let is_directory = *is_directory || ends_as_directory(path);
        let place = trimmed(path);
        let (parent, name) = match split(place) {
            (b"", name) if place.starts_with(b"/") => (&b"/"[..], name),
            split => split,
        };
        let plain = !matches!(name, b"" | b"." | b"..");
        if *is_name && plain && self.special(place).is_none() {
            return self.as_name(parent, name);
        }
        match self.open(place) {
            Ok(root) => {
                if plain && !is_directory && self.was_begun_as_name(parent, transfer) {
                    return self.as_name(parent, name);
                }
                self.as_directory(root, is_directory, options.stays)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound if is_directory => {
                    self.check_links(place)?;
                    let made = self.count_missing(place);
                    self.make(place).map_err(|error| self.error("cannot make it", error))?;
                    let opened = self.open(place);
                    let root = opened.map_err(|error| self.error("cannot open it", error))?;
                    let resolved = self.as_directory(root, is_directory, options.stays)?;
                    Ok(Resolved { made, ..resolved })
                }
                io::ErrorKind::NotADirectory if is_directory => {
                    Err(DestinationError::NotDirectory { path: self.shown() })
                }
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if plain => {
                    if let Some(special) = self.special(place) {
                        let what = special.to_string();
                        return Err(DestinationError::Special { path: self.shown(), what });
                    }
                    let resolved = self.as_name(parent, name)?;
                    if *contents && error.kind() == io::ErrorKind::NotADirectory {
                        return Err(DestinationError::NotDirectory { path: self.shown() });
                    }
                    Ok(resolved)
                }
                _ => Err(self.error("cannot open it", error)),
            },
        }
    }

    /// True where a directory was asked for that is not there yet.
    pub(crate) fn would_be_made(&self, options: &SinkOptions) -> Result<bool, DestinationError> {
        let path = self.bytes();
        let is_directory = options.is_directory || ends_as_directory(path);
        let is_missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        let would_be_made =
            is_directory && !options.is_name && self.open(trimmed(path)).is_err_and(is_missing);
        if would_be_made {
            self.check_links(trimmed(path))?;
        }
        Ok(would_be_made)
    }

    /// An error where a directory that is missing, or one above it, cannot be made, since a link has its name.
    fn check_links(&self, place: &[u8]) -> Result<(), DestinationError> {
        let Some(path) = self.missing(place).last() else { return Ok(()) };
        let is_link = match self {
            Self::Local(_) => path.is_symlink(),
            Self::Below { root, .. } => root.symlink_metadata(path).is_ok_and(|it| it.is_symlink()),
        };
        match is_link {
            true => Err(DestinationError::Dangling { path: shown(path.as_os_str().as_bytes()) }),
            false => Ok(()),
        }
    }

    /// The directory above one that would be made, and is there.
    pub(crate) fn found_above(&self) -> Option<ConfinedDir> {
        let mut above = as_path(trimmed(self.bytes())).ancestors().skip(1);
        above.find_map(|path| self.open(path.as_os_str().as_bytes()).ok())
    }

    /// The error of a copy that would make names in `directory`, if that is known: `doing` is its step.
    pub(crate) fn check_writable(
        &self,
        directory: &ConfinedDir,
        keeps_modes: bool,
        doing: &str,
    ) -> Result<(), DestinationError> {
        match forbids_names(directory, keeps_modes) {
            Some(error) => Err(self.error(doing, error.into())),
            None => Ok(()),
        }
    }

    /// Everything goes into `root`, which is made where it is missing if it `is_directory` by the user's
    /// word.
    fn as_directory(
        &self,
        root: ConfinedDir,
        is_directory: bool,
        stays: bool,
    ) -> Result<Resolved, DestinationError> {
        let parents = match is_directory {
            true => Parents::of(self.bytes(), self.top())
                .map_err(|error| self.error("cannot look at what it is in", error))?,
            false => Parents::default(),
        };
        let found_at = self.destination_path(trimmed(self.bytes()))?;
        // What is served is as who serves it has made it.
        let stays = stays || self.top().is_some_and(|top| is_same(top, &root));
        Ok(Resolved { root, name: None, parents, found_at, made: 0, stays })
    }

    /// The source gets a new name, in a directory that is there.
    fn as_name(&self, parent: &[u8], name: &[u8]) -> Result<Resolved, DestinationError> {
        let (root, name) = (self.parent(parent)?, Some(name.to_vec()));
        Ok(Resolved {
            root,
            name,
            parents: Parents::default(),
            found_at: self.destination_path(parent)?,
            made: 0,
            stays: false,
        })
    }

    /// Path by which the directory `path` was found.
    fn destination_path(&self, path: &[u8]) -> Result<DestinationPath, DestinationError> {
        DestinationPath::new(path, self.top())
            .map_err(|error| self.error("cannot look at what it is in", error))
    }

    /// Directory that it is confined to.
    fn top(&self) -> Option<&ConfinedDir> {
        match self {
            Self::Local(_) => None,
            Self::Below { root, .. } => Some(root),
        }
    }

    /// Checks that `place` holds nothing, unless this transfer has begun to fill it.
    pub(crate) fn check_empty(
        &self,
        place: &Resolved,
        transfer: &[u8; 16],
    ) -> Result<(), DestinationError> {
        // A new name is no directory yet, or is one that this transfer has made.
        if place.name.is_some()
            || is_begun(&place.root, transfer)
            || is_empty(&place.root).map_err(|error| self.error("cannot list it", error))?
        {
            return Ok(());
        }
        Err(DestinationError::NotEmpty { path: self.shown() })
    }

    /// True if it is the null device of this host.
    pub(crate) fn is_null_device(&self) -> bool {
        matches!(self, Self::Local(_)) && self.special(self.bytes()) == Some(Special::Null)
    }

    /// Special file there, through links, if it is neither file nor directory.
    fn special(&self, path: &[u8]) -> Option<Special> {
        if matches!(self, Self::Local(_)) && leads_to_open_file(path) {
            return Some(Special::OpenFile);
        }
        let stat = match self {
            Self::Local(_) => rustix::fs::stat(path).ok()?,
            // Without opening it: that may block, or do something.
            Self::Below { root, .. } => root.path_stat(as_path(path)).ok()?,
        };
        Special::of(&stat)
    }

    /// Makes, or finds, the hidden directory and locks it.
    pub(crate) fn hide(
        &self,
        root: &ConfinedDir,
        transfer: &[u8; 16],
    ) -> Result<Hidden, DestinationError> {
        let taken = Hidden::take(root, transfer);
        let taken = taken.map_err(|Failed { doing, error }| self.error(&doing, error))?;
        taken.ok_or_else(|| DestinationError::Busy { path: self.shown() })
    }

    /// Error for an action that failed, as `doing` says, because of `error`.
    pub(crate) fn error(&self, doing: &str, error: io::Error) -> DestinationError {
        let path = self.shown();
        let directory = || self.open(trimmed(self.bytes())).ok().or_else(|| self.found_above());
        if explain::no_room(&error).is_some()
            && let Some(reason) = explain::no_room_in(directory().as_ref(), &error)
        {
            return DestinationError::NoRoom { path, reason };
        }
        if let Some(short) = descriptors::in_words(&error) {
            let error = io::Error::other(short);
            return DestinationError::Io { path, doing: doing.to_owned(), error };
        }
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => DestinationError::ReadOnly { path },
            io::ErrorKind::PermissionDenied if is_escape(&error) => {
                DestinationError::Escapes { path }
            }
            io::ErrorKind::PermissionDenied => {
                DestinationError::Permission { path, doing: doing.to_owned() }
            }
            _ => {
                let error = match explain::of_name(&error) {
                    Some(words) => io::Error::other(words),
                    None => error,
                };
                DestinationError::Io { path, doing: doing.to_owned(), error }
            }
        }
    }

    /// True if the hidden directory of this transfer lies beside the destination.
    fn was_begun_as_name(&self, parent: &[u8], transfer: &[u8; 16]) -> bool {
        self.open(parent).is_ok_and(|root| is_begun(&root, transfer))
    }

    fn parent(&self, path: &[u8]) -> Result<ConfinedDir, DestinationError> {
        self.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DestinationError::NoParent { path: shown(path) },
            io::ErrorKind::NotADirectory => {
                // The topmost, which is in the way of all that is below it.
                let above = as_path(path).ancestors().map(|it| it.as_os_str().as_bytes());
                let is_in_the_way = |it: &&[u8]| !it.is_empty() && is_no_directory(self.open(it));
                let first = above.take_while(is_in_the_way).last().unwrap_or(path);
                DestinationError::NotDirectory { path: shown(first) }
            }
            _ => self.error("cannot open what it is in", error),
        })
    }

    /// Opens a directory; the empty path is the one that paths are relative to.
    fn open(&self, path: &[u8]) -> io::Result<ConfinedDir> {
        Ok(match self {
            Self::Local(_) if path.is_empty() => ConfinedDir::open_own(".")?,
            Self::Local(_) => ConfinedDir::open_own(as_path(path))?,
            Self::Below { root, .. } => root.open_dir(as_path(path))?,
        })
    }

    /// Directories of a path that are not there.
    fn count_missing(&self, path: &[u8]) -> usize {
        self.missing(path).count()
    }

    /// It and the directories above it that are not there.
    fn missing<'p>(&self, path: &'p [u8]) -> impl Iterator<Item = &'p Path> {
        as_path(path).ancestors().take_while(|path| {
            let opened = self.open(path.as_os_str().as_bytes());
            opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        })
    }

    fn make(&self, path: &[u8]) -> io::Result<()> {
        match self {
            Self::Local(_) => std::fs::create_dir_all(as_path(path)),
            Self::Below { root, .. } => Ok(root.create_dir_all(as_path(path), 0o777)?),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Local(path) => path.as_os_str().as_bytes(),
            Self::Below { path, .. } => path,
        }
    }

    pub(crate) fn shown(&self) -> String {
        shown(self.bytes())
    }
}

fn shown(path: &[u8]) -> String {
    match path {
        b"" => ".".into(),
        path => path.escape_ascii().to_string(),
    }
}

fn is_no_directory<T>(opened: io::Result<T>) -> bool {
    opened.is_err_and(|error| error.kind() == io::ErrorKind::NotADirectory)
}

/// True if nothing is in `root` but hidden directories of transfers.
pub(crate) fn is_empty(root: &ConfinedDir) -> io::Result<bool> {
    for entry in root.read_dir("")? {
        if !is_hidden_name(entry?.name.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_same(one: &ConfinedDir, other: &ConfinedDir) -> bool {
    let inode = |of| rustix::fs::fstat(of).ok().map(|stat| (stat.st_dev, stat.st_ino));
    inode(one) == inode(other)
}

/// True if a path can only mean a directory.
fn ends_as_directory(path: &[u8]) -> bool {
    matches!(split(path).1, b"" | b"." | b"..")
}

/// The path without slashes at its end.
fn trimmed(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte != b'/') {
        Some(last) => &path[..=last],
        None => &path[..path.len().min(1)],
    }
}

/// Options of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkOptions {
    /// The destination is a directory, and made where it is missing: the user wrote a slash
    /// behind it, or there are several sources.
    pub is_directory: bool,
    /// The destination is the new name of the source, even where a directory has it.
    pub is_name: bool,
    /// The copy is the contents of a directory that keeps no name of its own: it can replace no
    /// file.
    pub contents: bool,
    /// Value for [`longhaul_objects::SinkConfig::transfer`]; see
    /// [`transfer_id`](crate::transfer_id).
    pub transfer: [u8; 16],
    /// Value for [`longhaul_objects::SinkConfig::fsync`].
    pub fsync: Fsync,
    /// Whole blocks of large files go past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// The destination has to be new, empty, or begun by this transfer: who sends chooses all
    /// names in it.
    pub only_empty: bool,
    /// Go on with what an earlier run has left.
    pub goes_on: bool,
    /// Nothing is made or changed there: it is only looked at.
    pub dry_run: bool,
    /// The destination directory itself keeps its mode, time and attributes, whatever goes into it.
    pub stays: bool,
    /// Modes are kept as the source has them: one in which its owner may not write gets that right for the copy.
    pub keeps_modes: bool,
    /// Entries that are there and stay, for a dry run.
    pub keeps: Keeps,
}
