//! Errors of files, for people: what failed, and what to do about it.

use std::io::{self, ErrorKind};

use longhaul_sys::descriptors;

use crate::folding::SameName;
use crate::sink::free_space::TooLittle;
use crate::special::Obstacle;

/// Why a file could not be read.
pub(crate) fn at_source(error: &io::Error) -> String {
    if let Some(short) = descriptors::in_words(error) {
        return format!("cannot be opened: {short}");
    }
    match error.kind() {
        ErrorKind::NotFound => "it is no longer there".into(),
        ErrorKind::PermissionDenied => "no permission to read it".into(),
        _ if is_link(error) => "it was replaced by a link while it was copied".into(),
        _ => format!("cannot be read: {error}"),
    }
}

/// Why a source that the user has named, whose links are followed, could not be read.
pub(crate) fn at_root(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".into(),
        // It would lead out of what is served.
        _ if error.get_ref().is_some() => error.to_string(),
        _ if is_link(error) => {
            "it is a link that leads back to itself, or too many in a row".into()
        }
        _ => at_source(error),
    }
}

/// Why something could not be done at the destination. `doing` is like "cannot write".
pub(crate) fn at_destination(doing: &str, error: &io::Error) -> String {
    if let Some(reason) = no_room(error) {
        let detail = too_little(error).map(|detail| format!(": {detail}")).unwrap_or_default();
        return format!(
            "{doing}: {reason}{detail}; what is complete stays: make room and run the same command \
             again"
        );
    }
    if let Some(short) = descriptors::in_words(error) {
        return format!("{doing}: {short}");
    }
    if let Some(special) = obstacle(error) {
        return format!("{doing}: {special}");
    }
    if let Some(same) = same_name(error) {
        return format!("{doing}: {same}");
    }
    if let Some(vanished) = vanished(error) {
        return format!("{doing}: {vanished}");
    }
    match error.kind() {
        ErrorKind::FileTooLarge => {
            format!("{doing}: the file is too large for the file system of the destination")
        }
        ErrorKind::ReadOnlyFilesystem => {
            format!("{doing}: the destination is on a read-only file system")
        }
        ErrorKind::PermissionDenied => format!("{doing}: no permission at the destination"),
        ErrorKind::IsADirectory => format!("{doing}: a directory of that name is in the way"),
        ErrorKind::NotADirectory => {
            format!("{doing}: something that is no directory is where its directory should be")
        }
        ErrorKind::NotFound => format!(
            "{doing}: its directory is not at the destination: it could not be made, or somebody has \
             removed it"
        ),
        ErrorKind::InvalidFilename => {
            format!("{doing}: the name is too long for the file system of the destination")
        }
        _ if is_link(error) => format!(
            "{doing}: a symbolic link is where its directory should be; links at the destination \
             are not followed"
        ),
        _ => format!("{doing}: {error}"),
    }
}

/// Reason why the destination as a whole failed. The caller adds what is kept and how to go on.
pub(crate) fn at_whole_destination(doing: &str, error: &io::Error) -> String {
    match no_room(error) {
        Some(reason) => format!("{doing}: {reason}, make room there"),
        None => at_destination(doing, error),
    }
}

/// Resource of which there is too little, if that is the reason.
pub(crate) fn no_room(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::StorageFull => Some("no space left at the destination"),
        ErrorKind::QuotaExceeded => Some("the quota at the destination is used up"),
        _ => None,
    }
}

/// Needed and free space, if that was looked at first.
fn too_little(error: &io::Error) -> Option<&TooLittle> {
    error.get_ref()?.downcast_ref()
}

/// The device, FIFO or socket that is not replaced, if that is why.
fn obstacle(error: &io::Error) -> Option<&Obstacle> {
    error.get_ref()?.downcast_ref()
}

/// That the entry would get into the place of another, if that is why.
fn same_name(error: &io::Error) -> Option<&SameName> {
    error.get_ref()?.downcast_ref()
}

/// The unpublished file that is gone, if that is why.
fn vanished(error: &io::Error) -> Option<&Vanished> {
    error.get_ref()?.downcast_ref()
}

/// True if the system refused to follow a link.
pub(crate) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// An unpublished file, or a directory of such, that somebody has removed.
#[derive(Debug, thiserror::Error)]
#[error("{0} was removed from the destination before it was published")]
pub(crate) struct Vanished(pub(crate) String);
