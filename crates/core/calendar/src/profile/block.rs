use alloc::sync::Arc;
use core::ops::Range;

/// Breakpoints a block can hold, 2 KiB. Blocks of 128 and of 320 to 512 measure slower. Tests use
/// tiny blocks so that short traces split and join them.
pub(super) const BLOCK: usize = if cfg!(test) { 8 } else { 256 };

/// Neighbours that together hold no more than this are joined.
pub(super) const JOIN: usize = BLOCK / 2;

/// Breakpoints that are looked at one by one before others are counted several at a time.
const NEAR: usize = 4;

/// Breakpoints whose halves fill a cache line.
const LINE: usize = 16;

/// Consecutive breakpoints, as many as the block's entry says: at the tick whose low half is
/// `lows[i]` the free capacity becomes `free[i]` plus the lazy addend of the entry. The first and
/// the last are no more than [`SPAN`] apart, so the first tells the rest of each; and half of it
/// is half the memory to wait for.
#[derive(Clone)]
pub(super) struct Block {
    lows: [u32; BLOCK],
    free: [u32; BLOCK],
}

/// Largest distance of the last breakpoint of a block behind the first.
pub(super) const SPAN: u64 = u32::MAX as u64;

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
    /// The breakpoints, shared with snapshots until one side writes.
    block: Arc<Block>,
}

impl Entry {
    /// A new entry of one breakpoint.
    pub(super) fn single(first: u64, free: u32) -> Self {
        Self::of(first, &[first as u32], &[free], 0)
    }

    /// A new entry of these breakpoints from `first` on, no more than [`BLOCK`].
    pub(super) fn of(first: u64, lows: &[u32], free: &[u32], add: u32) -> Self {
        let mut block = Block { lows: [0; BLOCK], free: [0; BLOCK] };
        block.lows[..lows.len()].copy_from_slice(lows);
        block.free[..free.len()].copy_from_slice(free);
        let (len, block) = (lows.len() as u32, Arc::new(block));
        let mut entry = Self { first, len, add, min: 0, max: 0, block };
        entry.refresh();
        entry
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// The low halves of the breakpoints.
    pub(super) fn lows(&self) -> &[u32] {
        &self.block.lows[..self.len()]
    }

    /// A breakpoint.
    pub(super) fn start(&self, at: usize) -> u64 {
        tick(self.first, self.lows()[at])
    }

    pub(super) fn last_start(&self) -> u64 {
        self.start(self.len() - 1)
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
        let (lows, ahead) = (self.lows(), self.ahead(tick));
        let lines = lows.chunks(LINE).filter(|line| self.offset(line[0]) <= ahead).count();
        let line = (lines - 1) * LINE;
        line + self.count(&lows[line..lows.len().min(line + LINE)], ahead) - 1
    }

    /// The first breakpoint from `from` on that is not before `tick`, which comes after the first
    /// of all. It is probably near.
    pub(super) fn next_from(&self, from: usize, tick: u64) -> usize {
        let ahead = self.ahead(tick - 1);
        let lows = self.lows();
        let mut at = from;
        // One by one is quicker as long as they are few.
        let near = lows.len().min(from + NEAR);
        while at < near {
            if self.offset(lows[at]) > ahead {
                return at;
            }
            at += 1;
        }
        for line in lows[at..].chunks(LINE) {
            let before = self.count(line, ahead);
            at += before;
            if before < LINE {
                break;
            }
        }
        at
    }

    /// Number of these breakpoints that lie no more than `ahead` behind the first.
    fn count(&self, lows: &[u32], ahead: u32) -> usize {
        lows.iter().map(|low| u32::from(self.offset(*low) <= ahead)).sum::<u32>() as usize
    }

    /// Distance of a breakpoint behind the first.
    fn offset(&self, low: u32) -> u32 {
        low.wrapping_sub(self.first as u32)
    }

    /// The same for a tick that is not before the first, as far as breakpoints can lie.
    fn ahead(&self, tick: u64) -> u32 {
        u32::try_from(tick - self.first).unwrap_or(u32::MAX)
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
        let Some(before) = limit.checked_sub(self.first + 1) else { return from };
        let ahead = u32::try_from(before).unwrap_or(u32::MAX);
        let (lows, free) = (&self.lows()[from..], &self.raw()[from..]);
        let early = |low: &u32| self.offset(*low) <= ahead;
        let below = |free: &u32| !roomy && free.wrapping_add(self.add) < rate;
        // Without a way out of the inner loop several are compared at once.
        let any = |free: &[u32]| free.iter().fold(false, |any, free| any | below(free));
        let lines = lows.chunks_exact(LINE).zip(free.chunks_exact(LINE));
        let passed = lines.take_while(|(lows, free)| early(&lows[LINE - 1]) && !any(free));
        let passed = passed.count() * LINE;
        let rest = lows[passed..].iter().zip(&free[passed..]);
        from + passed + rest.take_while(|(low, free)| early(low) && !below(free)).count()
    }

    /// Puts breakpoints in the place of some; there must be room.
    pub(super) fn replace(&mut self, old: Range<usize>, lows: &[u32], free: &[u32]) {
        let len = self.len();
        let after = old.start + lows.len();
        let block = Arc::make_mut(&mut self.block);
        if after != old.end {
            block.lows.copy_within(old.end..len, after);
            block.free.copy_within(old.end..len, after);
        }
        block.lows[old.start..after].copy_from_slice(lows);
        block.free[old.start..after].copy_from_slice(free);
        self.len = (len - old.len() + lows.len()) as u32;
        self.refresh();
    }

    /// Drops the first breakpoint of several, and with it that stretch.
    pub(super) fn drop_first(&mut self) {
        self.first = self.start(1);
        self.replace(0..1, &[], &[]);
    }

    /// Takes in the entry that follows; there must be room, and no more than [`SPAN`] between.
    pub(super) fn absorb(&mut self, next: &Self) {
        let add = next.add.wrapping_sub(self.add);
        let (from, to) = (self.len(), self.len() + next.len());
        let block = Arc::make_mut(&mut self.block);
        block.lows[from..to].copy_from_slice(next.lows());
        for (to, from) in block.free[from..to].iter_mut().zip(next.raw()) {
            *to = from.wrapping_add(add);
        }
        self.len = to as u32;
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
    }

    fn refresh(&mut self) {
        (self.min, self.max) = self.extremes(0, self.len());
    }
}

/// The tick of this low half, no more than [`SPAN`] behind `first`.
pub(super) fn tick(first: u64, low: u32) -> u64 {
    first + u64::from(low.wrapping_sub(first as u32))
}
