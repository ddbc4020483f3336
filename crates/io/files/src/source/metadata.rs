//! Metadata that a copy keeps, read at the source.

use std::collections::BTreeMap;
use std::sync::Mutex;

use longhaul_objects::EntryId;
use longhaul_sys::accounts::{self, AccountKind};
use longhaul_sys::sync::lock;
use longhaul_units::RangeSet;
use longhaul_wire::{KeptAttributes, Metadata, Xattr};
use rustix::fs::Stat;
use rustix::io::Result;

use crate::metadata::access::{self, ACCESS, DEFAULT};
use crate::metadata::node::Node;
use crate::metadata::{Accounts, LISTED, USER};

/// The reader of metadata of one copy.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    kept: KeptAttributes,
    /// Also attributes that are not the user's.
    all: bool,
    accounts: Accounts,
    missed: Mutex<MissedEntries>,
}

/// Attributes of an entry that are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    access_list: bool,
    xattrs: bool,
    /// Of a file that a dry run does not read, and a copy would if the sink has another.
    is_unread: bool,
}

/// Entries with such, each counted once, however often it is read.
#[derive(Debug, Default)]
struct MissedEntries {
    entries: RangeSet,
    access_lists: u64,
    xattrs: u64,
    /// Those that are not read, by number.
    unread: BTreeMap<u64, Missed>,
}

impl Missed {
    /// The same of a file that is not read, if it `is_unread`.
    pub(crate) fn unread(self, is_unread: bool) -> Self {
        Self { is_unread, ..self }
    }
}

impl Reading {
    /// Of what `kept` keeps; attributes that are not the user's too where they are `allowed`, and this
    /// process may see them.
    pub(crate) fn new(kept: KeptAttributes, allowed: bool) -> Self {
        let accounts = Accounts::new(kept.has(KeptAttributes::NUMBERS));
        Self { kept, all: allowed && accounts::own().0 == 0, accounts, ..Self::default() }
    }

    /// True if names of one file are to stay that.
    pub(crate) fn keeps_links(&self) -> bool {
        self.kept.has(KeptAttributes::HARD_LINKS)
    }

    /// True if symbolic links are followed.
    pub(crate) fn follows(&self) -> bool {
        self.kept.has(KeptAttributes::FOLLOW)
    }

    /// True if it has to look at more of a node than its status.
    pub(crate) fn looks_further(&self) -> bool {
        self.kept.has(LISTED)
    }

    /// Reads it, as far as it is kept.
    pub(crate) fn read(
        &self,
        stat: &Stat,
        node: Option<&Node<'_>>,
    ) -> Result<Option<Box<Metadata>>> {
        let account = |bit, kind, id| self.kept.has(bit).then(|| self.accounts.of(kind, id));
        let mut metadata = Metadata {
            owner: account(KeptAttributes::OWNERS, AccountKind::User, stat.st_uid),
            group: account(KeptAttributes::GROUPS, AccountKind::Group, stat.st_gid),
            ..Metadata::default()
        };
        let Some(node) = node.filter(|_| self.looks_further()) else { return Ok(metadata.boxed()) };
        for name in node.xattrs()? {
            if &*name == ACCESS || &*name == DEFAULT {
                if self.kept.has(KeptAttributes::ACCESS_LISTS) {
                    let list = node.xattr(&name)?;
                    let list = list.and_then(|value| access::read(&value, &self.accounts));
                    match &*name == ACCESS {
                        true => metadata.access = list,
                        false => metadata.default_access = list,
                    }
                }
            } else if self.kept.has(KeptAttributes::XATTRS) && self.is_copied(&name) {
                let value = node.xattr(&name)?;
                metadata.xattrs.extend(value.map(|value| Xattr { name, value: value.into() }));
            }
        }
        metadata.xattrs.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(metadata.boxed())
    }

    fn is_copied(&self, name: &[u8]) -> bool {
        name.starts_with(USER) || self.all && !name.starts_with(SYSTEM)
    }

    /// True if there are attributes that it does not keep.
    pub(crate) fn misses_any(&self) -> bool {
        !(self.kept.has(KeptAttributes::XATTRS) && self.kept.has(KeptAttributes::ACCESS_LISTS))
    }

    /// Attributes of a file or directory that are not kept.
    pub(crate) fn missed_of(&self, node: &Node<'_>) -> Missed {
        if !self.misses_any() {
            return Missed::default();
        }
        // One that cannot be asked is copied all the same.
        let names = node.xattrs().unwrap_or_default();
        let misses =
            |bit, of: fn(&[u8]) -> bool| !self.kept.has(bit) && names.iter().any(|name| of(name));
        Missed {
            access_list: misses(KeptAttributes::ACCESS_LISTS, |name| {
                name == ACCESS || name == DEFAULT
            }),
            xattrs: misses(KeptAttributes::XATTRS, |name| name.starts_with(USER)),
            is_unread: false,
        }
    }

    /// An entry has this.
    pub(crate) fn count_missed(&self, id: EntryId, missed: Missed) {
        if !missed.access_list && !missed.xattrs {
            return;
        }
        let mut all = lock(&self.missed);
        if missed.is_unread {
            all.unread.insert(id.as_wire(), missed);
        } else if all.entries.insert_one(id.as_wire()) {
            all.access_lists += u64::from(missed.access_list);
            all.xattrs += u64::from(missed.xattrs);
        }
    }

    /// Entries with access lists and with attributes of the user's that were not kept, or would not be where a copy
    /// read those that `would_change`, too.
    pub(crate) fn missed(&self, would_change: &RangeSet) -> (u64, u64) {
        let all = lock(&self.missed);
        let is_read = |id: &u64| would_change.contains(*id) && !all.entries.contains(*id);
        let more = all.unread.iter().filter(|(id, _)| is_read(id));
        more.fold((all.access_lists, all.xattrs), |(lists, xattrs), (_, missed)| {
            (lists + u64::from(missed.access_list), xattrs + u64::from(missed.xattrs))
        })
    }
}

/// Those that stand for something else.
const SYSTEM: &[u8] = b"system.";
