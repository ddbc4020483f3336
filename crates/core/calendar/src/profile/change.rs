//! Taking and giving back: one pass from left to right over the blocks that some ranges touch.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::block::{self, BLOCK, Entry, SPAN};
use super::{Profile, entry_end, join, locate, locate_from, remove_first_if_equal};
use crate::capacity::FOREVER;
use crate::vector::Allocation;

/// Change of the rates of ranges.
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
            let mut stop = entry_end(entries, index);
            let entry = &mut entries[index];
            let begins = (ranges.now.start == entry.first).then_some(index);
            if ranges.now.start <= entry.first && ranges.now.end >= stop {
                entry.change_whole(way.change(ranges.now.rate));
                ranges.pass(stop);
            } else {
                let old = entry.merge(way, &mut ranges, stop, &mut fresh);
                if let Some(far) = fresh.far {
                    let rest = Entry::single(far, entry.last_free());
                    entries.insert(index + 1, rest);
                    stop = far;
                }
                index = replace(entries, index, old, &fresh);
            }
            debug_assert!(entries[index].max <= self.capacity, "free, or booked, as asked");
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
    fn change_whole(&mut self, change: u32) {
        self.add = self.add.wrapping_add(change);
        self.min = self.min.wrapping_add(change);
        self.max = self.max.wrapping_add(change);
    }

    /// Merges ranges into the block up to `stop`, its end, or to a breakpoint that is too far from
    /// the first. Lists in `fresh` what comes instead of the breakpoints that are returned.
    fn merge<I: Iterator<Item = Allocation>>(
        &self,
        way: Way,
        ranges: &mut Ranges<I>,
        stop: u64,
        fresh: &mut Points,
    ) -> Range<usize> {
        let (lows, free) = (self.lows(), self.raw());
        let mut at = ranges.now.start.max(self.first);
        // The segment that holds `at`, of which nothing is replaced that lies before.
        let mut index = if at == self.first { 0 } else { self.find(at) };
        let from = index + usize::from(self.start(index) < at);
        fresh.clear();
        fresh.before = from.checked_sub(1).map(|before| free[before]);
        while at < stop && ranges.now.start < stop {
            if at - self.first > SPAN {
                fresh.far = Some(at);
                break;
            }
            let Allocation { start, end, rate } = ranges.now;
            let (to, change) = if at < start {
                (start, 0)
            } else {
                let to = end.min(stop);
                ranges.pass(to);
                (to, way.change(rate))
            };
            fresh.push(at, free[index].wrapping_add(change));
            let next = self.next_from(index + 1, to);
            fresh.lows.extend_from_slice(&lows[index + 1..next]);
            fresh.free.extend(free[index + 1..next].iter().map(|free| free.wrapping_add(change)));
            index = if next < lows.len() && self.start(next) == to { next } else { next - 1 };
            at = to;
        }
        let to = if at == stop || fresh.far.is_some() {
            lows.len()
        } else if self.start(index) < at || fresh.last() == Some(free[index]) {
            match at - self.first {
                ..=SPAN => fresh.push(at, free[index]),
                _ => fresh.far = Some(at),
            }
            index + 1
        } else {
            index
        };
        from..to
    }
}

impl Way {
    /// Number that is added, modulo 2^32, to what is free.
    fn change(self, rate: u32) -> u32 {
        match self {
            Self::Take => rate.wrapping_neg(),
            Self::Give => rate,
        }
    }
}

/// Puts `fresh` in the place of some breakpoints of an entry; splits it if it gets too long.
/// Returns the last of the entries that it becomes.
fn replace(entries: &mut Vec<Entry>, index: usize, old: Range<usize>, fresh: &Points) -> usize {
    let entry = &mut entries[index];
    if entry.len() - old.len() + fresh.lows.len() <= BLOCK {
        entry.replace(old, &fresh.lows, &fresh.free);
        return index;
    }
    let mut lows = entry.lows().to_vec();
    let mut free = entry.raw().to_vec();
    lows.splice(old.clone(), fresh.lows.iter().copied());
    free.splice(old, fresh.free.iter().copied());
    let size = lows.len().div_ceil(lows.len().div_ceil(BLOCK * 3 / 4));
    let (first, add) = (entry.first, entry.add);
    let firsts = lows.iter().step_by(size).map(|low| block::tick(first, *low));
    let parts = lows.chunks(size).zip(free.chunks(size)).zip(firsts);
    let parts = parts.map(|((lows, free), first)| Entry::of(first, lows, free, add));
    let parts: Vec<Entry> = parts.collect();
    let last = index + parts.len() - 1;
    entries.splice(index..=index, parts);
    last
}

/// Breakpoints on their way into a block.
struct Points {
    /// The free capacity before the first.
    before: Option<u32>,
    lows: Vec<u32>,
    free: Vec<u32>,
    /// Where the next would be, if that is too far for this block.
    far: Option<u64>,
}

impl Points {
    fn new() -> Self {
        let (lows, free) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
        Self { before: None, lows, free, far: None }
    }

    fn clear(&mut self) {
        self.lows.clear();
        self.free.clear();
        self.far = None;
    }

    fn last(&self) -> Option<u32> {
        self.free.last().copied().or(self.before)
    }

    fn push(&mut self, start: u64, free: u32) {
        if self.last() != Some(free) {
            self.lows.push(start as u32);
            self.free.push(free);
        }
    }
}

/// After the last range.
const NO_RANGE: Allocation = Allocation { start: FOREVER, end: FOREVER, rate: 0 };
