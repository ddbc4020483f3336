use alloc::sync::Arc;
use core::ops::Range;

/// Breakpoints a block can hold. Blocks of 64 and 96 measure slower; this one keeps a copied block
/// at 1.5 KiB. Tests use tiny blocks so that short traces split and join them.
pub(super) const BLOCK: usize = if cfg!(test) { 8 } else { 128 };

/// Neighbours that together hold no more than this are joined.
pub(super) const JOIN: usize = BLOCK / 2;

/// Ticks in a cache line.
const LINE: usize = 8;

/// Consecutive breakpoints, as many as the block's entry says: at `starts[i]` the free capacity
/// becomes `free[i]` plus the lazy addend of the entry.
#[derive(Clone)]
pub(super) struct Block {
    starts: [u64; BLOCK],
    free: [u32; BLOCK],
}

/// A block with its summary. Adding to a whole block touches only this.
#[derive(Clone)]
pub(super) struct Entry {
    /// First breakpoint; the block reaches to the next entry's.
    pub first: u64,
    /// Number of breakpoints, at least one.
    len: u32,
    /// Added to every `free` of the block, modulo 2^32.
    pub add: u32,
    /// Least free capacity.
    pub min: u32,
    /// Most free capacity.
    pub max: u32,
    /// Sum of free capacity over the ticks of the block, in channel ticks.
    pub area: u128,
    /// The breakpoints, shared with snapshots until one side writes.
    block: Arc<Block>,
}

impl Entry {
    /// A new entry of these breakpoints, no more than [`BLOCK`], which reaches to `end`.
    pub(super) fn of(starts: &[u64], free: &[u32], add: u32, end: u64) -> Self {
        let mut block = Block { starts: [0; BLOCK], free: [0; BLOCK] };
        block.starts[..starts.len()].copy_from_slice(starts);
        block.free[..free.len()].copy_from_slice(free);
        let (first, len, block) = (starts[0], starts.len() as u32, Arc::new(block));
        let mut entry = Self { first, len, add, min: 0, max: 0, area: 0, block };
        entry.area = entry.sum(end);
        entry.refresh();
        entry
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn starts(&self) -> &[u64] {
        &self.block.starts[..self.len()]
    }

    /// Free capacities without the addend.
    pub(super) fn raw(&self) -> &[u32] {
        &self.block.free[..self.len()]
    }

    pub(super) fn free(&self, at: usize) -> u32 {
        self.raw()[at].wrapping_add(self.add)
    }

    pub(super) fn last_free(&self) -> u32 {
        self.free(self.len() - 1)
    }

    /// The segment that holds `tick`, which is not before the first.
    ///
    /// Looks at every cache line and then into one, because the loads do not wait for each other:
    /// the block is probably in no near cache, and a binary search would miss several times in turn.
    pub(super) fn find(&self, tick: u64) -> usize {
        let starts = self.starts();
        let lines = starts.chunks(LINE).filter(|line| line[0] <= tick).count();
        let line = (lines - 1) * LINE;
        line + starts[line..].iter().take(LINE).filter(|start| **start <= tick).count() - 1
    }

    /// Least and most free capacity of some of the block's segments.
    pub(super) fn extremes(&self, from: usize, to: usize) -> (u32, u32) {
        let mut low = u32::MAX;
        let mut high = 0;
        for free in &self.raw()[from..to] {
            let free = free.wrapping_add(self.add);
            low = low.min(free);
            high = high.max(free);
        }
        (low, high)
    }

    /// The first segment from `from` on that has less than `rate` free or begins at or after
    /// `limit`; the block reaches to `end`.
    pub(super) fn first_beyond(&self, from: usize, rate: u32, limit: u64, end: u64) -> usize {
        let roomy = self.min >= rate;
        if roomy && end <= limit {
            return self.len();
        }
        let (starts, free) = (&self.starts()[from..], &self.raw()[from..]);
        let below = |free: &u32| !roomy && free.wrapping_add(self.add) < rate;
        // Without a way out of the inner loop several are compared at once.
        let any = |free: &[u32]| free.iter().fold(false, |any, free| any | below(free));
        let lines = starts.chunks_exact(LINE).zip(free.chunks_exact(LINE));
        let passed = lines.take_while(|(starts, free)| starts[LINE - 1] < limit && !any(free));
        let passed = passed.count() * LINE;
        let rest = starts[passed..].iter().zip(&free[passed..]);
        from + passed + rest.take_while(|(start, free)| **start < limit && !below(free)).count()
    }

    /// Puts breakpoints in the place of some; there must be room. The area is left to the caller.
    pub(super) fn replace(&mut self, old: Range<usize>, starts: &[u64], free: &[u32]) {
        let len = self.len();
        let after = old.start + starts.len();
        let block = Arc::make_mut(&mut self.block);
        if after != old.end {
            block.starts.copy_within(old.end..len, after);
            block.free.copy_within(old.end..len, after);
        }
        block.starts[old.start..after].copy_from_slice(starts);
        block.free[old.start..after].copy_from_slice(free);
        self.len = (len - old.len() + starts.len()) as u32;
        self.refresh();
    }

    /// Drops the first breakpoint of several, and with it that stretch, whose area is returned.
    pub(super) fn drop_first(&mut self) -> u128 {
        let second = self.starts()[1];
        let area = u128::from(second - self.first) * u128::from(self.free(0));
        self.first = second;
        self.area -= area;
        self.replace(0..1, &[], &[]);
        area
    }

    /// Takes in the entry that follows; there must be room.
    pub(super) fn absorb(&mut self, next: &Self) {
        let add = next.add.wrapping_sub(self.add);
        let (from, to) = (self.len(), self.len() + next.len());
        let block = Arc::make_mut(&mut self.block);
        block.starts[from..to].copy_from_slice(next.starts());
        for (to, from) in block.free[from..to].iter_mut().zip(next.raw()) {
            *to = from.wrapping_add(add);
        }
        self.len = to as u32;
        self.area += next.area;
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
    }

    fn refresh(&mut self) {
        (self.min, self.max) = self.extremes(0, self.len());
    }

    fn sum(&self, end: u64) -> u128 {
        let starts = self.starts();
        let ends = starts[1..].iter().copied().chain([end]);
        let lengths = starts.iter().zip(ends).map(|(start, end)| end - start);
        (0..).zip(lengths).map(|(i, length)| u128::from(length) * u128::from(self.free(i))).sum()
    }
}
