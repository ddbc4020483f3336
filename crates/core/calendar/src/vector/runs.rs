use alloc::vec::Vec;

use super::Allocation;

/// Ascending disjoint ranges, kept as runs of one rate and the change points inside them.
///
/// Most ranges of a long vector are at Rmax, back to back: a range then costs the 4 bytes of its
/// change point, copied from the profile's a block at a time, and the merged form costs nothing.
#[derive(Clone, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    /// Distance of each change point behind the start of its run.
    cuts: Vec<u32>,
}

/// Ranges back to back at one rate. It goes on as another run where a change point is too far from
/// its start.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    rate: u32,
    /// Number of change points inside.
    cuts: u32,
}

impl Run {
    fn range(&self) -> Allocation {
        Allocation { start: self.start, end: self.end, rate: self.rate }
    }

    fn goes_on_as(&self, next: &Self) -> bool {
        (self.end, self.rate) == (next.start, next.rate)
    }
}

impl Runs {
    /// One range.
    pub(crate) fn of(start: u64, end: u64, rate: u32) -> Self {
        let mut runs = Self::default();
        runs.push(Allocation { start, end, rate });
        runs
    }

    /// None yet, with room for those of most requests: memory that was just used and is soon free
    /// again, whereas what is kept for long lies anywhere.
    pub(crate) fn roomy() -> Self {
        Self { runs: Vec::with_capacity(USUAL_RUNS), cuts: Vec::with_capacity(USUAL_CUTS) }
    }

    /// The same in no more memory than it takes, to be kept.
    pub(crate) fn fitted(self) -> Self {
        self.clone()
    }

    /// Adds a range after all others.
    pub(crate) fn push(&mut self, range: Allocation) {
        self.open(range.start, range.rate);
        self.close(range.end);
    }

    /// Begins a range after all others.
    pub(crate) fn open(&mut self, start: u64, rate: u32) {
        match self.runs.last() {
            Some(last) if (last.end, last.rate) == (start, rate) => self.cut(start),
            _ => self.runs.push(Run { start, end: start, rate, cuts: 0 }),
        }
    }

    /// Notes a change point in the range that was begun, after its start and those noted before.
    pub(crate) fn cut(&mut self, at: u64) {
        let Some(last) = self.runs.last_mut() else { return };
        if let Ok(ahead) = u32::try_from(at - last.start) {
            self.cuts.push(ahead);
            last.cuts += 1;
        } else {
            last.end = at;
            let rate = last.rate;
            self.runs.push(Run { start: at, end: at, rate, cuts: 0 });
        }
    }

    /// The same for several: the first, and the low halves of it and of those after it, which are
    /// no more than `u32::MAX` apart.
    pub(crate) fn cut_all(&mut self, first: u64, lows: &[u32]) {
        let ahead = |low: &u32| low.wrapping_sub(first as u32);
        let (Some(run), Some(last)) = (self.runs.last_mut(), lows.last().map(ahead)) else {
            return;
        };
        if first - run.start + u64::from(last) > u64::from(u32::MAX) {
            return lows.iter().for_each(|low| self.cut(first + u64::from(ahead(low))));
        }
        let base = run.start as u32;
        self.cuts.extend(lows.iter().map(|low| low.wrapping_sub(base)));
        run.cuts += lows.len() as u32;
    }

    /// Ends the range that was begun, after its last change point.
    pub(crate) fn close(&mut self, end: u64) {
        if let Some(last) = self.runs.last_mut() {
            last.end = end;
        }
    }

    /// Adds ranges after all others. `seam` is no change point: a range that goes on there stays
    /// one range.
    pub(crate) fn append(&mut self, next: &Self, seam: u64) {
        let mut ranges = next.ranges();
        if let (Some(last), Some(first)) = (self.runs.last_mut(), next.runs.first())
            && last.end == seam
            && last.goes_on_as(first)
        {
            last.end = ranges.next().map_or(seam, |range| range.end);
        }
        ranges.for_each(|range| self.push(range));
    }

    /// Splits at `tick`: what lies before, and what lies at or after it.
    pub(crate) fn split(&self, tick: u64) -> (Self, Self) {
        let (mut before, mut after) = (Self::default(), Self::default());
        for range in self.ranges() {
            if range.start < tick {
                before.push(Allocation { end: range.end.min(tick), ..range });
            }
            if range.end > tick {
                after.push(Allocation { start: range.start.max(tick), ..range });
            }
        }
        (before, after)
    }

    /// The same with time reversed: t becomes `u64::MAX` - t.
    pub(crate) fn mirrored(&self) -> Self {
        let mut ranges: Vec<Allocation> = self.ranges().collect();
        ranges.reverse();
        let mut out = Self::default();
        for Allocation { start, end, rate } in ranges {
            out.push(Allocation { start: u64::MAX - end, end: u64::MAX - start, rate });
        }
        out
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Allocation> + Clone + '_ {
        let mut cuts = &self.cuts[..];
        self.runs.iter().flat_map(move |run| {
            let (inside, rest) = cuts.split_at(run.cuts as usize);
            cuts = rest;
            let inside = inside.iter().map(|ahead| run.start + u64::from(*ahead));
            let starts = core::iter::once(run.start).chain(inside.clone());
            let ends = inside.chain([run.end]);
            starts.zip(ends).map(|(start, end)| Allocation { start, end, rate: run.rate })
        })
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.runs.len() + self.cuts.len()
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// First tick.
    pub(crate) fn start(&self) -> Option<u64> {
        self.runs.first().map(|run| run.start)
    }

    /// One past the last tick.
    pub(crate) fn end(&self) -> Option<u64> {
        self.runs.last().map(|run| run.end)
    }

    /// The rate at `tick`, 0 where nothing is.
    pub(crate) fn rate_at(&self, tick: u64) -> u32 {
        let next = self.runs.partition_point(|run| run.end <= tick);
        self.runs.get(next).filter(|run| run.start <= tick).map_or(0, |run| run.rate)
    }

    /// The ranges with contiguous neighbours of equal rate joined.
    pub(crate) fn merged(&self) -> impl Iterator<Item = Allocation> + Clone + '_ {
        self.runs.chunk_by(Run::goes_on_as).map(|runs| {
            let end = runs.last().map_or(0, |last| last.end);
            Allocation { end, ..runs[0].range() }
        })
    }
}

/// More runs than most requests get.
const USUAL_RUNS: usize = 32;

/// More change points than inside most.
const USUAL_CUTS: usize = 256;

impl PartialEq for Runs {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.ranges().eq(other.ranges())
    }
}

impl Eq for Runs {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranges of which many are back to back at one rate, and some are very long.
    fn ranges() -> impl Strategy<Value = Vec<Allocation>> {
        let len = prop_oneof![4 => 1u64..20, 1 => (1u64..4).prop_map(|len| len << 31)];
        prop::collection::vec((0u64..3, len, 1u32..4), 0..40).prop_map(|steps| {
            let mut at = 5;
            let range = |(gap, len, rate)| {
                let start = at + gap;
                at = start + len;
                Allocation { start, end: at, rate }
            };
            steps.into_iter().map(range).collect()
        })
    }

    fn runs_of(ranges: &[Allocation]) -> Runs {
        let mut runs = Runs::default();
        ranges.iter().for_each(|range| runs.push(*range));
        runs
    }

    /// Contiguous neighbours of equal rate joined, all of them or those that meet at `seam`.
    fn joined(ranges: &[Allocation], seam: Option<u64>) -> Vec<Allocation> {
        let mut out: Vec<Allocation> = Vec::new();
        for range in ranges {
            match out.last_mut() {
                Some(last)
                    if (last.end, last.rate) == (range.start, range.rate)
                        && seam.is_none_or(|seam| seam == range.start) =>
                {
                    last.end = range.end;
                }
                _ => out.push(*range),
            }
        }
        out
    }

    proptest! {
        #[test]
        fn ranges_are_kept_as_they_came_and_merged(ranges in ranges()) {
            let runs = runs_of(&ranges);
            prop_assert_eq!(runs.len(), ranges.len());
            prop_assert_eq!(runs.merged().collect::<Vec<_>>(), joined(&ranges, None));
            prop_assert_eq!(runs.mirrored().mirrored().ranges().collect::<Vec<_>>(), &ranges[..]);
            let turned = runs.mirrored();
            let turned = turned.ranges().map(|r| (u64::MAX - r.end, u64::MAX - r.start, r.rate));
            let turned: Vec<_> = turned.collect();
            let expected: Vec<_> = ranges.iter().rev().map(|r| (r.start, r.end, r.rate)).collect();
            prop_assert_eq!(turned, expected);
            prop_assert_eq!(runs.ranges().collect::<Vec<_>>(), ranges);
        }

        #[test]
        fn change_points_noted_at_once_are_those_noted_one_by_one(
            steps in prop::collection::vec(1u64..1 << 30, 1..20), long in 1u64..1 << 33,
        ) {
            let ticks = steps.into_iter().scan(7 + long, |at, step| {
                *at += step / 8;
                Some(*at)
            });
            let ticks: Vec<u64> = ticks.collect();
            let lows: Vec<u32> = ticks.iter().map(|tick| *tick as u32).collect();
            let mut at_once = Runs::default();
            at_once.open(7, 3);
            at_once.cut_all(ticks[0], &lows);
            at_once.close(u64::MAX);
            let mut one_by_one = Runs::default();
            one_by_one.open(7, 3);
            ticks.iter().for_each(|tick| one_by_one.cut(*tick));
            one_by_one.close(u64::MAX);
            prop_assert_eq!(at_once.merged().count(), 1);
            let starts: Vec<u64> = at_once.ranges().skip(1).map(|range| range.start).collect();
            prop_assert_eq!(starts, ticks);
            prop_assert!(at_once == one_by_one);
        }

        #[test]
        fn what_was_split_and_put_together_differs_only_at_the_seam(
            ranges in ranges(), at in any::<prop::sample::Index>(), beyond in 0u64..9,
        ) {
            let tick = ranges.get(at.index(ranges.len() + 1)).map_or(3, |range| range.start) + beyond;
            let runs = runs_of(&ranges);
            let (before, after) = runs.split(tick);
            prop_assert!(before.ranges().all(|r| r.start < r.end && r.end <= tick));
            prop_assert!(after.ranges().all(|r| r.start < r.end && r.start >= tick));
            let mut again = before;
            again.append(&after, tick);
            prop_assert_eq!(again.ranges().collect::<Vec<_>>(), joined(&ranges, Some(tick)));
        }
    }
}
