//! Offers: groups that an earlier run left and the source has to believe before they count
//! (docs/objects.md section "Belief").

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{ObjectId, RangeSet};
use longhaul_wire::{Offered, SinkMessage};

use super::{Sink, SinkError};
use crate::hash::ChainingValue;
use crate::limits::{HAVE_RANGES_MAX, OFFERED_MAX, PAIRS_MAX};
use crate::record::Recorded;
use crate::tags::Tag;

/// The offers to the source, and what it answered.
#[derive(Debug)]
pub(super) struct Offers {
    /// The source is asked; else everything is believed.
    asks: bool,
    objects: BTreeMap<ObjectId, Offer>,
    /// Those of them that were not sent to the source whole.
    unsent: BTreeSet<ObjectId>,
}

/// Recorded groups of one object, ascending.
#[derive(Debug, Default)]
struct Offer {
    groups: Vec<Recorded>,
    /// Number of them that were sent to the source.
    sent: usize,
    pending: RangeSet,
    wrong: BTreeSet<u32>,
    /// Groups whose tag is new.
    renewed: BTreeMap<u32, Tag>,
}

/// Result of the offer of an object.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Groups that are what the source has.
    pub(super) right: Vec<Recorded>,
    pub(super) wrong: Vec<u32>,
    /// Those of the right ones whose tags are not recorded.
    pub(super) renewed: Vec<Recorded>,
}

impl Offers {
    pub(super) fn new(asks: bool) -> Self {
        Self { asks, objects: BTreeMap::new(), unsent: BTreeSet::new() }
    }

    /// The source is asked about these groups of an object that is not accepted, ascending, but for
    /// those in more ranges than it takes; unless it has answered for them before.
    pub(super) fn begin(&mut self, object: ObjectId, mut groups: Vec<Recorded>, is_known: bool) {
        let (mut ranges, mut next) = (0, None);
        groups.retain(|(group, ..)| {
            ranges += usize::from(next != Some(*group));
            next = Some(*group + 1);
            ranges <= HAVE_RANGES_MAX
        });
        if groups.is_empty() {
            return;
        }
        let mut offer = Offer { groups, ..Offer::default() };
        if self.asks && !is_known {
            for (group, ..) in &offer.groups {
                offer.pending.insert_one(u64::from(*group));
            }
            self.unsent.insert(object);
        }
        self.objects.insert(object, offer);
    }

    /// True where the source has not answered all of an object's.
    pub(super) fn is_pending(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|offer| !offer.pending.is_empty())
    }

    /// Takes its result, once.
    pub(super) fn take(&mut self, object: ObjectId) -> Settled {
        let offer = self.objects.remove(&object).unwrap_or_default();
        self.unsent.remove(&object);
        let (mut right, mut renewed) = (offer.groups, Vec::new());
        right.retain_mut(|(group, value, tag)| {
            if let Some(new) = offer.renewed.get(group) {
                *tag = Some(*new);
                renewed.push((*group, *value, *tag));
            }
            !offer.wrong.contains(group) && !offer.pending.contains(u64::from(*group))
        });
        Settled { right, wrong: offer.wrong.into_iter().collect(), renewed }
    }

    /// The next message. Each is made when it is asked for, so that none waits in memory.
    pub(super) fn poll(&mut self) -> Option<SinkMessage> {
        let object = *self.unsent.first()?;
        let Some(offer) = self.objects.get_mut(&object) else {
            self.unsent.remove(&object);
            return self.poll();
        };
        let groups = offer.next_groups();
        if offer.sent == offer.groups.len() {
            self.unsent.remove(&object);
        }
        Some(SinkMessage::Offer { object, groups })
    }

    /// The source believes these groups. Returns how many, unless they were not all offered and
    /// unanswered.
    fn believe(&mut self, object: ObjectId, ranges: &[Range<u64>]) -> Option<u64> {
        let offer = self.objects.get_mut(&object)?;
        let last = offer.groups.get(offer.sent.checked_sub(1)?)?.0;
        let is_open = |range: &Range<u64>| {
            range.end <= u64::from(last) + 1 && offer.pending.contains_range(range)
        };
        if !ranges.iter().all(is_open) {
            return None;
        }
        Some(ranges.iter().map(|range| offer.pending.remove(range.clone())).sum())
    }

    /// The source has read these groups. The same.
    fn compare(
        &mut self,
        object: ObjectId,
        first: u64,
        values: &[ChainingValue],
        tags: &[Tag],
    ) -> Option<u64> {
        let range = first..first.checked_add(values.len() as u64)?;
        let count = self.believe(object, core::slice::from_ref(&range))?;
        let offer = self.objects.get_mut(&object)?;
        for (number, value) in (first as u32..).zip(values) {
            let found = offer.groups.binary_search_by_key(&number, |(group, ..)| *group).ok()?;
            let (_, recorded, _) = offer.groups.get(found)?;
            match tags.get((u64::from(number) - first) as usize) {
                _ if recorded != value => drop(offer.wrong.insert(number)),
                Some(tag) => drop(offer.renewed.insert(number, *tag)),
                None => {}
            }
        }
        Some(count)
    }
}

impl Offer {
    /// Some of those that were not sent: with tags, or without.
    fn next_groups(&mut self) -> Offered {
        let rest = self.groups.get(self.sent..).unwrap_or_default();
        let tagged = rest.first().is_some_and(|(_, _, tag)| tag.is_some());
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut values = Vec::new();
        for (group, value, tag) in rest {
            let group = u64::from(*group);
            let follows = ranges.last().is_none_or(|last| last.end == group);
            match tag {
                Some(tag) if tagged && follows && values.len() < OFFERED_MAX => {
                    values.push((*value, *tag));
                }
                None if !tagged && (follows || ranges.len() < PAIRS_MAX) => {}
                _ => break,
            }
            match ranges.last_mut().filter(|_| follows) {
                Some(last) => last.end += 1,
                None => ranges.push(group..group + 1),
            }
            self.sent += 1;
        }
        match ranges.first() {
            Some(first) if tagged => Offered::Tagged { first_group: first.start, groups: values },
            _ => Offered::Untagged(ranges),
        }
    }
}

impl Sink {
    pub(super) fn handle_believed(
        &mut self,
        object: ObjectId,
        groups: &[Range<u64>],
    ) -> Result<(), SinkError> {
        let error = SinkError::Believed { object };
        let count = self.offers.believe(object, groups).ok_or(error)?;
        self.report.answered(count);
        self.advance();
        Ok(())
    }

    /// HASHES of an object that is not accepted.
    pub(super) fn handle_answers(
        &mut self,
        object: ObjectId,
        first: u64,
        values: &[ChainingValue],
        tags: &[Tag],
    ) -> Result<(), SinkError> {
        let error = SinkError::Hashes { object };
        let count = self.offers.compare(object, first, values, tags).ok_or(error)?;
        self.report.answered(count);
        self.advance();
        Ok(())
    }
}
