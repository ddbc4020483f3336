//! Metadata that a copy keeps, set at the destination: the owner first, then the access list and the mode, which
//! a new owner may take away, then capabilities, which both may.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_sys::accounts::AccountKind;
use longhaul_wire::{AccessList, Entry, EntryKind, KeptAttributes, Metadata, Summary};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::{Errno, Result};

use crate::metadata::access::{self, ACCESS, DEFAULT};
use crate::metadata::node::Node;
use crate::metadata::{Accounts, LISTED, USER, is_refusal};
use crate::place::open_at;
use crate::sink::SinkTree;
use crate::sink::inherited::{Inherited, Parent};
use crate::sink::writable::MadeWritable;

/// Attributes that one copy keeps, and what it may set.
#[derive(Debug)]
pub(crate) struct Keeping {
    kept: KeptAttributes,
    /// Owners, bits that lend their rights, and attributes that are not the user's may be set.
    allowed: bool,
    accounts: Accounts,
    umask: u32,
    /// Entries that could not have all.
    not_kept: AtomicU64,
    /// As [`Summary::notes`].
    notes: AtomicU64,
    pub(crate) made_writable: MadeWritable,
}

impl Default for Keeping {
    fn default() -> Self {
        Self::new(KeptAttributes::default(), false)
    }
}

impl Keeping {
    pub(crate) fn new(kept: KeptAttributes, allowed: bool) -> Self {
        let accounts = Accounts::new(kept.has(KeptAttributes::NUMBERS));
        let kept = kept.with(KeptAttributes::FOLLOW, false);
        let (not_kept, notes) = (AtomicU64::new(0), AtomicU64::new(0));
        let made_writable = MadeWritable::default();
        Self { kept, allowed, accounts, umask: umask(), not_kept, notes, made_writable }
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
        let limits = std::mem::take(&mut self.deletes);
        self.deletes = limits.keeping_modes(self.keeping.keeps_modes());
        self
    }

    /// Entries of which the destination could not keep all.
    pub(crate) fn not_kept(&self) -> u64 {
        self.keeping.not_kept.load(Ordering::Relaxed)
    }
}

impl Keeping {
    /// The permission bits an entry gets: those of the source without what the user masks, and
    /// without those that lend somebody's rights, unless they are to be kept.
    pub(crate) fn mode(&self, entry: &Entry) -> u32 {
        let mode = u32::from(entry.mode) & self.mode_bits();
        if self.keeps_modes() {
            if u32::from(entry.mode) != mode {
                self.notes.fetch_or(Summary::OWNERS_NOT_ALLOWED, Ordering::Relaxed);
            }
            return mode;
        }
        mode & !self.umask
    }

    /// The mode of an entry where a default list, which stands for the umask, makes this of one.
    fn mode_in(&self, entry: &Entry, listed: impl FnOnce(u32) -> Option<u32>) -> u32 {
        let by_list = !self.keeps_modes() && !self.keeps_lists();
        let listed = by_list.then(|| listed(entry.mode.into())).flatten();
        listed.unwrap_or_else(|| self.mode(entry))
    }

    /// Bits that the user masks.
    pub(crate) fn umask(&self) -> u32 {
        self.umask
    }

    /// True if a directory of this mode may be one that a run has made for `entry` and not finished.
    pub(crate) fn is_provisional(&self, entry: &Entry, mode: u32) -> bool {
        !self.keeps_modes()
            && mode & 0o777 == provisional_mode(entry) & !self.umask
            && mode & 0o777 != self.mode(entry)
    }

    /// The mode that a directory is to get which has this `mode`, if any: one that was there keeps its own, unless modes
    /// are kept as the source has them.
    pub(crate) fn mode_of_directory(
        &self,
        directory: &impl AsFd,
        entry: &Entry,
        mode: u32,
        is_new: bool,
    ) -> Option<u32> {
        let is_ours = is_new || self.is_provisional(entry, mode) || self.keeps_modes();
        // What the file system adds to a new directory, as the group's bit, stays, unless it is not to.
        let wanted = self.mode_in(entry, |mode| Inherited::of(directory).mode(mode));
        let wanted = wanted | mode & 0o7000 & !self.mode_bits();
        (is_ours && (self.is_on() || mode != wanted)).then_some(wanted)
    }

    /// Notes for the user, as [`Summary::notes`].
    pub(crate) fn notes(&self) -> u64 {
        self.notes.load(Ordering::Relaxed)
    }

    /// Gives what is there as an entry, unchanged, its attributes; in a dry run finds out only whether it lacks them.
    /// True if so. One that is not let have them is counted, and is no error.
    pub(crate) fn mend(
        &self,
        (parent, name): (&Parent, &[u8]),
        stat: &Stat,
        entry: &Entry,
        is_dry: bool,
    ) -> bool {
        let is_file = entry.kind == EntryKind::File;
        if !self.is_on() && (!is_file || stat.st_mode & 0o7777 == self.mode(entry)) {
            return false;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || open_at(parent, name, flags, Mode::empty()).ok();
        let file = is_file.then(open).flatten();
        let node = match &file {
            Some(file) => Node::open(file),
            None => Node::named(parent, name),
        };
        self.mend_node(&node.dry(is_dry), parent, stat, entry)
    }

    /// The same of one that was looked up.
    pub(crate) fn mend_node(
        &self,
        node: &Node<'_>,
        parent: &Parent,
        stat: &Stat,
        entry: &Entry,
    ) -> bool {
        let is_file = entry.kind == EntryKind::File;
        let mode = is_file.then(|| self.mode_in(entry, |mode| parent.gives().mode(mode)));
        let lacks_mode = mode.is_some_and(|mode| stat.st_mode & 0o7777 != mode);
        let all = match mode {
            _ if self.is_on() => self.set_all(node, mode, entry),
            Some(mode) if lacks_mode => node.chmod(mode).map(|()| true),
            _ => Ok(true),
        };
        if !node.is_dry() && !all.unwrap_or(false) {
            self.count_not_kept();
        }
        node.was_changed()
    }

    /// Gives a file, directory or link the metadata of `entry`, and its mode, where one is given. What is so
    /// already is left alone; what the destination does not hold is counted.
    pub(crate) fn keep(&self, node: &Node<'_>, mode: Option<u32>, entry: &Entry) -> Result<()> {
        if !self.set_all(node, mode, entry)? {
            self.count_not_kept();
        }
        Ok(())
    }

    /// The same without the count. Returns whether it has all.
    fn set_all(&self, node: &Node<'_>, mode: Option<u32>, entry: &Entry) -> Result<bool> {
        let none = Metadata::default();
        let metadata = entry.attributes.metadata.as_deref().unwrap_or(&none);
        let stat = node.stat()?;
        let mut all = self.keep_owner(node, &stat, metadata)?;
        let names = match self.kept.has(LISTED) {
            true => node.xattrs()?,
            false => Vec::new(),
        };
        if self.kept.has(KeptAttributes::ACCESS_LISTS) {
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
        if self.kept.has(KeptAttributes::XATTRS) {
            for name in names.iter().filter(|name| self.may_set(name)) {
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
                all &= held(node.chmod(mode))?;
            }
        }
        for xattr in late {
            all &= self.keep_xattr(node, (&xattr.name, &xattr.value))?;
        }
        Ok(all)
    }

    /// The mode without bits that would lend the rights of another account than the source's.
    fn lent(&self, mode: u32, stat: &Stat, metadata: &Metadata) -> u32 {
        let differs = |kind, wanted: &Option<_>, has| {
            wanted.as_ref().is_some_and(|account| self.accounts.number(kind, account) != has)
        };
        let user = differs(AccountKind::User, &metadata.owner, stat.st_uid);
        let group = differs(AccountKind::Group, &metadata.group, stat.st_gid);
        mode & !(if user { 0o4000 } else { 0 }) & !(if group { 0o2000 } else { 0 })
    }

    /// Returns whether it has the owners that it should, or may not be given to others.
    fn keep_owner(&self, node: &Node<'_>, stat: &Stat, metadata: &Metadata) -> Result<bool> {
        let number = |kind, account| self.accounts.number(kind, account);
        let user = metadata.owner.as_ref().map(|account| number(AccountKind::User, account));
        let group = metadata.group.as_ref().map(|account| number(AccountKind::Group, account));
        let user = user.filter(|user| *user != stat.st_uid);
        let group = group.filter(|group| *group != stat.st_gid);
        if user.is_none() && group.is_none() {
            return Ok(true);
        }
        if !self.allowed {
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
        let wanted = list.map(|list| access::value(list, &self.accounts));
        match wanted {
            None if has => held(node.remove_xattr(name)),
            None => Ok(true),
            Some(wanted) if has && node.xattr(name)?.as_ref() == Some(&wanted) => Ok(true),
            Some(wanted) => held(node.set_xattr(name, &wanted)),
        }
    }

    fn keep_xattr(&self, node: &Node<'_>, (name, value): (&[u8], &[u8])) -> Result<bool> {
        if !self.may_set(name) {
            self.notes.fetch_or(Summary::OWNERS_NOT_ALLOWED, Ordering::Relaxed);
            return Ok(true);
        }
        if node.xattr(name).is_ok_and(|has| has.as_deref() == Some(value)) {
            return Ok(true);
        }
        held(node.set_xattr(name, value))
    }
}

/// The mode of a directory while files are put in it.
pub(crate) fn provisional_mode(entry: &Entry) -> u32 {
    u32::from(entry.mode) & 0o777 | 0o700
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

/// Permission bits that the user does not want new files to have. Reading them by `umask` would
/// change them for other threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(UMASK)
}

/// Where the system does not say.
const UMASK: u32 = 0o022;
/// Set last: a new owner or mode takes it away.
const CAPABILITIES: &[u8] = b"security.capability";
/// Attributes that go where the source has them not; others are the system's.
const REMOVED: [&[u8]; 3] = [USER, b"trusted.", CAPABILITIES];
