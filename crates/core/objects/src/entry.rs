use alloc::boxed::Box;
use core::fmt;

use crate::limits::{OBJECT_MAX, PATH_MAX};

/// Number of an entry of the manifest, from 0 in the order of the scan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId(pub u32);

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry{}", self.0)
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

/// A file, directory or symbolic link, as the source describes it
/// (docs/protocol.md section 7.2).
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u16,
    /// Modification time, signed nanoseconds since 1970.
    pub modified: i64,
    /// Bytes of a file; 0 for the others.
    pub size: u64,
    /// What the contents are known by when a transfer is resumed; see [`identity`].
    pub identity: [u8; 16],
    /// Relative path, components separated by `/`. Empty for the root of the copy itself.
    pub path: Box<[u8]>,
    /// Target of a link; empty for the others.
    pub target: Box<[u8]>,
}

/// Why an entry is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Empty component, `.`, `..`, leading or trailing `/`, a zero byte, or too long.
    #[error("the path is not allowed")]
    Path,
    /// A link without target or with too long a one, or another entry with one.
    #[error("the target is not allowed")]
    Target,
    /// A directory or link with a size, or a file larger than [`OBJECT_MAX`].
    #[error("the size is not allowed")]
    Size,
}

impl Entry {
    /// Checks everything that can be seen from the entry alone.
    pub fn check(&self) -> Result<(), EntryError> {
        let path_safe = self.path.is_empty()
            || self.path.len() <= PATH_MAX
                && !self.path.contains(&0)
                && self
                    .path
                    .split(|&byte| byte == b'/')
                    .all(|part| !matches!(part, b"" | b"." | b".."));
        if !path_safe {
            return Err(EntryError::Path);
        }
        let is_link = self.kind == EntryKind::Link;
        if is_link == self.target.is_empty()
            || self.target.len() > PATH_MAX
            || self.target.contains(&0)
        {
            return Err(EntryError::Target);
        }
        if self.size > OBJECT_MAX || self.kind != EntryKind::File && self.size != 0 {
            return Err(EntryError::Size);
        }
        Ok(())
    }

    /// Whether the entry has contents, and so belongs to an object.
    pub fn has_contents(&self) -> bool {
        self.size > 0
    }

    /// Path of the directory that holds the entry; `None` at the top.
    pub fn parent(&self) -> Option<&[u8]> {
        let slash = self.path.iter().rposition(|&byte| byte == b'/')?;
        self.path.get(..slash)
    }

    /// What the entry is known by in the resume record.
    pub fn key(&self) -> EntryKey {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.identity);
        hasher.update(&self.size.to_be_bytes());
        hasher.update(&self.modified.to_be_bytes());
        hasher.update(&self.path);
        EntryKey(first_16(&hasher))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {:?} {} B",
            self.kind,
            alloc::string::String::from_utf8_lossy(&self.path),
            self.size
        )
    }
}

/// An entry in the resume record: its path and what identifies its contents. An entry that
/// changed at the source has another key, so nothing recorded is taken for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey(pub [u8; 16]);

impl fmt::Debug for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

/// Name of the file that an entry's contents are written to before they are published.
/// [`fmt::Display`] gives 32 hexadecimal digits.
///
/// That of a small file depends on its key alone, so that a later run uses it again. That of a
/// large file is new whenever the file is begun anew, so that claims of the resume record never
/// meet another file than the one they were made for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TempName(pub [u8; 16]);

impl TempName {
    pub(crate) fn of_small(key: EntryKey) -> Self {
        Self(key.0)
    }

    pub(crate) fn of_large(key: EntryKey, nonce: &[u8; 16]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&key.0);
        hasher.update(nonce);
        Self(first_16(&hasher))
    }
}

impl fmt::Display for TempName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for TempName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

/// What the operating system says of a file at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Number of the device.
    pub device: u64,
    /// Number of the inode on it.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time, signed nanoseconds since 1970.
    pub modified: i64,
    /// Status change time, signed nanoseconds since 1970.
    pub changed: i64,
}

/// The identity of a file's contents: 16 bytes of BLAKE3 over what the operating system says
/// of it, each number as 64 bits, big-endian (docs/protocol.md section 7.4).
pub fn identity(file: &FileIdentity) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for number in [file.device, file.inode, file.size, file.modified as u64, file.changed as u64] {
        hasher.update(&number.to_be_bytes());
    }
    first_16(&hasher)
}

/// What two entries of one path have in common.
pub(crate) fn path_key(path: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(path);
    first_16(&hasher)
}

pub(crate) fn first_16(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    first
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &[u8]) -> Entry {
        Entry {
            kind: EntryKind::File,
            mode: 0o644,
            modified: 0,
            size: 1,
            identity: [0; 16],
            path: path.into(),
            target: Box::default(),
        }
    }

    #[test]
    fn unsafe_paths_are_refused() {
        for path in [&b"/a"[..], b"a/", b"a//b", b".", b"..", b"a/../b", b"a/.", b"a\0b", b"/"] {
            assert_eq!(file(path).check(), Err(EntryError::Path), "{path:?}");
        }
        for path in [&b""[..], b"a", b"a/b", b"...", b".a/b..", b"\xff"] {
            assert_eq!(file(path).check(), Ok(()), "{path:?}");
        }
        assert_eq!(file(&[b'a'; PATH_MAX + 1]).check(), Err(EntryError::Path));
    }

    #[test]
    fn kinds_have_what_they_need_and_no_more() {
        let link = Entry { kind: EntryKind::Link, size: 0, target: (*b"x").into(), ..file(b"a") };
        assert_eq!(link.check(), Ok(()));
        assert_eq!(Entry { size: 1, ..link.clone() }.check(), Err(EntryError::Size));
        assert_eq!(Entry { target: Box::default(), ..link }.check(), Err(EntryError::Target));
        assert_eq!(Entry { target: (*b"x").into(), ..file(b"a") }.check(), Err(EntryError::Target));
        assert_eq!(Entry { size: OBJECT_MAX + 1, ..file(b"a") }.check(), Err(EntryError::Size));
    }

    #[test]
    fn keys_tell_entries_apart() {
        let entry = file(b"a/b");
        assert_eq!(entry.parent(), Some(&b"a"[..]));
        assert_eq!(entry.key(), entry.clone().key());
        assert_ne!(entry.key(), Entry { modified: 1, ..entry.clone() }.key());
        assert_ne!(entry.key(), Entry { identity: [1; 16], ..entry.clone() }.key());
        assert_ne!(entry.key(), file(b"a/c").key());
        let key = entry.key();
        assert_ne!(TempName::of_large(key, &[0; 16]), TempName::of_large(key, &[1; 16]));
    }
}
