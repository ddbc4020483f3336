//! Errors of files, as the code and the reason with which an entry ends.

use std::borrow::Cow;
use std::io::{self, ErrorKind};

use longhaul_sys::descriptors;
use longhaul_sys::files::{ConfinedDir, ConfinedError};
use longhaul_sys::process::file_size_limit;
use longhaul_units::shown_path;
use longhaul_wire::EntryCode::{
    self, Changed, Failed, InTheWay, Name, NoSpace, NotFound, OutOfResources, Permission,
    ReadError, Refused, Skipped, TooLarge, WriteError,
};
use longhaul_wire::{EntryEnd, Summary};
use rustix::io::Errno;

use crate::folding::SameName;
use crate::sink::free_space::{TooLittle, lacks_inodes};
use crate::special::Obstacle;

/// Why a file could not be read.
pub(crate) fn at_source(error: &io::Error) -> EntryEnd {
    if let Some(short) = descriptors::in_words(error) {
        return ended(OutOfResources, format!("cannot be opened: {short}"));
    }
    let (code, reason) = match error.kind() {
        ErrorKind::NotFound => (Changed, "it is no longer there"),
        _ if leads_out(error) => (Refused, "it leads out of the root"),
        ErrorKind::PermissionDenied => (Permission, "no permission to read it"),
        ErrorKind::IsADirectory => (Changed, "it was replaced by a directory meanwhile"),
        ErrorKind::NotADirectory => (Changed, "a directory above it was replaced meanwhile"),
        ErrorKind::OutOfMemory => {
            return ended(OutOfResources, format!("cannot be read: {error}"));
        }
        _ if is_link(error) => (Changed, "it was replaced by a link meanwhile"),
        _ => return ended(ReadError, format!("cannot be read: {error}")),
    };
    EntryEnd::new(code, reason)
}

/// Why what is listed or hashed, where no link is followed, could not be read.
pub(crate) fn in_place(error: &io::Error) -> EntryEnd {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::LOOP | Errno::XDEV) => {
            EntryEnd::new(Refused, "it is or is behind a link: links are not followed")
        }
        _ => at_source(error),
    }
}

/// Why a source that the user has named, whose links are followed, could not be read.
pub(crate) fn at_root(error: &io::Error) -> EntryEnd {
    match error.kind() {
        ErrorKind::NotFound => EntryEnd::new(NotFound, "no such file or directory"),
        ErrorKind::NotADirectory => EntryEnd::new(NotFound, "what it should be in is no directory"),
        // It would lead out of what is served.
        _ if error.get_ref().is_some() => ended(Refused, error.to_string()),
        _ if is_link(error) => EntryEnd::new(Failed, LEADS_BACK),
        _ => at_source(error),
    }
}

/// Why a directory that the user has named could not be opened.
pub fn at_directory(error: &io::Error) -> EntryEnd {
    match error.kind() {
        ErrorKind::NotFound => EntryEnd::new(NotFound, "no such directory"),
        ErrorKind::NotADirectory => EntryEnd::new(NotFound, "it is no directory"),
        _ => at_root(error),
    }
}

/// Why a name that the user has listed, or a directory above it, could not be read.
pub(crate) fn at_listed(error: &io::Error) -> EntryEnd {
    match error.kind() {
        ErrorKind::NotFound => EntryEnd::new(NotFound, "no such file or directory"),
        ErrorKind::NotADirectory => {
            EntryEnd::new(NotFound, "names in it are listed, and it is no directory")
        }
        _ => at_root(error),
    }
}

/// The same of a directory of which none of these listed `names` can be had, nor `more`, where `end` is that of the first.
pub(crate) fn at_all_listed(end: &EntryEnd, names: &[&[u8]], more: usize) -> EntryEnd {
    let reason = match end.code {
        NotFound => "nothing that is listed in it is there",
        _ => &end.reason,
    };
    let mut shown: Vec<_> = names.iter().map(|name| shown_path(name)).collect();
    shown.extend((more > 0).then(|| format!("{more} more")));
    ended(end.code, format!("{reason}: {}", shown.join(", ")))
}

const DESTINATION: &str = "destination";
/// Names in a reason: of more their number is shown.
pub(crate) const NAMES_SHOWN: usize = 5;

/// Why something could not be done at the destination. `doing` is like "cannot write".
pub(crate) fn at_destination(doing: &str, error: &io::Error) -> EntryEnd {
    let not_set = error.get_ref().and_then(|inner| inner.downcast_ref::<NotSet>());
    let doing = not_set.map_or(doing, |not_set| not_set.doing());
    let (code, reason) = why_not_written(error);
    let names_side = doing.contains(DESTINATION) || reason.contains(DESTINATION);
    let side = if names_side { "" } else { " at the destination" };
    ended(code, format!("{doing}{side}: {reason}"))
}

fn why_not_written(error: &io::Error) -> (EntryCode, Cow<'static, str>) {
    if let Some(reason) = no_room(error) {
        let detail = too_little(error).map(|detail| format!(": {detail}")).unwrap_or_default();
        let reason = format!(
            "{reason}{detail}; what is complete stays: make room and run the same command again"
        );
        return (NoSpace, reason.into());
    }
    if let Some(short) = descriptors::in_words(error) {
        return (OutOfResources, short.into());
    }
    if let Some(code) = own_error(error) {
        return (code, error.to_string().into());
    }
    let (code, reason) = match error.kind() {
        ErrorKind::FileTooLarge => return (TooLarge, too_large(file_size_limit()).into()),
        ErrorKind::ReadOnlyFilesystem => {
            (Permission, "the destination is on a read-only file system")
        }
        ErrorKind::PermissionDenied => (Permission, "no permission at the destination"),
        ErrorKind::IsADirectory => (InTheWay, "a directory of that name is in the way"),
        ErrorKind::NotADirectory => {
            (InTheWay, "something that is no directory is where its directory should be")
        }
        ErrorKind::NotFound => (
            NotFound,
            "its directory is not at the destination: it could not be made, or somebody has \
             removed it",
        ),
        ErrorKind::InvalidFilename => (Name, TOO_LONG),
        ErrorKind::OutOfMemory => return (OutOfResources, error.to_string().into()),
        _ if is_link(error) => (
            InTheWay,
            "a symbolic link is where its directory should be; links at the destination are not \
             followed",
        ),
        _ => return (WriteError, error.to_string().into()),
    };
    (code, reason.into())
}

/// The code of an error that this crate has found itself.
fn own_error(error: &io::Error) -> Option<EntryCode> {
    let inner = error.get_ref()?;
    if inner.is::<Obstacle>() {
        Some(InTheWay)
    } else if inner.is::<SameName>() {
        Some(Name)
    } else if inner.is::<Vanished>() || inner.is::<Replaced>() {
        Some(Changed)
    } else {
        inner.downcast_ref().map(|end: &EntryEnd| end.code)
    }
}

/// The same end, whose reason names the side of the source; not what is alike on every side.
pub(crate) fn with_side(end: EntryEnd, side: &str) -> EntryEnd {
    let EntryEnd { code, reason } = &end;
    if matches!(code, Name | Skipped) {
        return end;
    }
    // Behind what it is, and before what follows of that.
    let first = reason.find([',', ';', ':']).unwrap_or(reason.len());
    let (what, rest) = reason.split_at(first);
    EntryEnd::new(*code, &format!("{what} {side}{rest}"))
}

/// The same end, of what a server has looked at, for a client that did not copy it.
pub fn at_server(end: EntryEnd) -> EntryEnd {
    if end.reason.contains("the server") { end } else { with_side(end, AT_SERVER) }
}

/// The side of a source that is at a server.
pub(crate) const AT_SERVER: &str = "at the server";

fn ended(code: EntryCode, reason: String) -> EntryEnd {
    EntryEnd::new(code, &reason)
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
        None => at_destination(doing, error).reason,
    }
}

/// Resource of which there is too little, if that is the reason.
pub(crate) fn no_room(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::StorageFull => Some(NO_SPACE),
        ErrorKind::QuotaExceeded => Some("the quota at the destination is used up"),
        _ => None,
    }
}

/// The same in a directory, which tells whether it is not bytes that are missing.
pub(crate) fn no_room_in(
    directory: Option<&ConfinedDir>,
    error: &io::Error,
) -> Option<&'static str> {
    let is_full = |reason: &&str| *reason == NO_SPACE && directory.is_some_and(lacks_inodes);
    no_room(error).map(|reason| if is_full(&reason) { NO_INODES } else { reason })
}

/// The same end of something in a directory, which tells whether it is not bytes that are missing.
pub(crate) fn in_directory(directory: &ConfinedDir, end: EntryEnd) -> EntryEnd {
    // Where the free bytes were looked at first, they are named behind a colon.
    let full = format!("{NO_SPACE};");
    match end.code == NoSpace && end.reason.contains(&full) && lacks_inodes(directory) {
        true => EntryEnd::new(NoSpace, &end.reason.replacen(&full, &format!("{NO_INODES};"), 1)),
        false => end,
    }
}

/// Why nothing can be at a destination of this name, if that is the reason.
pub(crate) fn of_name(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::InvalidFilename => Some(TOO_LONG),
        _ if is_link(error) => Some(LEADS_BACK),
        _ => None,
    }
}

const LEADS_BACK: &str = "it is a link that leads back to itself, or too many in a row";
const TOO_LONG: &str = "the name is too long for the file system of the destination";
const NO_SPACE: &str = "no space left at the destination";
const NO_INODES: &str = "no inodes (places for files) left at the destination";

/// Needed and free space, if that was looked at first.
fn too_little(error: &io::Error) -> Option<&TooLittle> {
    error.get_ref()?.downcast_ref()
}

/// True if it is not below what is served.
pub(crate) fn leads_out(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(ConfinedError::Escapes))
}

/// True if the system refused to follow a link.
pub(crate) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// An unpublished file, or a directory of such, that somebody has removed.
#[derive(Debug, thiserror::Error)]
#[error("{0} was removed from the destination before it was published")]
pub(crate) struct Vanished(pub(crate) String);

/// Another file in the place of an unpublished one.
#[derive(Debug, thiserror::Error)]
#[error("somebody has put another file in its place")]
pub(crate) struct Replaced;

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
            Summary::TIMES_NOT_SET | Summary::SOME_TIMES_NOT_SET => {
                "cannot set its modification time"
            }
            Summary::MODES_NOT_SET => "cannot set its permission bits",
            _ => "cannot set its owner and attributes",
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
    fn the_side_stands_behind_what_it_is() {
        let named = |code, reason: &str| with_side(EntryEnd::new(code, reason), "at the server");
        let full = EntryEnd::new(OutOfResources, "the server has no memory left; list it in parts");
        assert_eq!(at_server(full.clone()), full);
        for (code, reason, expected) in [
            (Permission, "no permission to read it", "no permission to read it at the server"),
            (ReadError, "cannot be read: Input: x", "cannot be read at the server: Input: x"),
            (
                Failed,
                "it ends early, so it is not copied",
                "it ends early at the server, so it is not copied",
            ),
            (Name, "another source has the same name", "another source has the same name"),
            (Skipped, "it is a FIFO", "it is a FIFO"),
        ] {
            assert_eq!(named(code, reason), EntryEnd::new(code, expected));
        }
    }

    #[test]
    fn an_attribute_that_cannot_be_set_is_the_step_that_is_named() {
        for (what, doing) in [
            (Summary::TIMES_NOT_SET, "modification time"),
            (Summary::MODES_NOT_SET, "permission bits"),
        ] {
            let error = NotSet::error(what, rustix::io::Errno::IO);
            for step in ["cannot write", "cannot give it its name"] {
                let words = at_destination(step, &error).reason;
                assert!(
                    words.starts_with(&format!(
                        "cannot set its {doing} at the destination: Input/output"
                    )),
                    "{words}"
                );
            }
        }
        // What is to be done is the same as of others.
        let EntryEnd { code, reason: words } = at_destination(
            "cannot write",
            &NotSet::error(Summary::TIMES_NOT_SET, rustix::io::Errno::NOSPC),
        );
        assert_eq!(code, NoSpace);
        assert!(words.contains("no space left") && words.contains("make room"), "{words}");
    }

    #[test]
    fn what_cannot_be_done_at_the_destination_names_it_once() {
        for (errno, words) in [
            (Errno::IO, "cannot write at the destination: Input/output error"),
            (
                Errno::ISDIR,
                "cannot write at the destination: a directory of that name is in the way",
            ),
            (Errno::ACCESS, "cannot write: no permission at the destination"),
        ] {
            let reason = at_destination("cannot write", &errno.into()).reason;
            assert!(reason.starts_with(words), "{reason}");
        }
    }

    #[test]
    fn links_are_called_what_they_are_where_nothing_is_copied_and_where_they_lead_out() {
        let link = in_place(&Errno::LOOP.into());
        assert_eq!(link.code, Refused);
        assert!(link.reason.contains("not followed"), "{link:?}");
        assert_eq!(in_place(&Errno::ACCESS.into()).code, Permission);
        let out = at_source(&ConfinedError::Escapes.into());
        assert_eq!((out.code, &*out.reason), (Refused, "it leads out of the root"));
    }

    #[test]
    fn each_error_of_the_system_has_its_code() {
        let at = |errno: Errno| at_destination("cannot write", &errno.into()).code;
        for (errno, code) in [
            (Errno::NOSPC, NoSpace),
            (Errno::DQUOT, NoSpace),
            (Errno::FBIG, TooLarge),
            (Errno::ROFS, Permission),
            (Errno::ACCESS, Permission),
            (Errno::PERM, Permission),
            (Errno::ISDIR, InTheWay),
            (Errno::NOTDIR, InTheWay),
            (Errno::LOOP, InTheWay),
            (Errno::NOENT, NotFound),
            (Errno::NAMETOOLONG, Name),
            (Errno::MFILE, OutOfResources),
            (Errno::NFILE, OutOfResources),
            (Errno::NOMEM, OutOfResources),
            (Errno::IO, WriteError),
            (Errno::STALE, WriteError),
        ] {
            assert_eq!(at(errno), code, "{errno}");
        }
        for (errno, code) in [
            (Errno::NOENT, Changed),
            (Errno::LOOP, Changed),
            (Errno::ISDIR, Changed),
            (Errno::NOTDIR, Changed),
            (Errno::ACCESS, Permission),
            (Errno::MFILE, OutOfResources),
            (Errno::NOMEM, OutOfResources),
            (Errno::IO, ReadError),
        ] {
            assert_eq!(at_source(&errno.into()).code, code, "{errno}");
        }
        assert_eq!(at_root(&Errno::NOENT.into()).code, NotFound);
        let own = |error| at_destination("cannot write", &error).code;
        assert_eq!(own(io::Error::other(Obstacle(crate::special::Special::Fifo))), InTheWay);
        assert_eq!(own(io::Error::new(ErrorKind::NotFound, Vanished("x".into()))), Changed);
        assert_eq!(own(io::Error::other(Replaced)), Changed);
    }
}
