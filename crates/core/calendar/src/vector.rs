mod runs;

use alloc::vec::Vec;
use core::fmt;

pub(crate) use self::runs::Runs;

/// One entry (B, E, C) of a time-range-capacity vector: `rate` channels in `[start, end)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Allocation {
    /// First tick, the paper's B.
    pub start: u64,
    /// One past the last tick, the paper's E.
    pub end: u64,
    /// Channels, the paper's C; never 0.
    pub rate: u32,
}

impl Allocation {
    /// Ticks times channels, saturating.
    pub const fn area(&self) -> u64 {
        (self.end - self.start).saturating_mul(self.rate as u64)
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}, {})", self.start, self.end, self.rate)
    }
}

/// A time-range-capacity (TRC) vector: what one booking holds, in ascending disjoint ranges.
///
/// Ranges are kept as they were scheduled, one for each stretch between change points of the free
/// capacity (the paper's rounds); [`TrcVector::merged`] joins neighbours of equal rate, which is
/// what a switch is programmed with. The first `guard` ticks of each merged range carry nothing:
/// they cover the uncertainty of the clocks and the reprogramming of the switch.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TrcVector {
    runs: Runs,
    guard: u64,
}

impl TrcVector {
    /// A vector of these ranges, which must be ascending, disjoint, not empty and of rates above
    /// zero; `None` if they are not.
    pub fn new(ranges: Vec<Allocation>, guard: u64) -> Option<Self> {
        let sound = ranges.iter().all(|r| r.start < r.end && r.rate > 0);
        let sorted = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        if !sound || !sorted {
            return None;
        }
        let mut runs = Runs::default();
        ranges.into_iter().for_each(|range| runs.push(range));
        Some(Self { runs, guard })
    }

    /// The ranges as scheduled.
    pub fn ranges(&self) -> impl Iterator<Item = Allocation> + Clone + '_ {
        self.runs.ranges()
    }

    /// Number of ranges as scheduled.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// The ranges with contiguous neighbours of equal rate joined.
    pub fn merged(&self) -> impl Iterator<Item = Allocation> + Clone + '_ {
        self.runs.merged()
    }

    /// Idle ticks at the start of each merged range.
    pub const fn guard(&self) -> u64 {
        self.guard
    }

    /// True if nothing is booked.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// First booked tick.
    pub fn start(&self) -> Option<u64> {
        self.runs.start()
    }

    /// One past the last booked tick.
    pub fn finish(&self) -> Option<u64> {
        self.runs.end()
    }

    /// The highest rate, 0 for an empty vector.
    pub fn peak(&self) -> u32 {
        self.merged().map(|r| r.rate).max().unwrap_or(0)
    }

    /// The rate at `tick`, 0 where nothing is booked.
    pub fn rate_at(&self, tick: u64) -> u32 {
        self.runs.rate_at(tick)
    }

    /// Booked channel ticks, guards included, saturating.
    pub fn area(&self) -> u64 {
        self.merged().fold(0, |sum, r| sum.saturating_add(r.area()))
    }

    /// Channel ticks that carry data: the area without the guards, saturating.
    pub fn delivered(&self) -> u64 {
        self.delivered_before(u64::MAX)
    }

    /// Channel ticks that carry data before `tick`.
    pub fn delivered_before(&self, tick: u64) -> u64 {
        self.merged()
            .take_while(|r| r.start < tick)
            .map(|r| {
                let useful = (r.end.min(tick) - r.start).saturating_sub(self.guard);
                useful.saturating_mul(u64::from(r.rate))
            })
            .fold(0, u64::saturating_add)
    }

    /// The ranges alone.
    pub(crate) const fn runs(&self) -> &Runs {
        &self.runs
    }

    /// A vector of these ranges.
    pub(crate) const fn with(runs: Runs, guard: u64) -> Self {
        Self { runs, guard }
    }

    /// The same in no more memory than it takes.
    pub(crate) fn fitted(self) -> Self {
        Self { runs: self.runs.fitted(), ..self }
    }

    /// Adds ranges after all others; `seam` is no change point.
    pub(crate) fn append(&mut self, next: Runs, seam: u64) {
        self.runs.append(&next, seam);
    }
}

impl fmt::Debug for TrcVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.ranges()).finish()
    }
}
