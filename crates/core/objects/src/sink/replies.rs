//! Replies to the source, and notices to the lanes before them.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{ObjectId, RangeSet};
use longhaul_wire::{EntryCode, EntryEnd, SinkMessage};

use crate::action::Deletion;
use crate::entry::EntryId;
use crate::limits::{ANSWERS_MAX, DELETED_BYTES, PAIRS_MAX};

/// Answers that the source has not taken.
#[derive(Debug)]
pub(super) struct Answers {
    /// Many have one reason, as a full disk: it is there once.
    refused: VecDeque<(EntryId, EntryCode, Arc<str>)>,
    /// First names of files that are there under others.
    elsewhere: VecDeque<EntryId>,
    haves: VecDeque<SinkMessage>,
    /// Objects that the source knows to be accepted.
    accepted: u32,
    /// Groups that did not verify, until the lanes are notified.
    unverified: VecDeque<(ObjectId, u32)>,
    /// And then, until the source is asked for them.
    repairs: VecDeque<(ObjectId, u32)>,
    /// Objects that failed, until the lanes are notified.
    unneeded: VecDeque<ObjectId>,
    confirmed: RangeSet,
    /// Names that were deleted, or could not be.
    deleted: VecDeque<Deletion>,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self {
            refused: VecDeque::new(),
            elsewhere: VecDeque::new(),
            haves: VecDeque::new(),
            accepted: 0,
            unverified: VecDeque::new(),
            repairs: VecDeque::new(),
            unneeded: VecDeque::new(),
            confirmed: RangeSet::new(),
            deleted: VecDeque::new(),
        }
    }

    /// Number of answers that wait. Confirmed entries take no more memory the longer they wait.
    pub(super) fn waiting(&self) -> usize {
        self.refused.len()
            + self.elsewhere.len()
            + self.haves.len()
            + self.repairs.len()
            + self.unverified.len()
            + self.deleted.len()
    }

    /// True if there is room for the answers to one more message.
    pub(super) fn have_room(&self) -> bool {
        self.waiting() < ANSWERS_MAX
    }

    pub(super) fn refuse(&mut self, id: EntryId, end: &EntryEnd) {
        let reason = &*end.reason;
        let last = self.refused.back().map(|(.., last)| last);
        let shared = last.filter(|last| ***last == *reason).cloned();
        self.refused.push_back((id, end.code, shared.unwrap_or_else(|| reason.into())));
    }

    /// The contents of the entry need not be sent.
    pub(super) fn elsewhere(&mut self, id: EntryId) {
        self.elsewhere.push_back(id);
    }

    /// These groups of the object need not be sent.
    pub(super) fn have(&mut self, object: ObjectId, done: impl Iterator<Item = Range<u64>>) {
        let mut groups = Vec::new();
        for range in done {
            groups.push(range);
            if groups.len() == PAIRS_MAX {
                let groups = core::mem::take(&mut groups);
                self.haves.push_back(SinkMessage::Have { object, groups });
            }
        }
        if !groups.is_empty() {
            self.haves.push_back(SinkMessage::Have { object, groups });
        }
    }

    /// The group is to be sent again, once the lanes know.
    pub(super) fn ask_again(&mut self, object: ObjectId, group: u32) {
        self.unverified.push_back((object, group));
    }

    /// Notifies the lanes of a group to be sent again; the source is asked for it next.
    pub(super) fn poll_unverified(&mut self) -> Option<(ObjectId, u32)> {
        let group = self.unverified.pop_front()?;
        self.repairs.push_back(group);
        Some(group)
    }

    /// Nothing that comes of the object is of use any more.
    pub(super) fn give_up(&mut self, object: ObjectId) {
        self.unneeded.push_back(object);
    }

    /// Tells the lanes of such an object.
    pub(super) fn poll_unneeded(&mut self) -> Option<ObjectId> {
        self.unneeded.pop_front()
    }

    pub(super) fn confirm(&mut self, id: EntryId) {
        self.confirmed.insert_one(u64::from(id.0));
    }

    pub(super) fn deleted(&mut self, deletion: Deletion) {
        self.deleted.push_back(deletion);
    }

    /// The next message about deletions.
    fn poll_deleted(&mut self) -> Option<SinkMessage> {
        let (mut paths, mut len) = (Vec::new(), 0);
        while len < DELETED_BYTES
            && let Some(Deletion { path, .. }) = self.deleted.pop_front_if(|it| it.result.is_ok())
        {
            len += path.len();
            paths.push(path);
        }
        if !paths.is_empty() {
            return Some(SinkMessage::Deleted { paths });
        }
        let Deletion { path, result } = self.deleted.pop_front()?;
        result.err().map(|end| SinkMessage::NotDeleted { path, end })
    }

    /// The next message; so many objects are `accepted`.
    /// `offer` gives the next question.
    pub(super) fn poll(
        &mut self,
        accepted: u32,
        offer: impl FnOnce() -> Option<SinkMessage>,
    ) -> Option<SinkMessage> {
        // One of them may end next.
        let mut elsewhere = RangeSet::new();
        for id in self.elsewhere.drain(..self.elsewhere.len().min(PAIRS_MAX)) {
            elsewhere.insert_one(id.as_wire());
        }
        if !elsewhere.is_empty() {
            return Some(SinkMessage::Elsewhere { entries: elsewhere.iter().collect() });
        }
        if let Some((entry, code, reason)) = self.refused.pop_front() {
            let end = EntryEnd::new(code, &reason);
            return Some(SinkMessage::EntryRefused { entry: entry.as_wire(), end });
        }
        // The source takes a round trip to answer.
        if let Some(offer) = offer() {
            return Some(offer);
        }
        // What need not be sent comes before the permission to send.
        if let Some(have) = self.haves.pop_front() {
            return Some(have);
        }
        if self.accepted < accepted {
            self.accepted = accepted;
            return Some(SinkMessage::Accept { objects: u64::from(accepted) });
        }
        if let Some((object, group)) = self.repairs.pop_front() {
            return Some(SinkMessage::Repair { object, group: u64::from(group) });
        }
        if let Some(deleted) = self.poll_deleted() {
            return Some(deleted);
        }
        let mut entries = Vec::new();
        while entries.len() < PAIRS_MAX
            && let Some(range) = self.confirmed.take_first(u64::MAX)
        {
            entries.push(range);
        }
        (!entries.is_empty()).then_some(SinkMessage::Confirm { entries })
    }
}
