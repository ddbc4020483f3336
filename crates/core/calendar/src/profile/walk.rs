use super::block::{self, Entry};
use crate::capacity::{Segment, Walk};

/// A position on a [`crate::profile::Profile`]; whole blocks are skipped by their summaries.
#[derive(Clone)]
pub struct ProfileWalk<'a> {
    entries: &'a [Entry],
    floor: u64,
    entry: usize,
    at: usize,
    first: u64,
    lows: &'a [u32],
    free: &'a [u32],
    add: u32,
    segment: Segment,
}

impl<'a> ProfileWalk<'a> {
    pub(super) fn new(entries: &'a [Entry], floor: u64, tick: u64) -> Self {
        let tick = tick.max(floor);
        let entry = super::locate(entries, tick);
        let Entry { first, add, .. } = entries[entry];
        let (lows, free) = (entries[entry].lows(), entries[entry].raw());
        let at = entries[entry].find(tick);
        let segment = Segment { start: 0, end: 0, free: 0 };
        let mut walk = Self { entries, floor, entry, at, first, lows, free, add, segment };
        walk.load();
        walk
    }

    /// Reads the segment at `entry` and `at`.
    fn load(&mut self) {
        self.segment = Segment {
            start: block::tick(self.first, self.lows[self.at]).max(self.floor),
            end: self.end(),
            free: self.free[self.at].wrapping_add(self.add),
        };
    }

    /// Where the segment at `entry` and `at` ends.
    #[inline]
    fn end(&self) -> u64 {
        match self.lows.get(self.at + 1) {
            Some(low) => block::tick(self.first, *low),
            None => super::entry_end(self.entries, self.entry),
        }
    }

    /// Moves forward to the segment that holds `tick`; stays if that is here or behind.
    pub(crate) fn seek(&mut self, tick: u64) {
        // Mostly it is near.
        for _ in 0..4 {
            if tick < self.segment.end || !self.forward() {
                return;
            }
        }
        if tick < self.segment.end {
            return;
        }
        let entry = match self.entries.get(self.entry + 1) {
            Some(next) if next.first <= tick => super::locate(self.entries, tick),
            _ => self.entry,
        };
        self.enter(entry, self.entries[entry].find(tick));
    }

    fn enter(&mut self, entry: usize, at: usize) {
        self.entry = entry;
        self.first = self.entries[entry].first;
        self.lows = self.entries[entry].lows();
        self.free = self.entries[entry].raw();
        self.add = self.entries[entry].add;
        self.at = at;
        self.load();
    }

    fn last(&mut self) {
        let entry = self.entries.len() - 1;
        self.enter(entry, self.entries[entry].len() - 1);
    }

    /// The starts of the segments from `(entry, at)` on, up to this one or up to the end.
    fn note(&self, entry: usize, at: usize, more: bool, passed: &mut dyn FnMut(u64, &[u32])) {
        let to = if more { self.at } else { self.at + 1 };
        let mut from = at;
        for index in entry..=self.entry {
            let entry = &self.entries[index];
            let to = if index == self.entry { to } else { entry.len() };
            if from < to {
                passed(entry.start(from), &entry.lows()[from..to]);
            }
            from = 0;
        }
    }
}

impl Walk for ProfileWalk<'_> {
    fn segment(&self) -> Segment {
        self.segment
    }

    #[inline]
    fn forward(&mut self) -> bool {
        if let Some(free) = self.free.get(self.at + 1) {
            self.at += 1;
            let free = free.wrapping_add(self.add);
            self.segment = Segment { start: self.segment.end, end: self.end(), free };
            return true;
        }
        if self.entry + 1 == self.entries.len() {
            return false;
        }
        self.enter(self.entry + 1, 0);
        true
    }

    fn back(&mut self) -> bool {
        if self.segment.start <= self.floor {
            return false;
        }
        if self.at > 0 {
            self.at -= 1;
            self.load();
            return true;
        }
        if self.entry == 0 {
            return false;
        }
        self.enter(self.entry - 1, self.entries[self.entry - 1].len() - 1);
        true
    }

    fn to_at_least(&mut self, rate: u32) -> bool {
        if self.segment.free >= rate {
            return true;
        }
        for entry in self.entry..self.entries.len() {
            let e = &self.entries[entry];
            if e.max < rate {
                continue;
            }
            let from = if entry == self.entry { self.at } else { 0 };
            let found = e.raw()[from..].iter().position(|f| f.wrapping_add(e.add) >= rate);
            if let Some(found) = found {
                self.enter(entry, from + found);
                return true;
            }
        }
        self.last();
        false
    }

    fn back_to_at_least(&mut self, rate: u32) -> bool {
        if self.segment.free >= rate {
            return true;
        }
        for entry in (0..=self.entry).rev() {
            let e = &self.entries[entry];
            if e.max < rate {
                continue;
            }
            let to = if entry == self.entry { self.at + 1 } else { e.len() };
            let found = e.raw()[..to].iter().rposition(|f| f.wrapping_add(e.add) >= rate);
            if let Some(found) = found {
                self.enter(entry, found);
                return self.segment.end > self.floor;
            }
        }
        self.enter(0, 0);
        false
    }

    fn to_below(&mut self, rate: u32, limit: u64) -> bool {
        if self.segment.free < rate || self.segment.start >= limit {
            return true;
        }
        let mut from = self.at + 1;
        for (index, entry) in self.entries.iter().enumerate().skip(self.entry) {
            let end = super::entry_end(self.entries, index);
            let below = entry.first_beyond(from, rate, limit, end);
            if below < entry.len() {
                self.enter(index, below);
                return true;
            }
            from = 0;
        }
        self.last();
        false
    }

    fn to_below_noting(
        &mut self,
        rate: u32,
        limit: u64,
        passed: &mut dyn FnMut(u64, &[u32]),
    ) -> bool {
        let (entry, at) = (self.entry, self.at + 1);
        let more = self.to_below(rate, limit);
        // Not if this segment already was the end.
        if (entry, at) <= (self.entry, self.at) {
            self.note(entry, at, more, passed);
        }
        more
    }
}
