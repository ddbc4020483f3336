//! Booking a vector of many ranges at once: the blocks it touches are merged with it in one pass,
//! instead of moving breakpoints for every range.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::block::{BLOCK, Block, Entry};
use super::{Profile, join, locate, locate_from, remove_first_if_equal};
use crate::capacity::{Calendar, FOREVER, ReserveError};
use crate::vector::Allocation;

impl Profile {
    /// Takes ascending, disjoint ranges whose neighbours differ in rate. They must be free: after
    /// an error some of them may have been taken.
    pub(crate) fn reserve_all(&mut self, ranges: &[Allocation]) -> Result<(), ReserveError> {
        match self.span_of(ranges) {
            Some((first, last)) => self.rebuild(ranges, first, last, |free, rate| {
                free.checked_sub(rate).ok_or(ReserveError::Overbooked { free })
            }),
            None => ranges.iter().try_for_each(|r| self.reserve(r.start, r.end, r.rate)),
        }
    }

    /// Gives such ranges back; they must be booked.
    pub(crate) fn release_all(&mut self, ranges: &[Allocation]) -> Result<(), ReserveError> {
        let capacity = self.capacity;
        match self.span_of(ranges) {
            Some((first, last)) => self.rebuild(ranges, first, last, |free, rate| {
                let sum = free.checked_add(rate).filter(|sum| *sum <= capacity);
                sum.ok_or(ReserveError::NotReserved)
            }),
            None => ranges.iter().try_for_each(|r| self.release(r.start, r.end, r.rate)),
        }
    }

    /// The entries that the ranges touch, if merging these with the ranges is worth it: if they
    /// are fewer than the ranges, of which there are some.
    fn span_of(&self, ranges: &[Allocation]) -> Option<(usize, usize)> {
        let ([start, .., end], true) = (ranges, ranges.len() > 2) else { return None };
        if start.start < self.floor {
            return None;
        }
        let first = locate(&self.entries, start.start);
        let last = locate_from(&self.entries, first, end.end - 1);
        (last - first < ranges.len()).then_some((first, last))
    }

    fn rebuild(
        &mut self,
        ranges: &[Allocation],
        first: usize,
        last: usize,
        change: impl Fn(u32, u32) -> Result<u32, ReserveError>,
    ) -> Result<(), ReserveError> {
        let count: usize = self.entries[first..=last].iter().map(Entry::len).sum();
        let mut points: Vec<(u64, u32)> = Vec::with_capacity(count + 2 * ranges.len());
        let mut before = None;
        let mut push = |start: u64, free: u32| {
            if before != Some(free) {
                points.push((start, free));
                before = Some(free);
            }
        };
        let end = self.entry_end(last);
        let mut ranges = ranges.iter().copied();
        let mut range = ranges.next().unwrap_or(NO_RANGE);
        for index in first..=last {
            let entry = &self.entries[index];
            let stop = self.entry_end(index);
            let ends = entry.block.starts()[1..].iter().copied().chain([stop]);
            for ((start, raw), end) in entry.block.starts().iter().zip(entry.block.free()).zip(ends)
            {
                let free = raw.wrapping_add(entry.add);
                let mut at = *start;
                while range.end <= end && range.rate > 0 {
                    if at < range.start {
                        push(at, free);
                    }
                    push(range.start.max(at), change(free, range.rate)?);
                    at = range.end;
                    range = ranges.next().unwrap_or(NO_RANGE);
                }
                if at < end {
                    if at < range.start {
                        push(at, free);
                    }
                    if range.start < end {
                        push(range.start.max(at), change(free, range.rate)?);
                    }
                }
            }
        }
        let blocks = points.len().div_ceil(BLOCK * 3 / 4);
        let size = points.len().div_ceil(blocks);
        let mut chunks = points.chunks(size).peekable();
        let mut fresh = Vec::with_capacity(blocks);
        while let Some(chunk) = chunks.next() {
            let stop = chunks.peek().map_or(end, |next| next[0].0);
            fresh.push(Entry::of(chunk, stop));
        }
        let entries = Arc::make_mut(&mut self.entries);
        let next = first + fresh.len();
        match <[Entry; 1]>::try_from(fresh) {
            Ok([entry]) if first == last => entries[first] = entry,
            Ok(one) => drop(entries.splice(first..=last, one)),
            Err(many) => drop(entries.splice(first..=last, many)),
        }
        if next < entries.len() {
            remove_first_if_equal(entries, next);
        }
        if first > 0 {
            remove_first_if_equal(entries, first);
        }
        join(entries, first.min(entries.len() - 1));
        Ok(())
    }
}

impl Entry {
    /// A new entry of these breakpoints, which reaches to `end`.
    fn of(points: &[(u64, u32)], end: u64) -> Self {
        let mut block = Block::one(0, 0);
        let (min, max, area) = block.fill(points, end);
        Self { first: points[0].0, add: 0, min, max, area, block: Arc::new(block) }
    }
}

/// After the last range.
const NO_RANGE: Allocation = Allocation { start: FOREVER, end: FOREVER, rate: 0 };
