mod block;
mod change;
#[cfg(test)]
mod tests;
mod walk;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use self::block::{Block, Entry, JOIN, SPAN};
pub(crate) use self::change::Way;
pub use self::walk::ProfileWalk;
use crate::capacity::{Calendar, Capacity, FOREVER, ReserveError, Segment, Walk};
use crate::vector::Allocation;

/// The free capacity of one directed link: an exact step function over integer ticks.
///
/// Breakpoints lie in blocks of up to 256 with their least and most free capacity and a pending
/// addition, so that locating a tick is O(log n), a booking rewrites at most two blocks
/// and stretches without (or with enough) capacity are skipped a block at a time. Arrays rather
/// than trees because bookings mostly scan (Burchard, TKDE 2005). The form is canonical: equal
/// neighbours are merged, so releasing everything gives back the empty profile.
///
/// [`Clone`] is the snapshot: O(1), after which the two differ only by the blocks that are
/// written. A preview on a snapshot never waits for a booking, nor a booking for a preview.
#[derive(Clone)]
pub struct Profile {
    capacity: u32,
    floor: u64,
    entries: Arc<Vec<Entry>>,
}

impl Profile {
    /// A link with `capacity` channels, all free from `floor` on.
    pub fn new(capacity: u32, floor: u64) -> Self {
        let entry = Entry::single(floor, capacity);
        Self { capacity, floor, entries: Arc::new(vec![entry]) }
    }

    /// Number of segments from the floor on.
    pub fn segment_count(&self) -> usize {
        // A split may have left a block before the floor.
        let ahead = &self.entries[locate(&self.entries, self.floor)..];
        ahead.iter().map(Entry::len).sum::<usize>() - ahead[0].find(self.floor)
    }

    /// The segments of `[start, end)`, clipped to it.
    pub fn segments(&self, start: u64, end: u64) -> impl Iterator<Item = Segment> + '_ {
        let mut walk = (start.max(self.floor) < end).then(|| self.walk(start));
        core::iter::from_fn(move || {
            let walk_now = walk.as_mut()?;
            let s = walk_now.segment();
            let clipped = Segment { start: s.start.max(start), end: s.end.min(end), free: s.free };
            if s.end >= end || !walk_now.forward() {
                walk = None;
            }
            Some(clipped)
        })
    }

    /// The least free capacity in `[start, end)`, 0 if any of it lies before the floor.
    pub fn min_free(&self, start: u64, end: u64) -> u32 {
        if start < self.floor || start >= end {
            return 0;
        }
        self.extremes(start, end, locate(&self.entries, start), locate(&self.entries, end - 1)).0
    }

    /// True if a range is booked, by whomever, as far as it does not lie before the floor.
    pub(crate) fn is_booked(&self, range: &Allocation) -> bool {
        let (start, end) = (range.start.max(self.floor), range.end);
        if start >= end {
            return true;
        }
        let first = locate(&self.entries, start);
        let last = locate_from(&self.entries, first, end - 1);
        self.capacity - self.extremes(start, end, first, last).1 >= range.rate
    }

    /// Approximate memory of the profile alone, in bytes.
    pub fn memory(&self) -> usize {
        self.entries.len() * (size_of::<Entry>() + size_of::<Block>())
    }

    /// Least and most free capacity in `[start, end)`, which lies in the entries `first..=last`.
    fn extremes(&self, start: u64, end: u64, first: usize, last: usize) -> (u32, u32) {
        let mut low = u32::MAX;
        let mut high = 0;
        for index in first..=last {
            let entry = &self.entries[index];
            let (l, h) = if index == first || index == last {
                let from = entry.find(start.max(entry.first));
                let to = entry.next_from(from, end);
                entry.extremes(from, to)
            } else {
                (entry.min, entry.max)
            };
            low = low.min(l);
            high = high.max(h);
        }
        (low, high)
    }
}

impl Capacity for Profile {
    type Walk<'a> = ProfileWalk<'a>;

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn floor(&self) -> u64 {
        self.floor
    }

    fn walk(&self, at: u64) -> ProfileWalk<'_> {
        ProfileWalk::new(&self.entries, self.floor, at)
    }
}

impl Calendar for Profile {
    fn reserve(&mut self, start: u64, end: u64, rate: u32) -> Result<(), ReserveError> {
        if start >= end || end == FOREVER {
            return Err(ReserveError::BadInterval);
        }
        if start < self.floor {
            return Err(ReserveError::Past);
        }
        let first = locate(&self.entries, start);
        let last = locate_from(&self.entries, first, end - 1);
        let (free, _) = self.extremes(start, end, first, last);
        if free < rate {
            return Err(ReserveError::Overbooked { free });
        }
        if rate > 0 {
            self.change(Way::Take, core::iter::once(Allocation { start, end, rate }));
        }
        Ok(())
    }

    fn release(&mut self, start: u64, end: u64, rate: u32) -> Result<(), ReserveError> {
        if start >= end || end == FOREVER {
            return Err(ReserveError::BadInterval);
        }
        let range = Allocation { start, end, rate };
        if !self.is_booked(&range) {
            return Err(ReserveError::NotReserved);
        }
        if rate > 0 {
            self.change(Way::Give, core::iter::once(range));
        }
        Ok(())
    }

    fn forget_before(&mut self, tick: u64) {
        if tick <= self.floor {
            return;
        }
        self.floor = tick;
        let elapsed = locate(&self.entries, tick);
        if elapsed > 0 {
            Arc::make_mut(&mut self.entries).drain(..elapsed);
        }
    }
}

impl PartialEq for Profile {
    /// Same capacity, same floor, same free capacity at every tick from the floor on.
    fn eq(&self, other: &Self) -> bool {
        let same = (self.capacity, self.floor) == (other.capacity, other.floor);
        same && self.segments(self.floor, FOREVER).eq(other.segments(self.floor, FOREVER))
    }
}

impl Eq for Profile {}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.segments(self.floor, FOREVER).map(|s| (s.start, s.free)))
            .finish()
    }
}

fn entry_end(entries: &[Entry], entry: usize) -> u64 {
    entries.get(entry + 1).map_or(FOREVER, |next| next.first)
}

/// The entry that holds `tick`, which is not before the first.
fn locate(entries: &[Entry], tick: u64) -> usize {
    entries.partition_point(|entry| entry.first <= tick) - 1
}

/// As [`locate`], when the entry is probably `near` or the next.
fn locate_from(entries: &[Entry], near: usize, tick: u64) -> usize {
    if tick < entry_end(entries, near) {
        near
    } else if tick < entry_end(entries, near + 1) {
        near + 1
    } else {
        locate(entries, tick)
    }
}

/// Drops the first breakpoint of `entry`, if there is such an entry and the capacity before it is
/// the same; the stretch it began then belongs to the entry before. True if nothing is left of it.
fn remove_first_if_equal(entries: &mut Vec<Entry>, entry: usize) -> bool {
    if entry >= entries.len() || entries[entry - 1].last_free() != entries[entry].free(0) {
        return false;
    }
    let single = entries[entry].len() == 1;
    if single {
        entries.remove(entry);
    } else {
        entries[entry].drop_first();
    }
    single
}

/// Joins `entry` with the next if both are small, so that releases do not leave crumbs.
fn join(entries: &mut Vec<Entry>, entry: usize) -> bool {
    let fits = entries.get(entry + 1).is_some_and(|next| {
        let entry = &entries[entry];
        entry.len() + next.len() <= JOIN && next.last_start() - entry.first <= SPAN
    });
    if fits {
        let upper = entries.remove(entry + 1);
        entries[entry].absorb(&upper);
    }
    fits
}
