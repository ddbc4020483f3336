//! Files and links with several names, as a scan comes upon these.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};

use longhaul_objects::EntryId;
use longhaul_wire::HardLink;
use rustix::fs::Stat;

/// Files and links with other names that were not found yet.
#[derive(Debug, Default)]
pub(crate) struct FoundLinks {
    /// By device and inode: number of the entry that is the first name, and names that are still to come.
    known: BTreeMap<(u64, u64), (EntryId, u32)>,
    /// A first name that was given out, and has no number yet.
    unnumbered: Option<((u64, u64), u32)>,
    /// Links are followed, so that a file may be found more often than it has names.
    has_more: bool,
}

impl FoundLinks {
    pub(crate) fn new(has_more: bool) -> Self {
        Self { has_more, ..Self::default() }
    }

    /// The next name of what has this status, or nothing where there is but one. After a first name comes
    /// [`Self::number`], if it was announced.
    pub(crate) fn next(&mut self, stat: &Stat) -> Option<HardLink> {
        let others = u32::try_from(stat.st_nlink).unwrap_or(u32::MAX).checked_sub(1);
        let others = others.filter(|others| *others > 0)?;
        let key = (stat.st_dev, stat.st_ino);
        match self.known.entry(key) {
            Vacant(_) => {
                self.unnumbered = Some((key, others));
                Some(HardLink::First)
            }
            Occupied(mut known) => {
                let (first, left) = known.get_mut();
                let first = *first;
                *left = left.saturating_sub(1);
                if *left == 0 && !self.has_more {
                    known.remove();
                }
                Some(HardLink::To(first.as_wire()))
            }
        }
    }

    /// The entry that was given out last has this number.
    pub(crate) fn number(&mut self, id: EntryId) {
        if let Some((key, others)) = self.unnumbered.take() {
            self.known.insert(key, (id, others));
        }
    }

    /// The last entry was not announced: a first name is none.
    pub(crate) fn forget_unnumbered(&mut self) {
        self.unnumbered = None;
    }

    /// Memory that they take.
    pub(crate) fn cost(&self) -> usize {
        self.known.len() * KNOWN_COST
    }
}

/// Bytes that each takes in a tree that is two thirds full.
const KNOWN_COST: usize = 40;
