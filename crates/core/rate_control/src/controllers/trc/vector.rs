use alloc::vec::Vec;
use core::fmt;

use longhaul_units::{Duration, Instant, Rate};

/// A rate for a time: `start` included, `end` not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeRange {
    /// Time when it begins.
    pub start: Instant,
    /// Time when it ends, later.
    pub end: Instant,
    /// Bits per second at the IP layer, headers included.
    pub rate: Rate,
}

/// A time-range-capacity vector in the clock of the host that follows it; zero outside its ranges.
///
/// ```
/// use longhaul_rate_control::{TimeRange, Vector};
/// use longhaul_units::{Duration, Instant, Rate};
///
/// let at = |ms| Instant::ZERO + Duration::from_millis(ms);
/// let range = |from, to, mbps| TimeRange { start: at(from), end: at(to), rate: Rate::from_mbps(mbps) };
/// let vector = Vector::new(vec![range(1000, 3000, 100), range(3000, 5000, 400)]).unwrap();
/// assert_eq!(vector.rate_at(at(3000)), Rate::from_mbps(400));
/// assert_eq!(vector.next_change(at(3000)), Some(at(5000)));
/// assert_eq!(vector.bytes_within(at(0), at(9000)), 125_000_000);
/// // Clocks that may be 5 ms apart: a rise comes later by that, a fall earlier.
/// let safe = vector.guarded(Duration::from_millis(5));
/// assert_eq!(safe.next_change(at(0)), Some(at(1005)));
/// assert_eq!(safe.rate_at(at(4995)), Rate::ZERO);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Vector(Vec<TimeRange>);

/// Ranges that are no vector: one is empty, or begins before the one before it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VectorError {
    /// Position of the range.
    pub range: usize,
}

impl fmt::Display for VectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "range {} of the vector is empty or begins before the last one ends", self.range)
    }
}

impl core::error::Error for VectorError {}

impl Vector {
    /// Ranges in the order of time, apart or back to back.
    ///
    /// # Errors
    /// [`VectorError`] names the first that is out of order.
    pub fn new(ranges: Vec<TimeRange>) -> Result<Self, VectorError> {
        let mut end = Instant::ZERO;
        for (position, range) in ranges.iter().enumerate() {
            if range.start < end || range.end <= range.start {
                return Err(VectorError { range: position });
            }
            end = range.end;
        }
        Ok(Self(ranges))
    }

    /// The ranges.
    pub fn ranges(&self) -> &[TimeRange] {
        &self.0
    }

    /// Start of the first range.
    pub fn start(&self) -> Option<Instant> {
        self.0.first().map(|range| range.start)
    }

    /// End of the last range.
    pub fn end(&self) -> Option<Instant> {
        self.0.last().map(|range| range.end)
    }

    /// The rate at `now`.
    pub fn rate_at(&self, now: Instant) -> Rate {
        let range = self.0.get(self.after(now));
        range.filter(|range| range.start <= now).map_or(Rate::ZERO, |range| range.rate)
    }

    /// The next boundary behind `now`.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let range = self.0.get(self.after(now))?;
        Some(if range.start > now { range.start } else { range.end })
            .filter(|at| *at < Instant::FAR_FUTURE)
    }

    /// Bytes that its ranges carry between two times, saturating.
    pub fn bytes_within(&self, from: Instant, to: Instant) -> u64 {
        let part =
            |range: &TimeRange| range.rate.bytes_in(range.end.min(to).since(range.start.max(from)));
        self.0.iter().map(part).fold(0, u64::saturating_add)
    }

    /// The most that is safe while this clock and the switch's are up to `guard` apart: the least
    /// rate within `guard` of each time. Ranges shorter than two guards may vanish.
    #[must_use]
    pub fn guarded(&self, guard: Duration) -> Self {
        if guard.is_zero() {
            return self.clone();
        }
        let bounds = self.0.iter().flat_map(|range| [range.start, range.end]);
        let mut times: Vec<Instant> =
            bounds.flat_map(|at| [at.before(guard), at + guard]).collect();
        times.sort_unstable();
        times.dedup();
        let mut safe: Vec<TimeRange> = Vec::new();
        for pair in times.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            // No boundary comes within the guard in between: what holds for a moment holds for all.
            let moment = start + end.since(start) / 2;
            let rate = self.least_within(moment.before(guard), moment + guard);
            match safe.last_mut() {
                _ if rate == Rate::ZERO => {}
                Some(last) if last.end == start && last.rate == rate => last.end = end,
                _ => safe.push(TimeRange { start, end, rate }),
            }
        }
        Self(safe)
    }

    /// Returns the vector that is left where the first `idle` of each stretch of one rate carries nothing: the
    /// switch needs it to change the rate.
    #[must_use]
    pub fn idle_first(&self, idle: Duration) -> Self {
        let mut stretches: Vec<TimeRange> = Vec::new();
        for range in &self.0 {
            match stretches.last_mut() {
                Some(last) if last.end == range.start && last.rate == range.rate => {
                    last.end = range.end;
                }
                _ => stretches.push(*range),
            }
        }
        stretches.iter_mut().for_each(|stretch| stretch.start += idle);
        stretches.retain(|stretch| stretch.start < stretch.end);
        Self(stretches)
    }

    fn least_within(&self, from: Instant, to: Instant) -> Rate {
        let mut covered = from;
        let mut least = Rate::MAX;
        for range in &self.0[self.after(from)..] {
            if range.start > covered || range.start >= to {
                break;
            }
            least = least.min(range.rate);
            covered = range.end;
        }
        if covered < to { Rate::ZERO } else { least }
    }

    /// Position of the first range that ends behind `now`.
    fn after(&self, now: Instant) -> usize {
        self.0.partition_point(|range| range.end <= now)
    }
}
