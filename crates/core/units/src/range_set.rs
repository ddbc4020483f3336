use alloc::collections::VecDeque;
use core::fmt;
use core::ops::Range;

/// A set of 64-bit numbers, kept as sorted disjoint half-open ranges.
///
/// Made for numbers that mostly arrive in order: adding at the end is O(1), elsewhere O(log n) to
/// find the place plus a move of the shorter side. Memory is one entry a gap.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RangeSet {
    ranges: VecDeque<Range<u64>>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: VecDeque::new() }
    }

    /// Adds `range`; returns how many of its numbers were new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        if let Some(last) = self.ranges.back_mut() {
            if range.start > last.end {
                self.ranges.push_back(range.clone());
                return range.end - range.start;
            }
            if range.start == last.end {
                last.end = range.end;
                return range.end - range.start;
            }
        } else {
            self.ranges.push_back(range.clone());
            return range.end - range.start;
        }
        // Ranges that touch or overlap the new one are merged into it.
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let past = self.ranges.partition_point(|r| r.start <= range.end);
        if first == past {
            self.ranges.insert(first, range.clone());
            return range.end - range.start;
        }
        let mut covered = 0;
        for r in self.ranges.range(first..past) {
            covered += r.end.min(range.end).saturating_sub(r.start.max(range.start));
        }
        let start = self.ranges[first].start.min(range.start);
        let end = self.ranges[past - 1].end.max(range.end);
        self.ranges[first] = start..end;
        self.ranges.drain(first + 1..past);
        (range.end - range.start) - covered
    }

    /// Adds one number; returns whether it was new.
    pub fn insert_one(&mut self, number: u64) -> bool {
        self.insert(number..number + 1) == 1
    }

    /// Removes `range`; returns how many of its numbers were in the set.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        let past = self.ranges.partition_point(|r| r.start < range.end);
        if first >= past {
            return 0;
        }
        let left = self.ranges[first].start..range.start;
        let right = range.end..self.ranges[past - 1].end;
        let mut removed = 0;
        for r in self.ranges.drain(first..past) {
            removed += r.end.min(range.end) - r.start.max(range.start);
        }
        if !right.is_empty() {
            self.ranges.insert(first, right);
        }
        if !left.is_empty() {
            self.ranges.insert(first, left);
        }
        removed
    }

    /// Forgets every number below `floor`.
    pub fn remove_below(&mut self, floor: u64) {
        while let Some(first) = self.ranges.front_mut() {
            if first.end <= floor {
                self.ranges.pop_front();
            } else {
                first.start = first.start.max(floor);
                break;
            }
        }
    }

    /// True if `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        // The common question is about a number at or past the end.
        match self.ranges.back() {
            Some(last) if number >= last.start => number < last.end,
            _ => {
                let i = self.ranges.partition_point(|r| r.end <= number);
                self.ranges.get(i).is_some_and(|r| r.start <= number)
            }
        }
    }

    /// True if every number of `range` is in the set.
    pub fn contains_range(&self, range: &Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let i = self.ranges.partition_point(|r| r.end <= range.start);
        self.ranges.get(i).is_some_and(|r| r.start <= range.start && r.end >= range.end)
    }

    /// The ranges, ascending, with a gap between each and the next.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// The ranges that hold a number at or above `from`, ascending; the first may begin below it.
    pub fn iter_from(&self, from: u64) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|r| r.end <= from);
        self.ranges.range(first..).cloned()
    }

    /// The parts of `within` that are not in the set, ascending.
    pub fn gaps(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = within.start;
        let end = within.end;
        let mut ranges = self.iter_from(within.start);
        core::iter::from_fn(move || {
            while at < end {
                let next = ranges.next().unwrap_or(end..end);
                let gap = at..next.start.min(end);
                at = next.end.max(at);
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.front().cloned()
    }

    /// The highest range.
    pub fn last(&self) -> Option<Range<u64>> {
        self.ranges.back().cloned()
    }

    /// Takes the lowest numbers out, at most `limit` of them, as one range.
    pub fn take_first(&mut self, limit: u64) -> Option<Range<u64>> {
        let first = self.ranges.front_mut()?;
        if first.end - first.start <= limit {
            return self.ranges.pop_front();
        }
        let taken = first.start..first.start + limit;
        first.start = taken.end;
        (limit > 0).then_some(taken)
    }

    /// Number of ranges.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Count of numbers in the set. O(ranges).
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Empties the set, keeping its memory.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.ranges).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn neighbours_merge() {
        let mut set = RangeSet::new();
        assert_eq!(set.insert(10..20), 10);
        assert_eq!(set.insert(30..40), 10);
        assert_eq!(set.insert(20..30), 10);
        assert_eq!((set.first(), set.range_count()), (Some(10..40), 1));
        assert_eq!(set.insert(5..45), 10);
        assert_eq!(set.gaps(0..50).collect::<Vec<_>>(), [0..5, 45..50]);
        assert_eq!(set.take_first(3), Some(5..8));
        assert_eq!(set.total(), 37);
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(
            steps in prop::collection::vec((0u8..4, 0u64..200, 0u64..40), 1..60)
        ) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (what, start, len) in steps {
                let range = start..start + len;
                match what {
                    0 | 1 => {
                        let new = range.clone().filter(|n| model.insert(*n)).count() as u64;
                        prop_assert_eq!(set.insert(range), new);
                    }
                    2 => {
                        let gone = range.clone().filter(|n| model.remove(n)).count() as u64;
                        prop_assert_eq!(set.remove(range), gone);
                    }
                    _ => {
                        set.remove_below(start / 4);
                        model.retain(|n| *n >= start / 4);
                    }
                }
                let all: Vec<u64> = set.iter().flatten().collect();
                prop_assert_eq!(&all, &model.iter().copied().collect::<Vec<_>>());
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
                for n in 0..240 {
                    prop_assert_eq!(set.contains(n), model.contains(&n));
                }
                let gaps: Vec<u64> = set.gaps(3..230).flatten().collect();
                let expected: Vec<u64> = (3..230).filter(|n| !model.contains(n)).collect();
                prop_assert_eq!(gaps, expected);
            }
        }
    }
}
