//! Later names of files with contents, where the sink keeps newer files: which name is the first is known only by its
//! word about those before (docs/protocol.md section 7.10).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use longhaul_units::EntryCode;
use longhaul_wire::{Entry, HardLink};

use super::{EntryState, Source};
use crate::entry::EntryId;
use crate::entry::cost;
use crate::name_memory::NameMemory;

#[derive(Debug, Default)]
pub(super) struct LaterNames {
    /// The sink keeps newer files.
    awaits_word: bool,
    /// By the first name, about which the sink has sent no word.
    waiting: BTreeMap<EntryId, Vec<Entry>>,
    /// Of these first names some that the sink has settled.
    settled: Vec<EntryId>,
    /// Names that wait, the bytes that they may bring, and memory.
    count: u32,
    bytes: u64,
    cost: u64,
    /// First names that the sink keeps as newer files: each with the name that is a first in its place, if there is one.
    heirs: BTreeMap<EntryId, Option<EntryId>>,
    /// The other way round: the first name that the scan knows.
    origins: BTreeMap<EntryId, EntryId>,
}

impl LaterNames {
    pub(super) fn await_word(&mut self) {
        self.awaits_word = true;
    }

    /// The first name of one that may have to wait.
    pub(super) fn first_of(&self, entry: &Entry) -> Option<EntryId> {
        let first = entry.linked_to().filter(|_| self.awaits_word && entry.contents_len() > 0);
        first.and_then(|first| u32::try_from(first).ok()).map(EntryId)
    }

    /// Names that wait, and bytes of all of them.
    pub(super) fn most(&self) -> (u32, u64) {
        (self.count, self.bytes)
    }

    /// Memory that they take.
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// The entry has ended.
    pub(super) fn settled(
        &mut self,
        id: EntryId,
        entry: &Entry,
        state: EntryState,
        names: &mut NameMemory,
    ) {
        if self.waiting.contains_key(&id) {
            self.settled.push(id);
        }
        let is_newer = self.awaits_word && state == EntryState::Refused(EntryCode::Newer);
        if is_newer && entry.is_first_name() && entry.contents_len() > 0 {
            names.take(NEWER_COST);
            self.heirs.insert(id, None);
        }
    }

    /// The first name in whose place this one is.
    pub(super) fn in_place_of(&self, id: EntryId) -> Option<EntryId> {
        self.origins.get(&id).copied()
    }

    /// The name that is now the first in place of `first`, and whether it stays as a newer file.
    fn head(&self, first: EntryId) -> (EntryId, bool) {
        let mut head = first;
        while let Some(heir) = self.heirs.get(&head) {
            match heir {
                Some(heir) => head = *heir,
                None => return (head, true),
            }
        }
        (head, false)
    }

    /// `id` is in the place of both.
    fn replace(&mut self, first: EntryId, head: EntryId, id: EntryId) {
        self.heirs.insert(first, Some(id));
        self.heirs.insert(head, Some(id));
        self.origins.insert(id, self.in_place_of(head).unwrap_or(head));
    }

    fn wait(&mut self, head: EntryId, entry: Entry) {
        self.count += 1;
        self.bytes += entry.contents_len();
        self.cost += cost(&entry);
        self.waiting.entry(head).or_default().push(entry);
    }

    fn take(&mut self, head: EntryId) -> Vec<Entry> {
        let names = self.waiting.remove(&head).unwrap_or_default();
        self.count -= names.len() as u32;
        self.bytes -= names.iter().map(Entry::contents_len).sum::<u64>();
        self.cost -= names.iter().map(cost).sum::<u64>();
        names
    }
}

impl Source {
    /// Takes in a later name, or has it wait for the sink's word about the first.
    pub(super) fn push_later(&mut self, first: EntryId, entry: Entry) -> Option<EntryId> {
        let (head, is_newer) = self.later.head(first);
        if is_newer {
            let id = self.push(entry.with_link(HardLink::First));
            self.later.replace(first, head, id);
            return Some(id);
        }
        if self.has_word_of(head) {
            return Some(self.push(entry.with_link(HardLink::To(head.as_wire()))));
        }
        let cost = cost(&entry);
        self.later.wait(head, entry);
        self.count_behind_bundle(cost);
        None
    }

    /// True if the first name is settled, or its contents are to be sent.
    fn has_word_of(&self, first: EntryId) -> bool {
        self.entries.get(first.0).is_none_or(|slot| {
            slot.state != EntryState::Open || slot.size == 0 || slot.object < self.accepted
        })
    }

    /// Takes in the names that no longer have to wait. Behind the scan nothing else follows a bundle.
    pub(super) fn push_decided(&mut self) {
        while let Some(head) = self.later.settled.pop().or_else(|| {
            let (first, _) = self.later.waiting.first_key_value()?;
            self.has_word_of(*first).then_some(*first)
        }) {
            let mut names = self.later.take(head);
            if let Some((next, others)) = names.split_first_mut()
                && self.later.head(head).1
            {
                next.name_others(others.iter().map(|other| &other.path));
            }
            for entry in names {
                self.push_later(head, entry);
            }
        }
        if self.finished {
            self.close_bundle();
            self.stats.complete = self.later.waiting.is_empty();
        }
    }
}

/// Memory for a first name that stays as a newer file, until the end.
const NEWER_COST: u64 = 96;
