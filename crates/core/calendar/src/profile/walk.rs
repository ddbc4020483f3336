use super::block::{Block, Entry};
use crate::capacity::{FOREVER, Segment, Walk};

/// A position on a [`crate::Profile`]; whole blocks are skipped by their summaries.
#[derive(Clone)]
pub struct ProfileWalk<'a> {
    entries: &'a [Entry],
    floor: u64,
    entry: usize,
    at: usize,
    block: &'a Block,
    add: u32,
    segment: Segment,
}

impl<'a> ProfileWalk<'a> {
    pub(super) fn new(entries: &'a [Entry], floor: u64, tick: u64) -> Self {
        let tick = tick.max(floor);
        let entry = super::locate(entries, tick);
        let block = &*entries[entry].block;
        let at = block.starts().partition_point(|start| *start <= tick) - 1;
        let segment = Segment { start: 0, end: 0, free: 0 };
        let add = entries[entry].add;
        let mut walk = Self { entries, floor, entry, at, block, add, segment };
        walk.load();
        walk
    }

    /// Reads the segment at `entry` and `at`.
    fn load(&mut self) {
        let starts = self.block.starts();
        let end = match starts.get(self.at + 1) {
            Some(end) => *end,
            None => self.entries.get(self.entry + 1).map_or(FOREVER, |next| next.first),
        };
        self.segment = Segment {
            start: starts[self.at].max(self.floor),
            end,
            free: self.block.free()[self.at].wrapping_add(self.add),
        };
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
        let starts = self.entries[entry].block.starts();
        self.enter(entry, starts.partition_point(|start| *start <= tick) - 1);
    }

    fn enter(&mut self, entry: usize, at: usize) {
        self.entry = entry;
        self.block = &*self.entries[entry].block;
        self.add = self.entries[entry].add;
        self.at = at;
        self.load();
    }

    fn last(&mut self) {
        let entry = self.entries.len() - 1;
        self.enter(entry, self.entries[entry].len() - 1);
    }
}

impl Walk for ProfileWalk<'_> {
    fn segment(&self) -> Segment {
        self.segment
    }

    #[inline]
    fn forward(&mut self) -> bool {
        let starts = self.block.starts();
        if self.at + 1 < starts.len() {
            self.at += 1;
            let end = match starts.get(self.at + 1) {
                Some(end) => *end,
                None => self.entries.get(self.entry + 1).map_or(FOREVER, |next| next.first),
            };
            let free = self.block.free()[self.at].wrapping_add(self.add);
            self.segment = Segment { start: self.segment.end, end, free };
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
            let found = e.block.free()[from..].iter().position(|f| f.wrapping_add(e.add) >= rate);
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
            let found = e.block.free()[..to].iter().rposition(|f| f.wrapping_add(e.add) >= rate);
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
        for entry in self.entry..self.entries.len() {
            let e = &self.entries[entry];
            let from = if entry == self.entry { self.at } else { 0 };
            if e.block.starts()[from] >= limit {
                self.enter(entry, from);
                return true;
            }
            if e.min >= rate && self.entries.get(entry + 1).is_some_and(|n| n.first < limit) {
                continue;
            }
            let starts = e.block.starts()[from..].iter();
            let found = starts
                .zip(&e.block.free()[from..])
                .position(|(start, f)| f.wrapping_add(e.add) < rate || *start >= limit);
            if let Some(found) = found {
                self.enter(entry, from + found);
                return true;
            }
        }
        self.last();
        false
    }
}
