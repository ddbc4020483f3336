//! Which lane gets the next group, and when they have enough.

use core::ops::Range;

use longhaul_objects::limits::GROUP_SIZE;

/// The lanes of a connection that carry data. What each has still to send, its backlog in bytes, is
/// asked for at every decision; it may be out of date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealing {
    carrying: Range<u16>,
}

impl Dealing {
    /// All of so many lanes carry data.
    ///
    /// # Panics
    /// If there is none.
    pub fn to_all(lanes: u16) -> Self {
        assert!(lanes > 0, "a connection has a lane");
        Self { carrying: 0..lanes }
    }

    /// The first of them is for messages only, if there are others.
    #[must_use]
    pub fn but_first(self) -> Self {
        let lanes = self.carrying.end;
        Self { carrying: u16::from(lanes > 1)..lanes }
    }

    /// Those that carry data.
    pub fn lanes(&self) -> Range<usize> {
        usize::from(self.carrying.start)..usize::from(self.carrying.end)
    }

    /// The lane for the next group: the one that has least to send.
    pub fn next(&self, backlog: impl Fn(usize) -> u64) -> usize {
        self.lanes().min_by_key(|lane| backlog(*lane)).unwrap_or(0)
    }

    /// Bytes that wait in them.
    pub fn waiting(&self, backlog: impl Fn(usize) -> u64) -> u64 {
        self.lanes().map(backlog).sum()
    }

    /// True if they have enough for now.
    pub fn is_full(&self, backlog: impl Fn(usize) -> u64) -> bool {
        self.waiting(backlog) >= LANE_FULL * self.lanes().len() as u64
    }

    /// True if they have sent so much of that that more is worth a wake-up.
    pub fn has_room(&self, backlog: impl Fn(usize) -> u64) -> bool {
        self.waiting(backlog) < LANE_FULL / 2 * self.lanes().len() as u64
    }
}

/// Bytes that wait in a lane before dealing pauses: enough for the time that reading and hashing the
/// next groups take, little enough to be in the cache still.
const LANE_FULL: u64 = 4 * GROUP_SIZE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lane_with_least_to_send_gets_the_next_group() {
        let dealing = Dealing::to_all(4);
        let backlog = [1, 3, 2, 4];
        assert_eq!(dealing.next(|lane| backlog[lane]), 0);
        assert_eq!(dealing.but_first().next(|lane| backlog[lane]), 2);
        assert_eq!(Dealing::to_all(1).but_first().lanes(), 0..1, "there is no other");
    }

    #[test]
    fn a_lane_that_carries_no_data_holds_nobody_up() {
        let dealing = Dealing::to_all(2);
        let backlog = |lane| if lane == 0 { 100 * GROUP_SIZE } else { 0 };
        assert!(dealing.is_full(backlog));
        let dealing = dealing.but_first();
        assert!(!dealing.is_full(backlog) && dealing.has_room(backlog));
        let half = |_| 2 * GROUP_SIZE;
        assert!(!dealing.is_full(half) && !dealing.has_room(half));
    }
}
