//! Files and links with several names, as a scan comes upon these.

use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, VecDeque};
use std::mem::take;

use longhaul_objects::EntryId;
use longhaul_wire::{Entry, HardLink};
use rustix::fs::Stat;

use super::metadata::Missed;

/// A file or link: its device and inode.
type Inode = (u64, u64);

/// Files and links with other names that were not found yet.
#[derive(Debug, Default)]
pub(crate) struct FoundLinks {
    /// Number of the entry that is the first name, and names that are still to come.
    known: BTreeMap<Inode, (EntryId, u32)>,
    /// A first name that was given out, and has no number yet.
    unnumbered: Option<(Inode, u32)>,
    /// Links are followed, so that a file may be found more often than it has names.
    has_more: bool,
    /// Those that wait for more of their names, so that the first is announced with others: where one of these is at
    /// the destination nothing is sent.
    gathered: BTreeMap<Inode, Vec<FoundName>>,
    gathered_cost: usize,
    /// Names that no longer wait.
    ready: VecDeque<FoundName>,
}

/// One of several names, and attributes that are not kept of it.
#[derive(Debug)]
pub(crate) struct FoundName {
    pub(crate) entry: Entry,
    pub(crate) missed: Missed,
    inode: Inode,
    names: u64,
}

impl FoundName {
    /// Nothing where the entry has but one name.
    pub(crate) fn new(entry: &Entry, missed: Missed, stat: &Stat) -> Option<Self> {
        let (inode, names) = ((stat.st_dev, stat.st_ino), stat.st_nlink);
        (names > 1).then(|| Self { entry: entry.clone(), missed, inode, names })
    }

    fn cost(&self) -> usize {
        size_of::<Self>() + self.entry.encoded_len()
    }
}

impl FoundLinks {
    pub(crate) fn new(has_more: bool) -> Self {
        Self { has_more, ..Self::default() }
    }

    /// Takes in a name. [`Self::take_ready`] gives those that can be announced.
    pub(crate) fn find(&mut self, name: FoundName, cost_most: usize) {
        if self.known.contains_key(&name.inode) {
            return self.ready.push_back(name);
        }
        self.gathered_cost += name.cost();
        let (inode, all) = (name.inode, name.names);
        let names = self.gathered.entry(inode).or_default();
        names.push(name);
        if names.len() as u64 >= all {
            let names = self.gathered.remove(&inode).unwrap_or_default();
            self.release(names);
        } else if self.gathered_cost > cost_most {
            self.release_all();
        }
    }

    /// No more names are found, or there is no memory to wait for them. Returns whether some waited.
    pub(crate) fn release_all(&mut self) -> bool {
        let gathered = take(&mut self.gathered);
        let some_waited = !gathered.is_empty();
        gathered.into_values().for_each(|names| self.release(names));
        some_waited
    }

    fn release(&mut self, mut names: Vec<FoundName>) {
        self.gathered_cost -= names.iter().map(FoundName::cost).sum::<usize>();
        if let Some((first, others)) = names.split_first_mut() {
            first.entry.name_others(others.iter().map(|name| &name.entry.path));
        }
        self.ready.extend(names);
    }

    /// A name that can be announced, and which. After a first name comes [`Self::number`], if it was announced.
    pub(crate) fn take_ready(&mut self) -> Option<(FoundName, HardLink)> {
        let name = self.ready.pop_front()?;
        let others = u32::try_from(name.names - 1).unwrap_or(u32::MAX);
        let link = match self.known.entry(name.inode) {
            Vacant(_) => {
                self.unnumbered = Some((name.inode, others));
                HardLink::First
            }
            Occupied(mut known) => {
                let (first, left) = known.get_mut();
                let first = *first;
                *left = left.saturating_sub(1);
                if *left == 0 && !self.has_more {
                    known.remove();
                }
                HardLink::To(first.as_wire())
            }
        };
        Some((name, link))
    }

    /// The entry that was given out last has this number.
    pub(crate) fn number(&mut self, id: EntryId) {
        if let Some((inode, others)) = self.unnumbered.take() {
            self.known.insert(inode, (id, others));
        }
    }

    /// The last entry was not announced: a first name is none.
    pub(crate) fn forget_unnumbered(&mut self) {
        self.unnumbered = None;
    }

    /// Memory that they take.
    pub(crate) fn cost(&self) -> usize {
        self.known.len() * KNOWN_COST + self.gathered_cost
    }
}

/// Bytes that each takes in a tree that is two thirds full.
const KNOWN_COST: usize = 40;
