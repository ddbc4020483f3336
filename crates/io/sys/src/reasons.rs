//! Errors of the system that a user can do something about, in words: those of files and addresses that he has named.

use std::io::{self, ErrorKind};

use crate::descriptors;

/// Why a file, or what is in a directory, could not be read.
pub fn unread(error: &io::Error) -> String {
    let words = match error.kind() {
        ErrorKind::NotFound => "there is no such file",
        ErrorKind::IsADirectory => "it is a directory",
        ErrorKind::NotADirectory => "what it should be in is no directory",
        ErrorKind::PermissionDenied => "no permission to read it",
        ErrorKind::InvalidData => "it is no text in UTF-8",
        _ => return descriptors::explained(error),
    };
    words.into()
}

/// Why a file could not be made, written or removed.
pub fn unwritten(error: &io::Error) -> String {
    let words = match error.kind() {
        ErrorKind::NotFound => "there is no such directory",
        ErrorKind::IsADirectory => "it is a directory",
        ErrorKind::NotADirectory => "what it should be in is no directory",
        ErrorKind::PermissionDenied => "no permission to write there",
        ErrorKind::ReadOnlyFilesystem => "its file system is read-only",
        ErrorKind::StorageFull => "no space is left there",
        _ => return descriptors::explained(error),
    };
    words.into()
}

/// Why nobody can listen at an address.
pub fn unbound(error: &io::Error) -> String {
    let words = match error.kind() {
        ErrorKind::AddrInUse => "another program uses the port",
        ErrorKind::AddrNotAvailable => "it is no address of this host",
        ErrorKind::PermissionDenied => "no permission to take that port",
        _ => return descriptors::explained(error),
    };
    words.into()
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_a_user_can_mend_has_words_of_our_own() {
        let words = |of: fn(&io::Error) -> String, errno: Errno| of(&errno.into());
        for errno in [Errno::NOENT, Errno::ISDIR, Errno::NOTDIR, Errno::ACCESS, Errno::PERM] {
            for of in [unread as fn(&io::Error) -> String, unwritten] {
                assert!(!words(of, errno).contains(&io::Error::from(errno).to_string()), "{errno}");
            }
        }
        assert_eq!(words(unread, Errno::PERM), words(unread, Errno::ACCESS));
        assert_eq!(words(unbound, Errno::ADDRINUSE), "another program uses the port");
        assert!(words(unread, Errno::IO).starts_with("Input/output error"));
        assert!(words(unread, Errno::MFILE).contains("LimitNOFILE"));
    }
}
