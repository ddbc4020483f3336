//! Files that get their names.

use alloc::collections::VecDeque;

use longhaul_units::EntryCode;

use super::hard_links::HardLinks;
use crate::entry::EntryId;

#[derive(Debug, Default)]
pub(super) struct Publications {
    /// They can get their names, unless they fail meanwhile.
    ready: VecDeque<EntryId>,
    /// Number of those that are getting theirs.
    under_way: u32,
    /// Those with several names.
    pub(super) hard_links: HardLinks,
}

impl Publications {
    /// These files can get their names.
    pub(super) fn add(&mut self, files: impl IntoIterator<Item = EntryId>) {
        self.ready.extend(files);
    }

    /// An entry has its name: those can get theirs that waited for it.
    pub(super) fn named(&mut self, id: EntryId) {
        let waiting = self.hard_links.named(id);
        self.add(waiting);
    }

    /// An entry ended otherwise.
    pub(super) fn entry_ended(&mut self, id: EntryId, code: EntryCode) {
        let waiting = self.hard_links.ended(id, code);
        self.add(waiting);
    }

    /// The next that can get its name.
    pub(super) fn poll(&mut self) -> Option<EntryId> {
        self.ready.pop_front()
    }

    /// The driver is about to give a file its name.
    pub(super) fn began(&mut self) {
        self.under_way += 1;
    }

    /// It has, or cannot.
    pub(super) fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// True if no file is getting its name.
    pub(super) fn are_over(&self) -> bool {
        self.under_way == 0
    }

    /// True if none can get its name either.
    pub(super) fn is_empty(&self) -> bool {
        self.are_over() && self.ready.is_empty()
    }
}
