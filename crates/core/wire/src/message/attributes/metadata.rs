use alloc::boxed::Box;
use alloc::vec::Vec;

use super::built;
use crate::error::{DecodeError, Full};
use crate::message::{EntryKind, EntryPath, MAX_PATH};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// Attributes that a copy keeps beside times and permission bits less the umask, as bits of REQUEST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptAttributes(u64);

impl KeptAttributes {
    /// All bits of the mode, whatever the umask is: set-user-ID, set-group-ID and sticky as well.
    pub const MODES: Self = Self(1);
    /// Users that own.
    pub const OWNERS: Self = Self(2);
    /// Groups that own.
    pub const GROUPS: Self = Self(4);
    /// Extended attributes.
    pub const XATTRS: Self = Self(8);
    /// POSIX access lists.
    pub const ACCESS_LISTS: Self = Self(16);
    /// Hard links: names of one file stay that.
    pub const HARD_LINKS: Self = Self(32);
    /// Users and groups by their numbers, not their names.
    pub const NUMBERS: Self = Self(64);
    /// Everything.
    pub const ALL: Self = Self(0b111_1111);
    /// Not an attribute: symbolic links are taken for what they point at.
    pub const FOLLOW: Self = Self(128);

    /// These bits; nothing where one of them means nothing.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits & !(Self::ALL.0 | Self::FOLLOW.0) == 0).then_some(Self(bits))
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// True if it has one of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// It with `other`, or without.
    #[must_use]
    pub const fn with(self, other: Self, kept: bool) -> Self {
        Self(if kept { self.0 | other.0 } else { self.0 & !other.0 })
    }

    /// True if it keeps nothing.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Metadata of an entry, as far as the request keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The user that owns it.
    pub owner: Option<Account>,
    /// The group that does.
    pub group: Option<Account>,
    /// Extended attributes, ascending by name.
    pub xattrs: Vec<Xattr>,
    /// Access list: of no link.
    pub access: Option<AccessList>,
    /// Access list of what is made in it: of a directory.
    pub default_access: Option<AccessList>,
    /// Of a file or link with several names.
    pub hard_link: Option<HardLink>,
    /// Of a first name: some of the others, none empty, which come later. At most [`OTHER_NAMES_MAX`].
    pub other_names: Vec<EntryPath>,
}

/// A name of a file or link that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardLink {
    /// The first that is announced.
    First,
    /// A later one; the first is the entry with this number.
    To(u64),
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Number at the source.
    pub id: u32,
    /// Name there: at most 255 bytes, none zero; empty where numbers are kept, or it has none.
    pub name: Box<[u8]>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Name, of 1 to 255 bytes, none zero, not in `system.`.
    pub name: Box<[u8]>,
    /// Value.
    pub value: Box<[u8]>,
}

/// A POSIX access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList(pub Vec<AccessEntry>);

/// An entry of an access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// Kind, as Linux has it: 1 owner, 2 a user, 4 owning group, 8 a group, 16 mask, 32 others.
    pub tag: u8,
    /// Permissions: 1 execute, 2 write, 4 read.
    pub permissions: u8,
    /// Of kinds 2 and 8.
    pub account: Option<Account>,
}

impl Metadata {
    /// It, if it holds anything.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    /// True if it is only of what `kept` keeps.
    pub fn is_within(&self, kept: KeptAttributes) -> bool {
        use KeptAttributes as Kept;
        let parts = [
            (self.owner.is_some(), Kept::OWNERS),
            (self.group.is_some(), Kept::GROUPS),
            (!self.xattrs.is_empty(), Kept::XATTRS),
            (self.access.is_some() || self.default_access.is_some(), Kept::ACCESS_LISTS),
            (self.hard_link.is_some(), Kept::HARD_LINKS),
        ];
        parts.iter().all(|(has, part)| !has || kept.has(*part))
    }

    /// True if what such an entry has may have all of it.
    pub fn fits(&self, kind: &EntryKind) -> bool {
        let is_link = matches!(kind, EntryKind::Link { .. });
        let is_directory = matches!(kind, EntryKind::Directory);
        (self.access.is_none() || !is_link)
            && (self.default_access.is_none() || is_directory)
            && (self.hard_link.is_none() || !is_directory)
    }

    /// Type and value of each part, by ascending type.
    pub(super) fn values(&self) -> impl Iterator<Item = (u64, Vec<u8>)> + '_ {
        let account = |account: &Account| built(|w| account.encode(w));
        let owner = self.owner.as_ref().map(|it| (OWNER, account(it)));
        let group = self.group.as_ref().map(|it| (GROUP, account(it)));
        let xattrs = (!self.xattrs.is_empty()).then(|| {
            let each = |w: &mut Writer<'_>| self.xattrs.iter().try_for_each(|it| it.encode(w));
            (XATTRS, built(each))
        });
        let list = |list: &AccessList| built(|w| list.0.iter().try_for_each(|it| it.encode(w)));
        let access = self.access.as_ref().map(|it| (ACCESS, list(it)));
        let default_access = self.default_access.as_ref().map(|it| (DEFAULT_ACCESS, list(it)));
        let hard_link = self.hard_link.map(|link| match link {
            HardLink::First => (HARD_LINK, Vec::new()),
            HardLink::To(first) => (HARD_LINK, built(|w| w.varint(first))),
        });
        let other_names = (!self.other_names.is_empty()).then(|| {
            let each = |w: &mut Writer<'_>| {
                self.other_names.iter().try_for_each(|path| w.sized(path.as_bytes()))
            };
            (OTHER_NAMES, built(each))
        });
        let links = [hard_link, other_names];
        [owner, group, xattrs, access, default_access].into_iter().chain(links).flatten()
    }

    pub(super) fn decode(&mut self, kind: u64, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        match kind {
            OWNER => self.owner = Some(Account::decode(r)?),
            GROUP => self.group = Some(Account::decode(r)?),
            XATTRS => {
                while !r.is_empty() {
                    let next = Xattr::decode(r)?;
                    if self.xattrs.last().is_some_and(|past| past.name >= next.name) {
                        return Err(r.invalid());
                    }
                    self.xattrs.push(next);
                }
                if self.xattrs.is_empty() {
                    return Err(r.invalid());
                }
            }
            ACCESS => self.access = Some(AccessList::decode(r)?),
            DEFAULT_ACCESS => self.default_access = Some(AccessList::decode(r)?),
            HARD_LINK if r.is_empty() => self.hard_link = Some(HardLink::First),
            HARD_LINK => self.hard_link = Some(HardLink::To(r.varint()?)),
            OTHER_NAMES if self.hard_link == Some(HardLink::First) => {
                while !r.is_empty() {
                    let path = EntryPath::new(r.sized(MAX_PATH)?.to_vec());
                    let path = path.ok().filter(|path| !path.is_empty());
                    self.other_names.push(path.ok_or_else(|| r.invalid())?);
                }
                if self.other_names.is_empty() || self.other_names.len() > OTHER_NAMES_MAX {
                    return Err(r.invalid());
                }
            }
            _ => return Err(r.invalid()),
        }
        r.finish()
    }
}

impl Account {
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(self.id.into())?;
        w.sized(&self.name)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = u32::try_from(r.varint()?).ok().filter(|id| *id != u32::MAX);
        let id = id.ok_or_else(|| r.invalid())?;
        let name = r.sized(NAME_MAX)?;
        match name.contains(&0) {
            true => Err(r.invalid()),
            false => Ok(Self { id, name: name.into() }),
        }
    }
}

impl Xattr {
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.sized(&self.name)?;
        w.sized(&self.value)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = r.sized(NAME_MAX)?;
        let value = r.sized(super::MAX_ATTRIBUTES)?;
        if name.is_empty() || name.contains(&0) || name.starts_with(b"system.") {
            return Err(r.invalid());
        }
        Ok(Self { name: name.into(), value: value.into() })
    }
}

impl AccessList {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut entries = Vec::new();
        while !r.is_empty() {
            entries.push(AccessEntry::decode(r)?);
        }
        match entries.is_empty() {
            true => Err(r.invalid()),
            false => Ok(Self(entries)),
        }
    }
}

impl AccessEntry {
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u8(self.tag)?;
        w.u8(self.permissions)?;
        self.account.iter().try_for_each(|account| account.encode(w))
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (tag, permissions) = (r.u8()?, r.u8()?);
        if tag.count_ones() != 1 || tag > 32 || permissions > 7 {
            return Err(r.invalid());
        }
        let account = matches!(tag, 2 | 8).then(|| Account::decode(r)).transpose()?;
        Ok(Self { tag, permissions, account })
    }
}

/// Most names of [`Metadata::other_names`].
pub const OTHER_NAMES_MAX: usize = 32;

/// Longest name of an account or an extended attribute.
pub(super) const NAME_MAX: usize = 255;

const OWNER: u64 = 2;
const GROUP: u64 = 3;
const XATTRS: u64 = 4;
const ACCESS: u64 = 5;
const DEFAULT_ACCESS: u64 = 6;
const HARD_LINK: u64 = 7;
const OTHER_NAMES: u64 = 8;

/// Each type takes one byte.
const _: () = assert!(varint::len(OTHER_NAMES) == 1);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn what_no_source_may_send_is_refused() {
        let decode =
            |kind, bytes: &[u8]| Metadata::default().decode(kind, &mut Reader::new(bytes, ""));
        for (kind, right) in [
            (OWNER, &b"\x07\x03ann"[..]),
            (GROUP, b"\x00\x00"),
            (XATTRS, b"\x06user.a\x01x\x06user.b\x00"),
            (ACCESS, b"\x01\x07\x02\x04\x07\x03ann\x20\x00"),
            (HARD_LINK, b""),
            (HARD_LINK, b"\x40\x80"),
        ] {
            assert_eq!(decode(kind, right), Ok(()), "{kind}: {right:?}");
            for cut in 1..right.len() {
                let _ = decode(kind, &right[..cut]);
            }
        }
        for (kind, wrong) in [
            (OWNER, &b"\xc0\x00\x00\x00\xff\xff\xff\xff\x00"[..]),
            (OWNER, b"\x07\x03a\x00n"),
            (OWNER, b"\x07\x03anna"),
            (XATTRS, b""),
            (XATTRS, b"\x00\x01x"),
            (XATTRS, b"\x06user.b\x01x\x06user.a\x00"),
            (XATTRS, b"\x06user.a\x01x\x06user.a\x00"),
            (XATTRS, b"\x0dsystem.posix_\x00"),
            (ACCESS, b""),
            (ACCESS, b"\x03\x07"),
            (ACCESS, b"\x40\x07"),
            (ACCESS, b"\x01\x08"),
            (HARD_LINK, b"\x00\x00"),
            (HARD_LINK, b"\x40"),
            (OTHER_NAMES, b"\x01a"),
            (9, b"\x00"),
        ] {
            assert!(decode(kind, wrong).is_err(), "{kind}: {wrong:?}");
        }
    }

    #[test]
    fn metadata_is_of_what_was_asked_for() {
        let account = Account { id: 7, name: Box::default() };
        let owned = Metadata { owner: Some(account), ..Metadata::default() };
        assert!(owned.is_within(KeptAttributes::OWNERS));
        assert!(!owned.is_within(KeptAttributes::GROUPS.with(KeptAttributes::XATTRS, true)));
        let (name, value) = (b"user.a"[..].into(), Box::default());
        let with_xattr = Metadata { xattrs: vec![Xattr { name, value }], ..Metadata::default() };
        assert!(!with_xattr.is_within(KeptAttributes::OWNERS));
        let linked = Metadata { hard_link: Some(HardLink::First), ..Metadata::default() };
        assert!(linked.is_within(KeptAttributes::HARD_LINKS));
        assert!(!linked.is_within(KeptAttributes::ALL.with(KeptAttributes::HARD_LINKS, false)));
        assert!(linked.fits(&EntryKind::File) && !linked.fits(&EntryKind::Directory));
        assert!(Metadata::default().is_within(KeptAttributes::default()));
        assert_eq!(KeptAttributes::from_bits(128), Some(KeptAttributes::FOLLOW));
        assert_eq!(KeptAttributes::from_bits(256), None);
    }
}
