use alloc::collections::BTreeMap;

use longhaul_units::{ObjectId, RangeSet};

use crate::hash::{group_count, group_len};
use crate::table::ObjectTable;

/// Credit of a source, and the groups that it has begun to send, for the threads that receive:
/// holds it to its credit (docs/protocol.md section 7.2).
///
/// A group counts, with all of its bytes, when the first authentic bytes of it come; what comes of it
/// later, on whatever lane, is resent and does not count again. A source counts in the same way when
/// it decides to send a group, so one that keeps to its credit is never found beyond it.
#[derive(Clone, Debug, Default)]
pub struct Intake {
    objects: ObjectTable,
    /// Groups that have begun, of objects of which not all have.
    begun: BTreeMap<ObjectId, RangeSet>,
    /// Objects of which all groups have.
    whole: RangeSet,
    bytes: u64,
}

impl Intake {
    /// The objects that are accepted.
    pub fn objects(&self) -> &ObjectTable {
        &self.objects
    }

    /// More objects are accepted.
    pub fn set_objects(&mut self, objects: &ObjectTable) {
        if objects.objects() > self.objects.objects() {
            self.objects = objects.clone();
        }
    }

    /// True if the group may come: it is sent again, or for the first time within `credit`.
    pub fn allows(&self, object: ObjectId, group: u32, credit: u64) -> bool {
        self.has_begun(object, group)
            || self.len(object, group).is_some_and(|len| self.bytes + len <= credit)
    }

    /// Bytes of the group have come. Whether they are the first.
    pub fn begin(&mut self, object: ObjectId, group: u32) -> bool {
        let Some(size) = self.objects.size(object) else { return false };
        if self.has_begun(object, group) {
            return false;
        }
        self.bytes += self.len(object, group).unwrap_or(0);
        let begun = self.begun.entry(object).or_default();
        begun.insert_one(group.into());
        if begun.total() == u64::from(group_count(size)) {
            self.begun.remove(&object);
            self.whole.insert_one(object.0.into());
        }
        true
    }

    /// Bytes of the groups that have begun.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn has_begun(&self, object: ObjectId, group: u32) -> bool {
        self.whole.contains(object.0.into())
            || self.begun.get(&object).is_some_and(|groups| groups.contains(group.into()))
    }

    fn len(&self, object: ObjectId, group: u32) -> Option<u64> {
        let len = group_len(self.objects.size(object)?, group);
        (len > 0).then_some(len.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn intake(sizes: &[u64]) -> Intake {
        let mut table = ObjectTable::default();
        sizes.iter().for_each(|size| table.push(*size));
        let mut intake = Intake::default();
        intake.set_objects(&table);
        intake
    }

    #[test]
    fn a_source_may_send_what_its_credit_covers_and_no_group_more() {
        let mut intake = intake(&[2 * MIB + 7, MIB]);
        let object = ObjectId(0);
        for group in [2, 0] {
            assert!(intake.allows(object, group, MIB + 7));
            assert!(intake.begin(object, group));
        }
        assert!(!intake.allows(object, 1, 2 * MIB + 6));
        assert!(intake.allows(object, 1, 2 * MIB + 7));
        intake.begin(object, 1);
        assert!(!intake.allows(ObjectId(1), 0, 3 * MIB + 6));
        assert!(intake.allows(ObjectId(1), 0, 3 * MIB + 7));
    }

    #[test]
    fn what_is_sent_again_does_not_count() {
        let mut intake = intake(&[2 * MIB]);
        for first in [true, false, false] {
            assert_eq!(intake.begin(ObjectId(0), 1), first);
            assert!(intake.allows(ObjectId(0), 1, 0));
        }
        assert!(intake.allows(ObjectId(0), 0, 2 * MIB));
        // All of it has begun, and may come again.
        intake.begin(ObjectId(0), 0);
        assert!(intake.allows(ObjectId(0), 0, 0) && intake.allows(ObjectId(0), 1, 0));
        assert!(intake.begun.is_empty());
    }

    #[test]
    fn what_there_is_not_may_not_come() {
        let mut intake = intake(&[MIB]);
        assert!(!intake.allows(ObjectId(0), 1, u64::MAX));
        assert!(!intake.allows(ObjectId(1), 0, u64::MAX));
        assert!(!intake.begin(ObjectId(1), 0));
        assert!(intake.allows(ObjectId(0), 0, MIB));
        // An older table takes nothing away.
        intake.set_objects(&ObjectTable::default());
        assert!(intake.allows(ObjectId(0), 0, MIB));
    }
}
