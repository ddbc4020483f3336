use alloc::sync::Arc;

/// Breakpoints a block can hold. Blocks of 64 to 512 measure alike; this one keeps a copied block
/// at 1.5 KiB. Tests use tiny blocks so that short traces split and join them.
pub(super) const BLOCK: usize = if cfg!(test) { 8 } else { 128 };

/// Neighbours that together hold no more than this are joined.
pub(super) const JOIN: usize = BLOCK / 2;

/// Consecutive breakpoints: at `starts[i]` the free capacity becomes `free[i]` plus the lazy
/// addend of the block's entry.
#[derive(Clone)]
pub(super) struct Block {
    len: usize,
    starts: [u64; BLOCK],
    free: [u32; BLOCK],
}

impl Block {
    pub(super) fn one(start: u64, free: u32) -> Self {
        let mut block = Self { len: 1, starts: [0; BLOCK], free: [0; BLOCK] };
        block.starts[0] = start;
        block.free[0] = free;
        block
    }

    /// Replaces the contents by these, no more than [`BLOCK`], the last of which reaches to `end`.
    /// Returns the least and most free capacity and the area.
    pub(super) fn fill(&mut self, points: &[(u64, u32)], end: u64) -> (u32, u32, u128) {
        self.len = points.len();
        let (mut min, mut max, mut area) = (u32::MAX, 0, 0);
        let mut before = points[0];
        for ((start, free), point) in self.starts.iter_mut().zip(&mut self.free).zip(points) {
            (*start, *free) = *point;
            min = min.min(point.1);
            max = max.max(point.1);
            area += u128::from(point.0 - before.0) * u128::from(before.1);
            before = *point;
        }
        (min, max, area + u128::from(end - before.0) * u128::from(before.1))
    }

    pub(super) fn starts(&self) -> &[u64] {
        &self.starts[..self.len]
    }

    pub(super) fn free(&self) -> &[u32] {
        &self.free[..self.len]
    }

    pub(super) fn free_mut(&mut self) -> &mut [u32] {
        &mut self.free[..self.len]
    }

    pub(super) fn insert(&mut self, at: usize, start: u64, free: u32) {
        self.starts.copy_within(at..self.len, at + 1);
        self.free.copy_within(at..self.len, at + 1);
        self.starts[at] = start;
        self.free[at] = free;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.starts.copy_within(at + 1..self.len, at);
        self.free.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }

    /// Moves the upper half into a block of its own.
    fn halve(&mut self) -> Self {
        let half = self.len / 2;
        let mut upper = Self::one(0, 0);
        upper.len = self.len - half;
        upper.starts[..upper.len].copy_from_slice(&self.starts[half..self.len]);
        upper.free[..upper.len].copy_from_slice(&self.free[half..self.len]);
        self.len = half;
        upper
    }

    fn append(&mut self, other: &Self, add: u32) {
        let end = self.len + other.len;
        self.starts[self.len..end].copy_from_slice(other.starts());
        for (to, from) in self.free[self.len..end].iter_mut().zip(other.free()) {
            *to = from.wrapping_add(add);
        }
        self.len = end;
    }
}

/// A block with its summary. Adding to a whole block touches only this.
#[derive(Clone)]
pub(super) struct Entry {
    /// First breakpoint; the block reaches to the next entry's.
    pub first: u64,
    /// Added to every `free` of the block, modulo 2^32.
    pub add: u32,
    /// Least free capacity.
    pub min: u32,
    /// Most free capacity.
    pub max: u32,
    /// Sum of free capacity over the ticks of the block, in channel ticks.
    pub area: u128,
    /// The breakpoints, shared with snapshots until one side writes.
    pub block: Arc<Block>,
}

impl Entry {
    pub(super) fn free(&self, at: usize) -> u32 {
        self.block.free()[at].wrapping_add(self.add)
    }

    pub(super) fn last_free(&self) -> u32 {
        self.free(self.block.len - 1)
    }

    /// Least and most free capacity of some of the block's segments.
    pub(super) fn extremes(&self, from: usize, to: usize) -> (u32, u32) {
        let mut low = u32::MAX;
        let mut high = 0;
        for free in &self.block.free()[from..to] {
            let free = free.wrapping_add(self.add);
            low = low.min(free);
            high = high.max(free);
        }
        (low, high)
    }

    pub(super) fn refresh(&mut self) {
        (self.min, self.max) = self.extremes(0, self.block.len);
    }

    pub(super) fn is_full(&self) -> bool {
        // One booking adds at most two breakpoints to a block.
        self.block.len + 2 > BLOCK
    }

    pub(super) fn is_single(&self) -> bool {
        self.block.len == 1
    }

    pub(super) fn len(&self) -> usize {
        self.block.len
    }

    /// Splits in two; `end` is where the entry ended.
    pub(super) fn halve(&mut self, end: u64) -> Self {
        let block = Arc::make_mut(&mut self.block).halve();
        let mut upper = Self {
            first: block.starts()[0],
            add: self.add,
            min: 0,
            max: 0,
            area: 0,
            block: Arc::new(block),
        };
        upper.area = upper.sum(end);
        self.area -= upper.area;
        upper.refresh();
        self.refresh();
        upper
    }

    /// Takes in the entry that follows.
    pub(super) fn absorb(&mut self, next: &Self) {
        let add = next.add.wrapping_sub(self.add);
        Arc::make_mut(&mut self.block).append(&next.block, add);
        self.area += next.area;
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
    }

    fn sum(&self, end: u64) -> u128 {
        let starts = self.block.starts();
        let ends = starts[1..].iter().copied().chain([end]);
        let lengths = starts.iter().zip(ends).map(|(start, end)| end - start);
        (0..).zip(lengths).map(|(i, length)| u128::from(length) * u128::from(self.free(i))).sum()
    }
}
