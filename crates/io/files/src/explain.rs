//! Errors of files, for people: what failed, and what to do about it.

use std::io::{self, ErrorKind};

use longhaul_sys::descriptors;
use longhaul_sys::process::file_size_limit;
use longhaul_wire::Summary;
use rustix::io::Errno;

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
    let not_set = error.get_ref().and_then(|inner| inner.downcast_ref::<NotSet>());
    let doing = not_set.map_or(doing, |not_set| not_set.doing());
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
        ErrorKind::FileTooLarge => format!("{doing}: {}", too_large(file_size_limit())),
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

/// Beyond `limit`, where this process has one, nobody knows what the file system would have taken.
fn too_large(limit: Option<u64>) -> String {
    match limit {
        None => "the file is too large for the file system of the destination".into(),
        Some(limit) => format!(
            "the file is larger than the {limit} bytes that the process there may write (ulimit -f; \
             LimitFSIZE= in a systemd unit), or than its file system takes"
        ),
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

/// An attribute could not be set.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct NotSet {
    /// As [`Summary::notes`].
    note: u64,
    error: io::Error,
}

impl NotSet {
    pub(crate) fn error(note: u64, error: Errno) -> io::Error {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), Self { note, error })
    }

    /// The step that failed, for people.
    pub(crate) fn doing(&self) -> &'static str {
        match self.note {
            Summary::TIMES_NOT_SET => "cannot set its modification time",
            _ => "cannot set its permission bits",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_names_the_limit_of_the_process_where_there_is_one() {
        assert!(too_large(None).contains("file system") && !too_large(None).contains("ulimit"));
        let limited = too_large(Some(1_000_000));
        assert!(limited.contains("1000000 bytes") && limited.contains("ulimit -f"), "{limited}");
        assert!(limited.contains("LimitFSIZE="), "{limited}");
    }

    #[test]
    fn an_attribute_that_cannot_be_set_is_the_step_that_is_named() {
        for (what, doing) in [
            (Summary::TIMES_NOT_SET, "modification time"),
            (Summary::MODES_NOT_SET, "permission bits"),
        ] {
            let error = NotSet::error(what, rustix::io::Errno::IO);
            for step in ["cannot write", "cannot give it its name"] {
                let words = at_destination(step, &error);
                assert!(
                    words.starts_with(&format!("cannot set its {doing}: Input/output")),
                    "{words}"
                );
            }
        }
        // What is to be done is the same as of others.
        let words = at_destination(
            "cannot write",
            &NotSet::error(Summary::TIMES_NOT_SET, rustix::io::Errno::NOSPC),
        );
        assert!(words.contains("no space left") && words.contains("make room"), "{words}");
    }
}
