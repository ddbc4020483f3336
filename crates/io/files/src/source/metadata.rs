//! Metadata that a copy keeps, read at the source.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_sys::accounts::{self, AccountKind};
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
    access_lists: AtomicU64,
    xattrs: AtomicU64,
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

    /// Counts what an open file has that is not kept.
    pub(crate) fn count_missed(&self, file: &impl AsFd) {
        let misses = |bit| !self.kept.has(bit);
        let misses_xattrs = misses(KeptAttributes::XATTRS);
        let misses_lists = misses(KeptAttributes::ACCESS_LISTS);
        if !(misses_xattrs || misses_lists) {
            return;
        }
        // One that cannot be asked is copied all the same.
        let names = Node::open(file).xattrs().unwrap_or_default();
        let has = |of: fn(&[u8]) -> bool| names.iter().any(|name| of(name));
        let lists = misses_lists && has(|name| name == ACCESS);
        let xattrs = misses_xattrs && has(|name| name.starts_with(USER));
        self.access_lists.fetch_add(lists.into(), Ordering::Relaxed);
        self.xattrs.fetch_add(xattrs.into(), Ordering::Relaxed);
    }

    /// Files with access lists and with attributes of the user's that were not kept.
    pub(crate) fn missed(&self) -> (u64, u64) {
        (self.access_lists.load(Ordering::Relaxed), self.xattrs.load(Ordering::Relaxed))
    }
}

/// Those that stand for something else.
const SYSTEM: &[u8] = b"system.";
