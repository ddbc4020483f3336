//! Offers: groups that the sink says to have from an earlier run, and which of them are believed
//! (docs/protocol.md section 7.4).

use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{ObjectId, RangeSet};
use longhaul_wire::{Offered, SourceMessage};

use super::answers::ascending;
use super::{Comparison, GroupTask, Object, Source, SourceError};
use crate::entry::EntryId;
use crate::limits::{COMPARED_MAX, HAVE_RANGES_MAX, PAIRS_MAX};
use crate::tags::Belief;
use crate::tags::contents;

impl Source {
    pub(super) fn handle_offer(
        &mut self,
        id: ObjectId,
        groups: Offered,
    ) -> Result<(), SourceError> {
        self.leave_out_unchanged(id.0);
        let error = SourceError::Offer { object: id };
        let open = (self.accepted..self.announced_objects).contains(&id.0);
        let (ranges, tagged) = match groups {
            Offered::Untagged(ranges) => (ranges, Vec::new()),
            Offered::Tagged { first_group, groups } => {
                let end = first_group.saturating_add(groups.len() as u64);
                (core::iter::once(first_group..end).collect(), groups)
            }
        };
        let object = self.objects.get_mut(id.0).filter(|_| open).ok_or(error)?;
        let fits = ascending(&ranges, u64::from(object.layout.groups()))
            && object.offered.range_count() + ranges.len() <= HAVE_RANGES_MAX
            && ranges.iter().all(|range| object.offered.gaps(range.clone()).eq([range.clone()]));
        if !fits || matches!(self.belief, Belief::Unhashed) {
            return Err(error);
        }
        insert_all(&mut object.offered, &ranges);
        if object.live == 0 {
            return Ok(());
        }
        let mut believed = RangeSet::new();
        if matches!(self.belief, Belief::Everything) {
            insert_all(&mut believed, &ranges);
        } else if let Some(first) = ranges.first() {
            for (group, (value, tag)) in (first.start as u32..).zip(&tagged) {
                if let Belief::Tags(key) = &self.belief
                    && self
                        .contents(id, group)
                        .is_some_and(|contents| key.is_right(&contents, value, tag))
                {
                    believed.insert_one(u64::from(group));
                }
            }
        }
        let unread = ranges.iter().flat_map(|range| believed.gaps(range.clone()));
        let unread: Vec<Range<u64>> = unread.collect();
        if !unread.is_empty() {
            insert_all(self.unread.entry(id).or_default(), &unread);
        }
        if !believed.is_empty() {
            self.stats.answered += believed.total();
            let believed: Vec<Range<u64>> = believed.iter().collect();
            if let Some(object) = self.objects.get_mut(id.0) {
                insert_all(&mut object.answered, &believed);
            }
            insert_all(self.believed.entry(id).or_default(), &believed);
        }
        Ok(())
    }

    /// The next BELIEVED, of these groups.
    pub(super) fn say_believed(&mut self, object: ObjectId, mut left: RangeSet) -> SourceMessage {
        let mut groups = Vec::new();
        while groups.len() < PAIRS_MAX
            && let Some(range) = left.take_first(u64::MAX)
        {
            groups.push(range);
        }
        if !left.is_empty() {
            self.believed.insert(object, left);
        }
        SourceMessage::Believed { object, groups }
    }

    /// A group that is read to be compared: nothing of its object is sent before.
    pub(super) fn next_compared(&mut self) -> Option<GroupTask> {
        while self.hashes.len() < COMPARED_MAX {
            let mut first = self.unread.first_entry()?;
            let id = *first.key();
            let group = first.get_mut().take_first(1);
            if first.get().is_empty() {
                first.remove();
            }
            let is_needed = self.objects.get(id.0).is_some_and(|object| object.live > 0);
            if let Some(group) = group.filter(|_| is_needed) {
                let task = self.task(id, group.start as u32, false)?;
                return Some(GroupTask { compare: Some(Comparison::Group), ..task });
            }
        }
        None
    }

    /// Contents of a group, while all of it is known.
    pub(super) fn contents(&self, id: ObjectId, group: u32) -> Option<[u8; 32]> {
        let parts = self.objects.get(id.0)?.layout.parts(group);
        contents(parts, |part| Some(self.entry(part.entry)?.identity))
    }
}

impl Object {
    /// True where the sink may say that it has these groups: it knows what they are, or nobody needs them.
    pub(super) fn may_have(&self, groups: &Range<u64>, is_open: impl Fn(EntryId) -> bool) -> bool {
        // All groups of a large file are needed as long as that is.
        let mut unknown = self.answered.gaps(groups.clone());
        if self.layout.is_large() {
            return unknown.next().is_none() || self.live == 0;
        }
        unknown
            .flatten()
            .all(|group| !self.layout.parts(group as u32).any(|part| is_open(part.entry)))
    }
}

fn insert_all(set: &mut RangeSet, ranges: &[Range<u64>]) {
    ranges.iter().for_each(|range| {
        set.insert(range.clone());
    });
}
