use alloc::vec::Vec;

use crate::capacity::{Capacity, FOREVER, Segment, Walk};
use crate::profile::{Profile, ProfileWalk};

/// The free capacity of a path: at each tick the least of its links'. Nothing is merged before it
/// is asked for, so planning costs only what lies before the planned finish.
#[derive(Clone, Debug)]
pub struct PathCapacity<'a> {
    links: Vec<&'a Profile>,
}

impl<'a> PathCapacity<'a> {
    /// The path over these links, at least one.
    pub fn new(links: Vec<&'a Profile>) -> Self {
        debug_assert!(!links.is_empty(), "a path has at least one link");
        Self { links }
    }
}

impl Capacity for PathCapacity<'_> {
    type Walk<'b>
        = PathWalk<'b>
    where
        Self: 'b;

    fn capacity(&self) -> u32 {
        self.links.iter().map(|link| link.capacity()).min().unwrap_or(0)
    }

    fn floor(&self) -> u64 {
        self.links.iter().map(|link| link.floor()).max().unwrap_or(0)
    }

    fn walk(&self, at: u64) -> PathWalk<'_> {
        let at = at.max(self.floor());
        let mut walk = PathWalk {
            walks: self.links.iter().map(|link| link.walk(at)).collect(),
            floor: self.floor(),
            segment: Segment { start: 0, end: FOREVER, free: 0 },
        };
        walk.load();
        walk
    }
}

/// A position on a [`PathCapacity`].
#[derive(Clone)]
pub struct PathWalk<'a> {
    walks: Vec<ProfileWalk<'a>>,
    floor: u64,
    segment: Segment,
}

impl PathWalk<'_> {
    /// The stretch that all links' segments share.
    fn load(&mut self) {
        let mut all = Segment { start: self.floor, end: FOREVER, free: u32::MAX };
        for walk in &self.walks {
            let s = walk.segment();
            all.start = all.start.max(s.start);
            all.end = all.end.min(s.end);
            all.free = all.free.min(s.free);
        }
        self.segment = all;
    }

    /// Brings the walks that lag behind to `tick`; each has a segment there.
    fn seek(&mut self, tick: u64) {
        for walk in &mut self.walks {
            walk.seek(tick);
        }
    }

    /// Which link leaves the least free here, by its place in the path.
    pub(crate) fn narrowest(&self) -> usize {
        let free = |i: &usize| self.walks[*i].segment().free;
        (0..self.walks.len()).min_by_key(free).unwrap_or(0)
    }
}

impl Walk for PathWalk<'_> {
    fn segment(&self) -> Segment {
        self.segment
    }

    fn forward(&mut self) -> bool {
        if self.segment.end == FOREVER {
            return false;
        }
        let end = self.segment.end;
        let mut all = Segment { start: end, end: FOREVER, free: u32::MAX };
        for walk in &mut self.walks {
            if walk.segment().end == end {
                walk.forward();
            }
            let s = walk.segment();
            all.end = all.end.min(s.end);
            all.free = all.free.min(s.free);
        }
        self.segment = all;
        true
    }

    fn back(&mut self) -> bool {
        let start = self.segment.start;
        if start <= self.floor {
            return false;
        }
        for walk in &mut self.walks {
            if walk.segment().start == start {
                walk.back();
            }
        }
        self.load();
        true
    }

    fn to_at_least(&mut self, rate: u32) -> bool {
        if self.segment.free >= rate {
            return true;
        }
        loop {
            let mut tick = self.segment.start;
            for walk in &mut self.walks {
                let found = walk.to_at_least(rate);
                tick = tick.max(walk.segment().start);
                if !found {
                    self.seek(tick);
                    self.load();
                    return false;
                }
            }
            self.seek(tick);
            self.load();
            if self.segment.free >= rate {
                return true;
            }
        }
    }

    fn to_below(&mut self, rate: u32, limit: u64) -> bool {
        if self.segment.free < rate || self.segment.start >= limit {
            return true;
        }
        // The first of the links to close, or to change past the limit, ends the path's stretch.
        let mut nearest = FOREVER;
        for walk in &self.walks {
            let mut walk = walk.clone();
            if walk.to_below(rate, limit.min(nearest)) {
                nearest = nearest.min(walk.segment().start);
            }
        }
        self.seek(nearest.min(FOREVER - 1));
        self.load();
        nearest < FOREVER
    }
}
