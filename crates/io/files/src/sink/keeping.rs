//! Metadata that a copy keeps, set at the destination: the owner first, then the access list and the mode, which
//! a new owner may take away, then capabilities, which both may.

use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_sys::accounts::AccountKind;
use longhaul_wire::{AccessList, Entry, EntryKind, KeptAttributes, Metadata, Summary};
use rustix::fs::Stat;
use rustix::io::{Errno, Result};

use crate::metadata::access::{self, ACCESS, DEFAULT};
use crate::metadata::node::Node;
use crate::metadata::{Accounts, LISTED, USER, is_refusal};
use crate::sink::SinkTree;

/// Attributes that one copy keeps, and what it may set.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    kept: KeptAttributes,
    /// Owners, bits that lend their rights, and attributes that are not the user's may be set.
    allowed: bool,
    accounts: Accounts,
    /// Entries that could not have all.
    not_kept: AtomicU64,
}

impl Keeping {
    pub(crate) fn new(kept: KeptAttributes, allowed: bool) -> Self {
        let accounts = Accounts::new(kept.has(KeptAttributes::NUMBERS));
        let kept = kept.with(KeptAttributes::FOLLOW, false);
        Self { kept, allowed, accounts, not_kept: AtomicU64::new(0) }
    }

    /// Counts an entry that could not have all.
    pub(crate) fn count_not_kept(&self) {
        self.not_kept.fetch_add(1, Ordering::Relaxed);
    }

    /// True if there is anything to do.
    pub(crate) fn is_on(&self) -> bool {
        !self.kept.is_empty()
    }

    /// True if modes are kept as they are.
    pub(crate) fn keeps_modes(&self) -> bool {
        self.kept.has(KeptAttributes::MODES)
    }

    /// True if groups are kept.
    pub(crate) fn keeps_groups(&self) -> bool {
        self.kept.has(KeptAttributes::GROUPS)
    }

    /// True if access lists are kept.
    pub(crate) fn keeps_lists(&self) -> bool {
        self.kept.has(KeptAttributes::ACCESS_LISTS)
    }

    /// Bits of modes that it may set.
    pub(crate) fn mode_bits(&self) -> u32 {
        match (self.keeps_modes(), self.allowed) {
            (true, true) => 0o7777,
            (true, false) => 0o1777,
            (false, _) => 0o777,
        }
    }

    /// True if an attribute of this name may be set.
    fn may_set(&self, name: &[u8]) -> bool {
        self.allowed || name.starts_with(USER)
    }
}

impl SinkTree {
    /// Keeps these attributes. Owners, bits that lend their rights, and attributes that are not the user's are
    /// set only where they are `allowed`.
    pub fn keeping(mut self, kept: KeptAttributes, allowed: bool) -> Self {
        self.keeping = Keeping::new(kept, allowed);
        self
    }

    /// Entries of which the destination could not keep all.
    pub(crate) fn not_kept(&self) -> u64 {
        self.keeping.not_kept.load(Ordering::Relaxed)
    }

    /// Gives a file, directory or link the metadata of `entry`, and its mode, where one is given. What is so
    /// already is left alone; what the destination does not hold is counted.
    pub(crate) fn keep(&self, node: &Node<'_>, mode: Option<u32>, entry: &Entry) -> Result<()> {
        let none = Metadata::default();
        let metadata = entry.attributes.metadata.as_deref().unwrap_or(&none);
        let stat = node.stat()?;
        let mut all = self.keep_owner(node, &stat, metadata)?;
        let names = match self.keeping.kept.has(LISTED) {
            true => node.xattrs()?,
            false => Vec::new(),
        };
        if self.keeping.kept.has(KeptAttributes::ACCESS_LISTS) {
            let is_link = matches!(entry.kind, EntryKind::Link { .. });
            let is_directory = entry.kind == EntryKind::Directory;
            for (name, list) in [(ACCESS, &metadata.access), (DEFAULT, &metadata.default_access)] {
                if !is_link && (name == ACCESS || is_directory) {
                    all &= self.keep_list(node, (&names, name), list.as_ref())?;
                }
            }
        }
        let xattrs = metadata.xattrs.iter();
        let (late, early): (Vec<_>, Vec<_>) =
            xattrs.partition(|xattr| &*xattr.name == CAPABILITIES);
        if self.keeping.kept.has(KeptAttributes::XATTRS) {
            for name in names.iter().filter(|name| self.keeping.may_set(name)) {
                let is_wanted = metadata.xattrs.iter().any(|xattr| xattr.name == *name);
                if !is_wanted && REMOVED.iter().any(|of| name.starts_with(of)) {
                    all &= held(node.remove_xattr(name))?;
                }
            }
            for xattr in early {
                all &= self.keep_xattr(node, (&xattr.name, &xattr.value))?;
            }
        }
        if let Some(mode) = mode {
            // A new owner or list may have changed it.
            let stat = node.stat()?;
            let mode = self.lent(mode, &stat, metadata);
            if stat.st_mode & 0o7777 != mode {
                match node.chmod(mode) {
                    Err(error) if is_refusal(error) => {
                        self.notes.fetch_or(Summary::MODES_NOT_SET, Ordering::Relaxed);
                    }
                    set => set?,
                }
            }
        }
        for xattr in late {
            all &= self.keep_xattr(node, (&xattr.name, &xattr.value))?;
        }
        if !all {
            self.keeping.count_not_kept();
        }
        Ok(())
    }

    /// The mode without bits that would lend the rights of another account than the source's.
    fn lent(&self, mode: u32, stat: &Stat, metadata: &Metadata) -> u32 {
        let differs = |kind, wanted: &Option<_>, has| {
            wanted
                .as_ref()
                .is_some_and(|account| self.keeping.accounts.number(kind, account) != has)
        };
        let user = differs(AccountKind::User, &metadata.owner, stat.st_uid);
        let group = differs(AccountKind::Group, &metadata.group, stat.st_gid);
        mode & !(if user { 0o4000 } else { 0 }) & !(if group { 0o2000 } else { 0 })
    }

    /// Returns whether it has the owners that it should, or may not be given to others.
    fn keep_owner(&self, node: &Node<'_>, stat: &Stat, metadata: &Metadata) -> Result<bool> {
        let number = |kind, account| self.keeping.accounts.number(kind, account);
        let user = metadata.owner.as_ref().map(|account| number(AccountKind::User, account));
        let group = metadata.group.as_ref().map(|account| number(AccountKind::Group, account));
        let user = user.filter(|user| *user != stat.st_uid);
        let group = group.filter(|group| *group != stat.st_gid);
        if user.is_none() && group.is_none() {
            return Ok(true);
        }
        if !self.keeping.allowed {
            self.notes.fetch_or(Summary::OWNERS_NOT_ALLOWED, Ordering::Relaxed);
            return Ok(true);
        }
        // Who may not give files away may give them to a group of theirs.
        let is_set = held(node.chown(user, group))?;
        if !is_set && user.is_some() && group.is_some() {
            let _ = held(node.chown(None, group))?;
        }
        Ok(is_set)
    }

    fn keep_list(
        &self,
        node: &Node<'_>,
        (names, name): (&[Box<[u8]>], &[u8]),
        list: Option<&AccessList>,
    ) -> Result<bool> {
        let has = names.iter().any(|has| &**has == name);
        let wanted = list.map(|list| access::value(list, &self.keeping.accounts));
        match wanted {
            None if has => held(node.remove_xattr(name)),
            None => Ok(true),
            Some(wanted) if has && node.xattr(name)?.as_ref() == Some(&wanted) => Ok(true),
            Some(wanted) => held(node.set_xattr(name, &wanted)),
        }
    }

    fn keep_xattr(&self, node: &Node<'_>, (name, value): (&[u8], &[u8])) -> Result<bool> {
        if !self.keeping.may_set(name) {
            self.notes.fetch_or(Summary::OWNERS_NOT_ALLOWED, Ordering::Relaxed);
            return Ok(true);
        }
        if node.xattr(name).is_ok_and(|has| has.as_deref() == Some(value)) {
            return Ok(true);
        }
        held(node.set_xattr(name, value))
    }
}

/// True if it was set, false if the file system or the system does not let it be, or has no room for it in what it
/// keeps for such.
fn held(set: Result<()>) -> Result<bool> {
    match set {
        Ok(()) => Ok(true),
        Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::DQUOT) => Ok(false),
        Err(error) if is_refusal(error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Set last: a new owner or mode takes it away.
const CAPABILITIES: &[u8] = b"security.capability";
/// Attributes that go where the source has them not; others are the system's.
const REMOVED: [&[u8]; 3] = [USER, b"trusted.", CAPABILITIES];
