use core::ops::Range;

use longhaul_units::RangeSet;

/// Which bytes of one group have arrived.
///
/// Bytes that arrive in order cost a comparison and an addition; only those behind a gap go into
/// a set of ranges. One value serves many groups: [`GroupAssembly::start`] keeps the memory.
///
/// ```
/// use longhaul_objects::GroupAssembly;
///
/// let mut assembly = GroupAssembly::new();
/// assembly.start(3000);
/// assert_eq!(assembly.insert(0, 1000), Some(1000));
/// assert_eq!(assembly.insert(2000, 1000), Some(1000));
/// assert_eq!(assembly.next_gap(0), Some(1000..2000));
/// assert_eq!(assembly.insert(500, 1500), Some(1000));
/// assert!(assembly.is_complete());
/// ```
#[derive(Clone, Debug, Default)]
pub struct GroupAssembly {
    len: u32,
    /// All bytes below have arrived.
    front: u32,
    /// Bytes in `later`.
    beyond: u32,
    /// Ranges that arrived beyond a gap.
    later: RangeSet,
}

impl GroupAssembly {
    /// An assembly of a group without bytes.
    pub const fn new() -> Self {
        Self { len: 0, front: 0, beyond: 0, later: RangeSet::new() }
    }

    /// Starts again with a group of `len` bytes of which none has arrived.
    pub fn start(&mut self, len: u32) {
        self.len = len;
        self.front = 0;
        self.beyond = 0;
        self.later.clear();
    }

    /// Takes in `len` bytes at `offset` within the group; returns how many of them were new.
    ///
    /// `None`, and no change, when they do not lie within the group.
    #[inline]
    pub fn insert(&mut self, offset: u32, len: u32) -> Option<u32> {
        let end = offset.checked_add(len)?;
        if offset == self.front && self.beyond == 0 && end <= self.len {
            self.front = end;
            return Some(len);
        }
        self.insert_slow(offset, end)
    }

    fn insert_slow(&mut self, offset: u32, end: u32) -> Option<u32> {
        if end > self.len {
            return None;
        }
        let offset = offset.max(self.front);
        if offset >= end {
            return Some(0);
        }
        let new = self.later.insert(u64::from(offset)..u64::from(end)) as u32;
        self.beyond += new;
        if let Some(first) = self.later.first().filter(|first| first.start == u64::from(self.front))
        {
            self.later.remove_below(first.end);
            self.beyond -= (first.end - first.start) as u32;
            self.front = first.end as u32;
        }
        Some(new)
    }

    /// True if none of the `len` bytes at `offset` has arrived, so that they may be received
    /// into their place without touching accepted bytes.
    #[inline]
    pub fn is_vacant(&self, offset: u32, len: u32) -> bool {
        offset >= self.front
            && (self.beyond == 0
                || self
                    .later
                    .iter_from(u64::from(offset))
                    .next()
                    .is_none_or(|range| range.start >= u64::from(offset) + u64::from(len)))
    }

    /// The parts of the `len` bytes at `offset` that have not arrived, ascending.
    pub fn missing(&self, offset: u32, len: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        let start = u64::from(offset.max(self.front));
        let end = u64::from(offset.saturating_add(len).min(self.len));
        self.later.gaps(start..end.max(start)).map(|gap| gap.start as u32..gap.end as u32)
    }

    /// The first missing bytes at or after `from`: where the next bytes probably belong when
    /// `from` is the end of those received last.
    pub fn next_gap(&self, from: u32) -> Option<Range<u32>> {
        self.missing(from, self.len.saturating_sub(from)).next()
    }

    /// Bytes of the group.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// True if the group has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that arrived.
    pub const fn received(&self) -> u32 {
        self.front + self.beyond
    }

    /// Bytes at the start of the group that arrived without a gap.
    pub const fn contiguous(&self) -> u32 {
        self.front
    }

    /// True if all bytes have arrived.
    #[inline]
    pub const fn is_complete(&self) -> bool {
        self.front == self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn outside_the_group_changes_nothing() {
        let mut assembly = GroupAssembly::new();
        assembly.start(10);
        assert_eq!(assembly.insert(5, 6), None);
        assert_eq!(assembly.insert(0, 11), None);
        assert_eq!(assembly.insert(u32::MAX, 2), None);
        assert_eq!(assembly.received(), 0);
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(
            len in 1u32..300, steps in prop::collection::vec((0u32..300, 0u32..80), 1..60)
        ) {
            let mut assembly = GroupAssembly::new();
            assembly.start(7);
            assembly.insert(3, 2);
            assembly.start(len);
            let mut model = vec![false; len as usize];
            for (offset, count) in steps {
                if offset + count > len {
                    prop_assert_eq!(assembly.insert(offset, count), None);
                    continue;
                }
                let range = offset as usize..(offset + count) as usize;
                let new = model[range.clone()].iter().filter(|has| !**has).count() as u32;
                let gaps: u32 = assembly.missing(offset, count).map(|g| g.end - g.start).sum();
                prop_assert_eq!(gaps, new);
                if count > 0 {
                    prop_assert_eq!(assembly.is_vacant(offset, count), new == count);
                }
                prop_assert_eq!(assembly.insert(offset, count), Some(new));
                model[range].fill(true);
                let received = model.iter().filter(|has| **has).count() as u32;
                prop_assert_eq!(assembly.received(), received);
                prop_assert_eq!(assembly.is_complete(), received == len);
                let front = model.iter().take_while(|has| **has).count() as u32;
                prop_assert_eq!(assembly.contiguous(), front);
                let from = offset + count;
                let gap = (from..len).find(|i| !model[*i as usize]);
                prop_assert_eq!(assembly.next_gap(from).map(|g| g.start), gap);
            }
        }
    }
}
