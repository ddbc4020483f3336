//! Taking and giving back: one pass from left to right over the blocks that some ranges touch.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::block::{BLOCK, Entry};
use super::{Profile, entry_end, join, locate, locate_from, remove_first_if_equal};
use crate::capacity::FOREVER;
use crate::vector::Allocation;

/// What is done with the rates of ranges.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// They are booked.
    Take,
    /// They become free again.
    Give,
}

impl Profile {
    /// Takes or gives back ascending, disjoint ranges, which the caller knows to be free or to be
    /// booked. What of them lies before the floor is ignored.
    pub(crate) fn change(&mut self, way: Way, ranges: impl Iterator<Item = Allocation>) {
        let floor = self.floor;
        let ahead = ranges.filter(|r| r.end > floor);
        let mut ranges = Ranges::new(ahead.map(|r| Allocation { start: r.start.max(floor), ..r }));
        if ranges.now == NO_RANGE {
            return;
        }
        let entries = Arc::make_mut(&mut self.entries);
        let mut fresh = Points::new();
        let mut index = locate(entries, ranges.now.start);
        loop {
            let stop = entry_end(entries, index);
            let entry = &mut entries[index];
            let begins = (ranges.now.start == entry.first).then_some(index);
            if ranges.now.start <= entry.first && ranges.now.end >= stop {
                entry.change_whole(way, ranges.now.rate, stop);
                ranges.pass(stop);
            } else {
                let old = entry.merge(way, &mut ranges, stop, &mut fresh);
                index = replace(entries, index, old, &fresh, stop);
            }
            debug_assert!(entries[index].max <= self.capacity, "free, or booked, as was said");
            // Only at the edges of ranges can blocks come to meet at one capacity.
            if begins.is_some_and(|index| index > 0 && remove_first_if_equal(entries, index)) {
                index -= 1;
            }
            if ranges.passed == stop && ranges.now.start != stop {
                remove_first_if_equal(entries, index + 1);
            }
            if index > 0 && join(entries, index - 1) {
                index -= 1;
            }
            if ranges.now == NO_RANGE {
                break;
            }
            index = locate_from(entries, index, ranges.now.start.max(stop));
        }
        join(entries, index);
    }
}

/// Ranges that are used up one after the other.
struct Ranges<I> {
    now: Allocation,
    /// Where the one before ended.
    passed: u64,
    rest: I,
}

impl<I: Iterator<Item = Allocation>> Ranges<I> {
    fn new(mut rest: I) -> Self {
        Self { now: rest.next().unwrap_or(NO_RANGE), passed: 0, rest }
    }

    /// Goes on to the next if this one ends at `tick`.
    fn pass(&mut self, tick: u64) {
        if self.now.end == tick {
            self.passed = tick;
            self.now = self.rest.next().unwrap_or(NO_RANGE);
        }
    }
}

impl Entry {
    fn change_whole(&mut self, way: Way, rate: u32, stop: u64) {
        let change = way.change(rate);
        self.add = self.add.wrapping_add(change);
        self.min = self.min.wrapping_add(change);
        self.max = self.max.wrapping_add(change);
        self.count(way, area(rate, stop - self.first));
    }

    /// Merges ranges into the block up to `stop`, its end. Lists in `fresh` what comes instead of
    /// the breakpoints that are returned.
    fn merge<I: Iterator<Item = Allocation>>(
        &mut self,
        way: Way,
        ranges: &mut Ranges<I>,
        stop: u64,
        fresh: &mut Points,
    ) -> Range<usize> {
        let (starts, free) = (self.starts(), self.raw());
        let mut at = ranges.now.start.max(self.first);
        // The segment that holds `at`, of which nothing is replaced that lies before.
        let mut index = if at == self.first { 0 } else { self.find(at) };
        let from = index + usize::from(starts[index] < at);
        fresh.clear();
        fresh.before = from.checked_sub(1).map(|before| free[before]);
        let mut changed = 0;
        while at < stop && ranges.now.start < stop {
            let Allocation { start, end, rate } = ranges.now;
            let (to, change) = if at < start {
                (start, 0)
            } else {
                let to = end.min(stop);
                changed += area(rate, to - at);
                ranges.pass(to);
                (to, way.change(rate))
            };
            fresh.push(at, free[index].wrapping_add(change));
            let next = index + 1 + starts[index + 1..].partition_point(|start| *start < to);
            fresh.starts.extend_from_slice(&starts[index + 1..next]);
            fresh.free.extend(free[index + 1..next].iter().map(|free| free.wrapping_add(change)));
            index = next - usize::from(starts.get(next) != Some(&to));
            at = to;
        }
        let to = if at == stop {
            starts.len()
        } else if starts[index] < at || fresh.last() == Some(free[index]) {
            fresh.push(at, free[index]);
            index + 1
        } else {
            index
        };
        self.count(way, changed);
        from..to
    }

    fn count(&mut self, way: Way, area: u128) {
        match way {
            Way::Take => self.area -= area,
            Way::Give => self.area += area,
        }
    }
}

impl Way {
    /// What is added, modulo 2^32, to what is free.
    fn change(self, rate: u32) -> u32 {
        match self {
            Self::Take => rate.wrapping_neg(),
            Self::Give => rate,
        }
    }
}

/// Puts `fresh` in the place of some breakpoints of an entry that ends at `stop`; splits it if it
/// gets too long. Returns the last of the entries that it becomes.
fn replace(
    entries: &mut Vec<Entry>,
    index: usize,
    old: Range<usize>,
    fresh: &Points,
    stop: u64,
) -> usize {
    let entry = &mut entries[index];
    if entry.len() - old.len() + fresh.starts.len() <= BLOCK {
        entry.replace(old, &fresh.starts, &fresh.free);
        return index;
    }
    let mut starts = entry.starts().to_vec();
    let mut free = entry.raw().to_vec();
    starts.splice(old.clone(), fresh.starts.iter().copied());
    free.splice(old, fresh.free.iter().copied());
    let size = starts.len().div_ceil(starts.len().div_ceil(BLOCK * 3 / 4));
    let add = entry.add;
    let ends = starts.iter().copied().skip(size).step_by(size).chain([stop]);
    let parts = starts.chunks(size).zip(free.chunks(size)).zip(ends);
    let parts = parts.map(|((starts, free), end)| Entry::of(starts, free, add, end));
    let parts: Vec<Entry> = parts.collect();
    let last = index + parts.len() - 1;
    entries.splice(index..=index, parts);
    last
}

fn area(rate: u32, ticks: u64) -> u128 {
    u128::from(rate) * u128::from(ticks)
}

/// Breakpoints on their way into a block.
struct Points {
    /// The free capacity before the first.
    before: Option<u32>,
    starts: Vec<u64>,
    free: Vec<u32>,
}

impl Points {
    fn new() -> Self {
        let (starts, free) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
        Self { before: None, starts, free }
    }

    fn clear(&mut self) {
        self.starts.clear();
        self.free.clear();
    }

    fn last(&self) -> Option<u32> {
        self.free.last().copied().or(self.before)
    }

    fn push(&mut self, start: u64, free: u32) {
        if self.last() != Some(free) {
            self.starts.push(start);
            self.free.push(free);
        }
    }
}

/// After the last range.
const NO_RANGE: Allocation = Allocation { start: FOREVER, end: FOREVER, rate: 0 };
