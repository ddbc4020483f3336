use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use longhaul_units::shown_path;

use super::attributes::{Attributes, HardLink, MAX_ATTRIBUTES, OTHER_NAMES_MAX};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// Most bytes of the other names that are announced with a first.
const OTHER_NAMES_LEN: usize = 4096;

/// Longest path and longest target of a link, in bytes.
pub const MAX_PATH: usize = 4096;

/// One file, directory or symbolic link of a manifest (docs/protocol.md section 7.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Permission bits; only the low twelve are written.
    pub mode: u16,
    /// Time of the last modification in nanoseconds since 1970.
    pub modified: i64,
    /// Bytes of a file's contents.
    pub size: u64,
    /// Identity of this state of the source (docs/protocol.md section 7.4).
    pub identity: [u8; 16],
    /// Where it goes below the destination.
    pub path: EntryPath,
    /// Attributes, which few entries have.
    pub attributes: Attributes,
}

/// Kind of an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Where it points, as the source has it: 1 to [`MAX_PATH`] bytes, none of them zero.
        target: Vec<u8>,
    },
}

impl Entry {
    /// Number of bytes that the entry takes in a MANIFEST.
    pub fn encoded_len(&self) -> usize {
        let sized = |bytes: &[u8]| varint::len(bytes.len() as u64) + bytes.len();
        let target = match &self.kind {
            EntryKind::Link { target } => sized(target),
            EntryKind::File | EntryKind::Directory => 0,
        };
        let fixed = 1 + 2 + 8 + varint::len(self.size) + 16;
        fixed + sized(&self.path.0) + target + self.attributes.encoded_len()
    }

    /// Bytes of its contents that are sent: all but holes, and none of a later name.
    pub fn data_len(&self) -> u64 {
        match self.linked_to() {
            Some(_) => 0,
            None => self.contents_len(),
        }
    }

    /// Bytes of its contents without holes, whichever of its names they are sent under.
    pub fn contents_len(&self) -> u64 {
        self.attributes.data.as_ref().map_or(self.size, |data| data.total())
    }

    fn hard_link(&self) -> Option<HardLink> {
        self.attributes.metadata.as_deref()?.hard_link
    }

    /// True if it is the first of several names.
    pub fn is_first_name(&self) -> bool {
        self.hard_link() == Some(HardLink::First)
    }

    /// Of a first name: some of the others.
    pub fn other_names(&self) -> &[EntryPath] {
        self.attributes.metadata.as_deref().map_or(&[], |metadata| &metadata.other_names)
    }

    /// Where it is a later name, the number of the entry that is the first.
    pub fn linked_to(&self) -> Option<u64> {
        match self.hard_link()? {
            HardLink::First => None,
            HardLink::To(first) => Some(first),
        }
    }

    /// The same entry as this one of several names.
    #[must_use]
    pub fn with_link(mut self, link: HardLink) -> Self {
        let metadata = self.attributes.metadata.get_or_insert_default();
        metadata.hard_link = Some(link);
        if link != HardLink::First {
            metadata.other_names.clear();
        }
        self
    }

    /// Names as many of the `others`, which come later, as there is room for. It becomes a first name.
    pub fn name_others<'a>(&mut self, others: impl Iterator<Item = &'a EntryPath>) {
        let left = MAX_ATTRIBUTES.saturating_sub(self.attributes.body_len());
        let mut room = OTHER_NAMES_LEN.min(left.saturating_sub(OTHER_NAMES_LEN));
        let others = others.take(OTHER_NAMES_MAX).take_while(|path| {
            let len = varint::len(path.0.len() as u64) + path.0.len();
            let fits = len <= room;
            room = room.saturating_sub(len);
            fits
        });
        let others = others.cloned().collect();
        let metadata = self.attributes.metadata.get_or_insert_default();
        (metadata.hard_link, metadata.other_names) = (Some(HardLink::First), others);
    }

    /// Where `len` of these bytes, from number `from` on, are in the file: parts of it, in order.
    pub fn parts(&self, from: u64, len: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let data = self.attributes.data.as_ref();
        let whole = data.is_none().then(|| from..from.saturating_add(len));
        whole.into_iter().chain(data.into_iter().flat_map(move |data| data.parts(from, len)))
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let kind = match self.kind {
            EntryKind::File => FILE,
            EntryKind::Directory => DIRECTORY,
            EntryKind::Link { .. } => LINK,
        };
        w.u8(if self.attributes.is_empty() { kind } else { kind | WITH_ATTRIBUTES })?;
        w.u16(self.mode & MODE_BITS)?;
        w.bytes(&self.modified.to_be_bytes())?;
        w.varint(self.size)?;
        w.bytes(&self.identity)?;
        w.sized(&self.path.0)?;
        match &self.kind {
            EntryKind::Link { target } => w.sized(target)?,
            EntryKind::File | EntryKind::Directory => {}
        }
        if self.attributes.is_empty() { Ok(()) } else { self.attributes.encode(w) }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = r.u8()?;
        let mode = r.u16()?;
        let modified = i64::from_be_bytes(r.array()?);
        let size = r.varint()?;
        let identity = r.array()?;
        let path = EntryPath::new(r.sized(MAX_PATH)?.to_vec())
            .map_err(|_| DecodeError::Invalid { what: "path of an entry" })?;
        let has_attributes = kind & WITH_ATTRIBUTES != 0;
        let kind = match kind & !WITH_ATTRIBUTES {
            FILE => EntryKind::File,
            DIRECTORY => EntryKind::Directory,
            LINK => EntryKind::Link {
                target: link_target(r)?.ok_or(DecodeError::Invalid { what: "target of a link" })?,
            },
            _ => return Err(DecodeError::Invalid { what: "kind of an entry" }),
        };
        if mode & !MODE_BITS != 0 {
            return Err(DecodeError::Invalid { what: "mode of an entry" });
        }
        let attributes =
            if has_attributes { Attributes::decode(r)? } else { Attributes::default() };
        let is_file = kind == EntryKind::File;
        if attributes.data.as_ref().is_some_and(|data| !is_file || !data.fit(size)) {
            return Err(DecodeError::Invalid { what: "data of a file with holes" });
        }
        if attributes.metadata.as_deref().is_some_and(|metadata| !metadata.fits(&kind)) {
            return Err(DecodeError::Invalid { what: "access list or hard link of an entry" });
        }
        Ok(Self { kind, mode, modified, size, identity, path, attributes })
    }
}

/// Reads where a link points; nothing where it can point nowhere.
pub(super) fn link_target(r: &mut Reader<'_>) -> Result<Option<Vec<u8>>, DecodeError> {
    let target = r.sized(MAX_PATH)?;
    Ok((!target.is_empty() && !target.contains(&0)).then(|| target.to_vec()))
}

/// The path of an [`Entry`]: relative, at most [`MAX_PATH`] bytes, components separated by `/`,
/// none of them empty, `.` or `..`, no zero byte. The path of a single copied file may be empty.
///
/// It cannot lead out of the directory that it is resolved in, unless a symbolic link does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryPath(Vec<u8>);

impl EntryPath {
    /// Checks `path`.
    ///
    /// # Errors
    /// It is not of the form that the protocol demands.
    pub fn new(path: Vec<u8>) -> Result<Self, InvalidPath> {
        let bad = |component: &[u8]| matches!(component, b"" | b"." | b"..");
        if path.len() > MAX_PATH
            || path.contains(&0)
            || !path.is_empty() && path.split(|byte| *byte == b'/').any(bad)
        {
            return Err(InvalidPath);
        }
        Ok(Self(path))
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True if the request names the place.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The components, outermost first; none when the path is empty.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EntryPath {
    /// So that a path cannot steer a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_path(&self.0))
    }
}

/// A path is absolute, too long, or has an empty, `.` or `..` component or a zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a relative path of plain components")]
pub struct InvalidPath;

const FILE: u8 = 1;
const DIRECTORY: u8 = 2;
const LINK: u8 = 3;
/// Added to the kind of an entry that has attributes.
const WITH_ATTRIBUTES: u8 = 128;
/// Bits that a mode may have.
pub(super) const MODE_BITS: u16 = 0o7777;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for good in ["", "a", "a/b", ".a", "..a", "a./b..", "a b\n", "\u{e9}"] {
            let path = EntryPath::new(good.into()).unwrap();
            assert_eq!(path.as_bytes(), good.as_bytes());
            assert_eq!(path.components().count(), good.split_terminator('/').count());
        }
        for bad in ["/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/..", "../a", "a\0b"] {
            assert_eq!(EntryPath::new(bad.into()), Err(InvalidPath), "{bad:?}");
        }
        assert!(EntryPath::new(alloc::vec![b'a'; MAX_PATH]).is_ok());
        assert!(EntryPath::new(alloc::vec![b'a'; MAX_PATH + 1]).is_err());
    }

    #[test]
    fn escapes_for_the_terminal() {
        let path = EntryPath::new(b"a\x1b[2J".to_vec()).unwrap();
        assert_eq!(alloc::format!("{path}"), "a\\u{1b}[2J");
    }
}
