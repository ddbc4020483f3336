/// The end of time: the last segment of a profile never ends.
pub const FOREVER: u64 = u64::MAX;

/// A half-open interval of ticks in which the free capacity does not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First tick.
    pub start: u64,
    /// One past the last tick, [`FOREVER`] for the last segment.
    pub end: u64,
    /// Free channels in every tick of it.
    pub free: u32,
}

/// Free capacity as a step function of time, the paper's γ(t), that can be read.
///
/// Implemented by one link ([`crate::profile::Profile`]), by a path of several (their pointwise minimum)
/// and by the naive oracle of the tests, so that every algorithm runs on each of them.
pub trait Capacity {
    /// A position that moves along the function.
    type Walk<'a>: Walk
    where
        Self: 'a;

    /// Channels in all, free or booked.
    fn capacity(&self) -> u32;

    /// Nothing before this tick can be read or booked.
    fn floor(&self) -> u64;

    /// A position on the segment that holds `at`, or the floor if that is later.
    fn walk(&self, at: u64) -> Self::Walk<'_>;

    /// Free channels in the tick `at`, 0 before the floor.
    fn free_at(&self, at: u64) -> u32 {
        if at < self.floor() { 0 } else { self.walk(at).segment().free }
    }
}

/// A position on a step function. Segments need not be maximal, but are never empty.
pub trait Walk {
    /// The segment at this position.
    fn segment(&self) -> Segment;

    /// Moves to the next segment; false, without moving, on the last.
    fn forward(&mut self) -> bool;

    /// Moves to the segment before; false, without moving, on the first.
    fn back(&mut self) -> bool;

    /// Moves forward to the nearest segment, this one included, with at least `rate` free.
    /// False when there is none; the position is then the last segment.
    fn to_at_least(&mut self, rate: u32) -> bool {
        while self.segment().free < rate {
            if !self.forward() {
                return false;
            }
        }
        true
    }

    /// As [`Walk::to_at_least`], backwards.
    fn back_to_at_least(&mut self, rate: u32) -> bool {
        while self.segment().free < rate {
            if !self.back() {
                return false;
            }
        }
        true
    }

    /// Moves forward to the nearest segment, this one included, with less than `rate` free, but
    /// stops at the first segment that starts at or after `limit`. False when the last segment is
    /// reached and has at least `rate`.
    fn to_below(&mut self, rate: u32, limit: u64) -> bool {
        while self.segment().free >= rate && self.segment().start < limit {
            if !self.forward() {
                return false;
            }
        }
        true
    }

    /// As [`Walk::to_below`], and tells `passed` where the segments begin that are passed, this
    /// one left out: several at a time, ascending and no more than `u32::MAX` apart, as the first
    /// tick and the low halves of it and of the others.
    fn to_below_noting(
        &mut self,
        rate: u32,
        limit: u64,
        passed: &mut dyn FnMut(u64, &[u32]),
    ) -> bool {
        let passes = |s: Segment| s.free >= rate && s.start < limit;
        while passes(self.segment()) {
            if !self.forward() {
                return false;
            }
            if passes(self.segment()) {
                let start = self.segment().start;
                passed(start, &[start as u32]);
            }
        }
        true
    }
}

/// A step function that can be booked.
pub trait Calendar: Capacity {
    /// Takes `rate` channels in `[start, end)`, or changes nothing.
    fn reserve(&mut self, start: u64, end: u64, rate: u32) -> Result<(), ReserveError>;

    /// Gives `rate` channels in `[start, end)` back, or changes nothing. What lies before the
    /// floor is ignored.
    fn release(&mut self, start: u64, end: u64, rate: u32) -> Result<(), ReserveError>;

    /// Forgets what lies before `tick`; the floor moves there and never back.
    fn forget_before(&mut self, tick: u64);
}

/// Why capacity could not be taken or given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReserveError {
    /// The interval is empty, or ends at [`FOREVER`].
    BadInterval,
    /// The interval starts before the floor.
    Past,
    /// Some tick of the interval has only this many channels free.
    Overbooked {
        /// The least free capacity in the interval.
        free: u32,
    },
    /// More would be free than the link has: the channels were not taken.
    NotReserved,
}

impl core::fmt::Display for ReserveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::BadInterval => f.write_str("the interval is empty or endless"),
            Self::Past => f.write_str("the interval starts in the past"),
            Self::Overbooked { free } => write!(f, "only {free} channels are free"),
            Self::NotReserved => f.write_str("these channels were not reserved"),
        }
    }
}

impl core::error::Error for ReserveError {}

/// The same function with time reversed (t becomes FOREVER - t), so that filling forwards on it
/// fills backwards from a deadline.
pub(crate) struct Mirror<W>(pub W);

impl<W: Walk> Walk for Mirror<W> {
    fn segment(&self) -> Segment {
        let s = self.0.segment();
        Segment { start: FOREVER - s.end, end: FOREVER - s.start, free: s.free }
    }

    fn forward(&mut self) -> bool {
        self.0.back()
    }

    fn back(&mut self) -> bool {
        self.0.forward()
    }

    fn to_at_least(&mut self, rate: u32) -> bool {
        self.0.back_to_at_least(rate)
    }

    fn back_to_at_least(&mut self, rate: u32) -> bool {
        self.0.to_at_least(rate)
    }
}
