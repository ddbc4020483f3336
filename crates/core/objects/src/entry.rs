use core::cmp::Ordering;
use core::fmt;

use longhaul_wire::{DataRanges, Entry, EntryKind, MAX_ATTRIBUTES, MAX_PATH};

use crate::limits::{
    DATA_RANGE_COST, ENTRY_COST, LARGE_FILE_MIN, METADATA_COST, METADATA_SPREAD, OBJECT_MAX,
};

/// Number of an entry of the manifest, from 0 in the order of the scan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId(pub u32);

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry{}", self.0)
    }
}

impl EntryId {
    /// The number as messages carry it.
    pub const fn as_wire(self) -> u64 {
        self.0 as u64
    }
}

/// Why an entry is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// A link without target, or with too long a one or a zero byte in it.
    #[error("the target of the link is not allowed")]
    Target,
    /// A directory or link with a size, or a file larger than [`OBJECT_MAX`].
    #[error("the size is not allowed")]
    Size,
    /// Data that is not in the file, or is all of it, or is of no file.
    #[error("the holes are not allowed")]
    Holes,
    /// Attributes that do not fit into a message.
    #[error(
        "its extended attributes and access lists take more than 64 KiB: without -X and -A it is copied"
    )]
    Attributes,
    /// Attributes that the request does not keep, or that no such thing has.
    #[error("it has attributes that were not asked for")]
    NotKept,
}

/// Checks what a valid path does not say.
pub(crate) fn check(entry: &Entry) -> Result<(), EntryError> {
    if let EntryKind::Link { target } = &entry.kind
        && (target.is_empty() || target.len() > MAX_PATH || target.contains(&0))
    {
        return Err(EntryError::Target);
    }
    if entry.size > OBJECT_MAX || entry.kind != EntryKind::File && entry.size != 0 {
        return Err(EntryError::Size);
    }
    if let Some(data) = &entry.attributes.data
        && (entry.kind != EntryKind::File || !data.fit(entry.size))
    {
        return Err(EntryError::Holes);
    }
    if entry.attributes.body_len() > MAX_ATTRIBUTES {
        return Err(EntryError::Attributes);
    }
    let metadata = entry.attributes.metadata.as_deref();
    if metadata.is_some_and(|metadata| !metadata.fits(&entry.kind)) {
        return Err(EntryError::NotKept);
    }
    Ok(())
}

/// True if its contents are an object of their own, which is written bit by bit: a file of at least
/// [`LARGE_FILE_MIN`], or one with holes, that has any data, and is no later name of another.
pub fn is_large(entry: &Entry) -> bool {
    let data = entry.attributes.data.as_ref();
    let is_large = data.map_or(entry.size >= LARGE_FILE_MIN, |data| data.total() > 0);
    is_large && entry.linked_to().is_none()
}

/// True of what stands for something that the source cannot send: it fails at once (docs/protocol.md 7.10-12).
pub(crate) fn is_stand_in(entry: &Entry) -> bool {
    let Entry { kind, mode, modified, size, identity, .. } = entry;
    *kind == EntryKind::File && (*mode, *modified, *size, identity) == (0, 0, 1, &[0; 16])
}

/// Memory that a file or link takes until it is settled.
pub(crate) fn cost(entry: &Entry) -> u64 {
    let target = match &entry.kind {
        EntryKind::Link { target } => target.len(),
        EntryKind::File | EntryKind::Directory => 0,
    };
    let ranges = entry.attributes.data.as_ref().map_or(0, |data| data.iter().len() as u64);
    let path = (entry.path.as_bytes().len() + target) as u64;
    let metadata = metadata_cost(entry.attributes.metadata_len());
    ENTRY_COST + path + DATA_RANGE_COST * ranges + metadata
}

/// Memory for metadata that takes so many bytes in a manifest.
pub(crate) fn metadata_cost(len: usize) -> u64 {
    if len > 0 { METADATA_COST + METADATA_SPREAD * len as u64 } else { 0 }
}

/// Its own name: the last component of the path.
pub(crate) fn own_name(entry: &Entry) -> &[u8] {
    entry.path.components().next_back().unwrap_or_default()
}

/// Path of the directory that holds the entry; `None` at the top.
pub(crate) fn parent(entry: &Entry) -> Option<&[u8]> {
    let path = entry.path.as_bytes();
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    path.get(..slash)
}

/// Key of the entry in the resume record.
pub(crate) fn key(entry: &Entry) -> EntryKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&entry.identity);
    hasher.update(&entry.size.to_be_bytes());
    hasher.update(&entry.modified.to_be_bytes());
    hasher.update(entry.path.as_bytes());
    if let Some(data) = &entry.attributes.data {
        hash_ranges(hasher.update(&[0]), data);
    }
    EntryKey(first_16(&hasher))
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
/// large file is new whenever the file is started again, so that claims of the resume record never
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

/// Identity of a file at the source, from the operating system.
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
/// of it, each number as 64 bits, big-endian (docs/protocol.md section 7.4). Of a file with holes also over
/// the ranges of its `data`: file systems may move these without a trace, and then other bytes are sent.
pub fn identity(file: &FileIdentity, data: Option<&DataRanges>) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for number in [file.device, file.inode, file.size, file.modified as u64, file.changed as u64] {
        hasher.update(&number.to_be_bytes());
    }
    if let Some(data) = data {
        hash_ranges(&mut hasher, data);
    }
    first_16(&hasher)
}

fn hash_ranges(hasher: &mut blake3::Hasher, data: &DataRanges) {
    for range in data.iter() {
        hasher.update(&range.start.to_be_bytes());
        hasher.update(&range.end.to_be_bytes());
    }
}

/// Key that two entries of one path have in common.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct PathKey([u8; 16]);

impl PathKey {
    pub(crate) fn of(path: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(path);
        Self(first_16(&hasher))
    }
}

/// Every comparison comes here, so that tests can count what a search among paths costs.
impl Ord for PathKey {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        tests::count_comparison();
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for PathKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
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
pub(crate) mod tests {
    extern crate std;

    use core::cell::Cell;

    use super::*;
    use crate::testing::file;
    use alloc::vec;

    std::thread_local! {
        /// Comparisons of [`PathKey`]s by this test.
        static COMPARISONS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count_comparison() {
        COMPARISONS.set(COMPARISONS.get() + 1);
    }

    /// Takes the number of comparisons since the last call.
    pub(crate) fn take_comparisons() -> u64 {
        COMPARISONS.take()
    }

    #[test]
    fn kinds_have_what_they_need_and_no_more() {
        let kind = EntryKind::Link { target: b"x".to_vec() };
        let link = Entry { kind, size: 0, ..file("a", 0) };
        assert_eq!(check(&link), Ok(()));
        assert_eq!(check(&Entry { size: 1, ..link }), Err(EntryError::Size));
        for target in [vec![], vec![0], vec![b'a'; MAX_PATH + 1]] {
            let kind = EntryKind::Link { target };
            assert_eq!(check(&Entry { kind, ..file("a", 0) }), Err(EntryError::Target));
        }
        let directory = Entry { kind: EntryKind::Directory, ..file("a", 1) };
        assert_eq!(check(&directory), Err(EntryError::Size));
        assert_eq!(check(&file("a", OBJECT_MAX)), Ok(()));
        assert_eq!(check(&file("a", OBJECT_MAX + 1)), Err(EntryError::Size));
        let mut sparse = file("a", 9);
        for (ranges, expected) in [
            (vec![], Ok(())),
            (vec![1..2, 8..9], Ok(())),
            (vec![1..2, 8..10], Err(EntryError::Holes)),
        ] {
            sparse.attributes.data = DataRanges::new(ranges);
            assert_eq!(check(&sparse), expected);
        }
        sparse.attributes.data = DataRanges::new(vec![]);
        let directory = Entry { kind: EntryKind::Directory, size: 0, ..sparse };
        assert_eq!(check(&directory), Err(EntryError::Holes));
    }

    #[test]
    fn keys_tell_entries_apart() {
        let entry = file("a/b", 1);
        assert_eq!(parent(&entry), Some(&b"a"[..]));
        assert_eq!(parent(&file("a", 1)), None);
        assert_eq!(key(&entry), key(&entry.clone()));
        assert_ne!(key(&entry), key(&Entry { modified: 1, ..entry.clone() }));
        assert_ne!(key(&entry), key(&Entry { identity: [1; 16], ..entry.clone() }));
        assert_ne!(key(&entry), key(&file("a/c", 1)));
        let sparse = |ranges| {
            let mut sparse = file("a/b", 9);
            sparse.attributes.data = DataRanges::new(ranges);
            sparse
        };
        assert_ne!(key(&sparse(vec![1..2, 4..5])), key(&sparse(vec![2..3, 4..5])));
        assert_ne!(key(&sparse(vec![])), key(&file("a/b", 9)));
        let key = key(&entry);
        assert_ne!(TempName::of_large(key, &[0; 16]), TempName::of_large(key, &[1; 16]));
    }
}
