//! A calendar so simple that it can be checked by eye: the oracle of the property tests, and the
//! baseline of the benchmarks.

use alloc::collections::BTreeMap;

use crate::capacity::{Calendar, Capacity, FOREVER, ReserveError, Segment, Walk};

/// Free capacity as a map from breakpoint to value. Correct, canonical, and O(breakpoints) for a
/// booking.
#[derive(Clone, Debug)]
pub struct NaiveProfile {
    capacity: u32,
    floor: u64,
    free: BTreeMap<u64, u32>,
}

impl NaiveProfile {
    /// A link with `capacity` channels, all free from `floor` on.
    pub fn new(capacity: u32, floor: u64) -> Self {
        Self { capacity, floor, free: BTreeMap::from([(floor, capacity)]) }
    }

    fn value_at(&self, at: u64) -> u32 {
        self.free.range(..=at).next_back().map_or(0, |(_, free)| *free)
    }

    /// Replaces the value of each breakpoint in `[start, end)` by what `change` makes of it.
    fn change(&mut self, start: u64, end: u64, change: impl Fn(u32) -> u32) {
        let (first, after) = (self.value_at(start), self.value_at(end));
        self.free.insert(start, first);
        self.free.insert(end, after);
        for (_, free) in self.free.range_mut(start..end) {
            *free = change(*free);
        }
        let mut before = None;
        self.free.retain(|_, free| before.replace(*free) != Some(*free));
    }
}

impl Capacity for NaiveProfile {
    type Walk<'a> = NaiveWalk<'a>;

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn floor(&self) -> u64 {
        self.floor
    }

    fn walk(&self, at: u64) -> NaiveWalk<'_> {
        NaiveWalk { profile: self, at: at.max(self.floor) }
    }
}

impl Calendar for NaiveProfile {
    fn reserve(&mut self, start: u64, end: u64, rate: u32) -> Result<(), ReserveError> {
        if start >= end || end == FOREVER {
            return Err(ReserveError::BadInterval);
        }
        if start < self.floor {
            return Err(ReserveError::Past);
        }
        let inner = self.free.range(start..end).map(|(_, free)| *free).min();
        let free = inner.unwrap_or(u32::MAX).min(self.value_at(start));
        if free < rate {
            return Err(ReserveError::Overbooked { free });
        }
        self.change(start, end, |free| free - rate);
        Ok(())
    }

    fn release(&mut self, start: u64, end: u64, rate: u32) -> Result<(), ReserveError> {
        if start >= end || end == FOREVER {
            return Err(ReserveError::BadInterval);
        }
        let start = start.max(self.floor);
        if start >= end {
            return Ok(());
        }
        let inner = self.free.range(start..end).map(|(_, free)| *free).max();
        let free = inner.unwrap_or(0).max(self.value_at(start));
        if self.capacity - free < rate {
            return Err(ReserveError::NotReserved);
        }
        self.change(start, end, |free| free + rate);
        Ok(())
    }

    fn forget_before(&mut self, tick: u64) {
        if tick > self.floor {
            let free = self.value_at(tick);
            self.free = self.free.split_off(&tick);
            self.free.insert(tick, free);
            self.floor = tick;
        }
    }
}

/// A position on a [`NaiveProfile`]: a tick.
#[derive(Clone)]
pub struct NaiveWalk<'a> {
    profile: &'a NaiveProfile,
    at: u64,
}

impl Walk for NaiveWalk<'_> {
    fn segment(&self) -> Segment {
        let free = &self.profile.free;
        let (start, value) = free.range(..=self.at).next_back().unwrap_or((&0, &0));
        let end = free.range(self.at + 1..).next().map_or(FOREVER, |(end, _)| *end);
        Segment { start: (*start).max(self.profile.floor), end, free: *value }
    }

    fn forward(&mut self) -> bool {
        let end = self.segment().end;
        if end != FOREVER {
            self.at = end;
        }
        end != FOREVER
    }

    fn back(&mut self) -> bool {
        let start = self.segment().start;
        let moves = start > self.profile.floor;
        if moves {
            self.at = start - 1;
        }
        moves
    }
}
