//! Which lane gets the next group, and when they have enough.

use core::ops::Range;

use longhaul_objects::limits::GROUP_SIZE;

/// The lanes of a connection that carry data. What each has still to send, its backlog in bytes, is
/// asked for at every decision; it may be out of date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealing {
    all: u16,
    carrying: Range<u16>,
    held: bool,
}

impl Dealing {
    /// All of so many lanes carry data.
    ///
    /// # Panics
    /// If there is none.
    pub fn to_all(lanes: u16) -> Self {
        assert!(lanes > 0, "a connection has a lane");
        Self { all: lanes, carrying: 0..lanes, held: false }
    }

    /// Nothing is to be dealt before [`Self::deal_to`].
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Whether nothing is dealt yet.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// These lanes carry data from now on, and no others.
    ///
    /// # Panics
    /// If there is none, or one of them does not exist: what is dealt there would be lost.
    pub fn deal_to(&mut self, lanes: Range<u16>) {
        assert!(!lanes.is_empty() && lanes.end <= self.all, "{lanes:?} of {}", self.all);
        (self.carrying, self.held) = (lanes, false);
    }

    /// Those that carry data.
    pub fn lanes(&self) -> Range<usize> {
        usize::from(self.carrying.start)..usize::from(self.carrying.end)
    }

    /// The lane for the next group: the one that has least to send.
    pub fn next(&self, backlog: impl Fn(usize) -> u64) -> usize {
        self.lanes().min_by_key(|lane| backlog(*lane)).unwrap_or(0)
    }

    /// Bytes that wait in them. What lanes still have that carried data before keeps nobody from
    /// dealing.
    pub fn waiting(&self, backlog: impl Fn(usize) -> u64) -> u64 {
        self.lanes().map(backlog).sum()
    }

    /// Whether they have enough for now.
    pub fn is_full(&self, backlog: impl Fn(usize) -> u64) -> bool {
        self.waiting(backlog) >= LANE_FULL * self.lanes().len() as u64
    }

    /// Whether they have sent so much of that that more is worth a wake-up.
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
        let mut dealing = Dealing::to_all(4);
        let backlog = [3, 1, 2, 0];
        assert_eq!(dealing.next(|lane| backlog[lane]), 3);
        // From a circuit back to IP, any number of times.
        for _ in 0..2 {
            dealing.deal_to(1..3);
            assert_eq!(dealing.next(|lane| backlog[lane]), 1);
            dealing.deal_to(0..1);
            assert_eq!(dealing.next(|lane| backlog[lane]), 0);
        }
    }

    #[test]
    fn lanes_that_no_longer_carry_data_hold_nobody_up() {
        let mut dealing = Dealing::to_all(2);
        let backlog = |lane| if lane == 0 { 100 * GROUP_SIZE } else { 0 };
        assert!(dealing.is_full(backlog));
        dealing.deal_to(1..2);
        assert!(!dealing.is_full(backlog) && dealing.has_room(backlog));
        let half = |_| 2 * GROUP_SIZE;
        assert!(!dealing.is_full(half) && !dealing.has_room(half));
    }

    #[test]
    fn nothing_is_dealt_while_it_is_held() {
        let mut dealing = Dealing::to_all(2);
        dealing.hold();
        assert!(dealing.is_held());
        dealing.deal_to(0..1);
        assert!(!dealing.is_held());
    }

    #[test]
    #[should_panic(expected = "1..3 of 2")]
    fn a_lane_that_does_not_exist_gets_nothing() {
        Dealing::to_all(2).deal_to(1..3);
    }
}
