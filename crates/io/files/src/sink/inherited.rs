//! Attributes that a new file takes from the directory that it is made in: the group of one with the set-group-ID bit, and the
//! list of one with a default access list, which stands for the umask. Files are made in the hidden directory, so
//! they get it before they are renamed.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longhaul_wire::{Entry, EntryKind};
use rustix::fs::{Stat, fstat};
use rustix::process::getegid;

use crate::metadata::access::{ACCESS, DEFAULT};
use crate::metadata::is_refusal;
use crate::metadata::node::Node;
use crate::sink::SinkTree;

/// A directory that files get names in.
#[derive(Debug)]
pub(crate) struct Parent {
    pub(crate) handle: OwnedFd,
    /// Looked for once: a copy gives a directory its own attributes when all that is in it has its name.
    gives: OnceCell<Inherited>,
}

impl Parent {
    pub(crate) fn new(handle: OwnedFd) -> Self {
        Self { handle, gives: OnceCell::new() }
    }

    /// The attributes that a new file in it takes from it.
    pub(crate) fn gives(&self) -> &Inherited {
        self.gives.get_or_init(|| Inherited::of(&self.handle))
    }
}

impl AsFd for Parent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Attributes that a new file in a directory takes from it.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    group: Option<u32>,
    /// Value of the attribute that has the list.
    list: Option<Vec<u8>>,
}

impl Inherited {
    /// From an open directory, by path perhaps. What cannot be looked at gives nothing.
    pub(crate) fn of(directory: &impl AsFd) -> Self {
        let gives_group = |stat: &Stat| stat.st_mode & SET_GROUP_ID != 0;
        let group = fstat(directory).ok().filter(gives_group).map(|stat| stat.st_gid);
        let list = Node::named(directory, b".").xattr(DEFAULT).ok().flatten();
        Self { group, list: list.filter(|list| list.len() > HEAD) }
    }

    /// True if it is an access list, too.
    pub(crate) fn has_list(&self) -> bool {
        self.list.is_some()
    }

    /// The mode of what is made in it with this one, where a list says that.
    pub(crate) fn mode(&self, mode: u32) -> Option<u32> {
        self.list.as_ref().map(|list| bits(&limited(list, mode)))
    }

    fn is_nothing(&self) -> bool {
        self.group.is_none() && self.list.is_none()
    }
}

impl SinkTree {
    /// Gives a file or link that was made out of sight what it would have if it had been made in `parent`. False where
    /// this user may not: then it is to be made there.
    pub(crate) fn inherit(
        &self,
        entry: &Entry,
        (directory, name): (&OwnedFd, &[u8]),
        parent: &Parent,
    ) -> io::Result<bool> {
        let (has, wanted) = (&self.hidden_gives, parent.gives());
        if has.is_nothing() && wanted.is_nothing() {
            return Ok(true);
        }
        let node = Node::named(directory, name);
        if !self.keeping.keeps_groups() {
            let group = wanted.group.unwrap_or_else(|| getegid().as_raw());
            if node.stat()?.st_gid != group {
                match node.chown(None, Some(group)) {
                    Err(error) if is_refusal(error) => return Ok(false),
                    set => set?,
                }
            }
        }
        if has.list.is_some() || wanted.list.is_some() {
            self.inherit_list(entry, &node, wanted)?;
        }
        Ok(true)
    }

    /// The part of it that is the access list.
    pub(crate) fn inherit_list(
        &self,
        entry: &Entry,
        node: &Node<'_>,
        from: &Inherited,
    ) -> io::Result<()> {
        if entry.kind != EntryKind::File || self.keeping.keeps_lists() {
            return Ok(());
        }
        let list = match &from.list {
            Some(list) if self.keeping.keeps_modes() => with_bits(list, self.keeping.mode(entry)),
            Some(list) => limited(list, u32::from(entry.mode)),
            None => minimal(self.keeping.mode(entry)),
        };
        match node.set_xattr(ACCESS, &list) {
            Err(error) if is_refusal(error) => Ok(()),
            set => Ok(set?),
        }
    }
}

/// A list as a new file gets it that is made with this mode (`posix_acl_create`).
fn limited(list: &[u8], mode: u32) -> Vec<u8> {
    changed(list, |has, bits| has & bits, mode)
}

/// A list after its file has got this mode.
fn with_bits(list: &[u8], mode: u32) -> Vec<u8> {
    changed(list, |_, bits| bits, mode)
}

fn changed(list: &[u8], change: impl Fn(u8, u8) -> u8, mode: u32) -> Vec<u8> {
    let mut list = list.to_vec();
    let class = class_of_group(&list);
    let (entries, _) = list[HEAD..].as_chunks_mut::<ENTRY>();
    for [tag, _, permissions, ..] in entries {
        let bits = match *tag {
            OWNER => mode >> 6,
            tag if tag == class => mode >> 3,
            OTHERS => mode,
            _ => continue,
        };
        *permissions = change(*permissions, (bits & 7) as u8);
    }
    list
}

/// The mode of what has this list.
fn bits(list: &[u8]) -> u32 {
    let class = class_of_group(list);
    let (entries, _) = list[HEAD..].as_chunks::<ENTRY>();
    let each = entries.iter().map(|[tag, _, permissions, ..]| {
        let permissions = u32::from(*permissions & 7);
        match *tag {
            OWNER => permissions << 6,
            tag if tag == class => permissions << 3,
            OTHERS => permissions,
            _ => 0,
        }
    });
    each.fold(0, |all, bits| all | bits)
}

/// The entry that the mode shows as that of the group.
fn class_of_group(list: &[u8]) -> u8 {
    let (entries, _) = list[HEAD..].as_chunks::<ENTRY>();
    if entries.iter().any(|entry| entry[0] == MASK) { MASK } else { GROUP }
}

/// The list that says no more than a mode.
fn minimal(mode: u32) -> Vec<u8> {
    let entry = |tag: u8, bits: u32| [tag, 0, (bits & 7) as u8, 0, 255, 255, 255, 255];
    let entries = [entry(OWNER, mode >> 6), entry(GROUP, mode >> 3), entry(OTHERS, mode)];
    [&[2, 0, 0, 0][..], &entries.concat()].concat()
}

const OWNER: u8 = 1;
const GROUP: u8 = 4;
const MASK: u8 = 16;
const OTHERS: u8 = 32;
/// Bytes of the version of a list, and of an entry.
const HEAD: usize = 4;
const ENTRY: usize = 8;
const SET_GROUP_ID: u32 = 0o2000;
