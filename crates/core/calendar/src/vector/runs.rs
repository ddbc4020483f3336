use alloc::vec::Vec;

use super::Allocation;

/// Ascending disjoint ranges, kept as runs of one rate and the change points inside them.
///
/// Most ranges of a long vector are at Rmax, back to back: a range then costs the 8 bytes of its
/// change point, which is copied from the profile's as it stands, and the merged form costs nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Runs {
    runs: Vec<Allocation>,
    /// Each inside a run, ascending.
    cuts: Vec<u64>,
}

impl Runs {
    /// One range.
    pub(crate) fn of(start: u64, end: u64, rate: u32) -> Self {
        let mut runs = Self::default();
        runs.push(Allocation { start, end, rate });
        runs
    }

    /// Adds a range after all others.
    pub(crate) fn push(&mut self, range: Allocation) {
        self.open(range.start, range.rate);
        self.close(range.end);
    }

    /// Begins a range after all others.
    pub(crate) fn open(&mut self, start: u64, rate: u32) {
        match self.runs.last() {
            Some(last) if (last.end, last.rate) == (start, rate) => self.cuts.push(start),
            _ => self.runs.push(Allocation { start, end: start, rate }),
        }
    }

    /// Where the change points of the range that was begun go, all after its start.
    pub(crate) fn cuts(&mut self) -> &mut Vec<u64> {
        &mut self.cuts
    }

    /// Ends the range that was begun, after its last change point.
    pub(crate) fn close(&mut self, end: u64) {
        if let Some(last) = self.runs.last_mut() {
            last.end = end;
        }
    }

    /// Adds ranges after all others. `seam` is no change point: a range that goes on there stays
    /// one range.
    pub(crate) fn append(&mut self, mut next: Self, seam: u64) {
        if let (Some(last), Some(first)) = (self.runs.last_mut(), next.runs.first())
            && (last.end, last.rate) == (first.start, first.rate)
        {
            if last.end != seam {
                self.cuts.push(last.end);
            }
            last.end = first.end;
            next.runs.remove(0);
        }
        self.runs.append(&mut next.runs);
        self.cuts.append(&mut next.cuts);
    }

    /// Splits at `tick`: what lies before, and what lies at or after it.
    pub(crate) fn split(&self, tick: u64) -> (Self, Self) {
        let before = self.runs.iter().filter(|r| r.start < tick);
        let after = self.runs.iter().filter(|r| r.end > tick);
        let cut = self.cuts.partition_point(|cut| *cut < tick);
        let next = cut + usize::from(self.cuts.get(cut) == Some(&tick));
        (
            Self {
                runs: before.map(|r| Allocation { end: r.end.min(tick), ..*r }).collect(),
                cuts: self.cuts[..cut].to_vec(),
            },
            Self {
                runs: after.map(|r| Allocation { start: r.start.max(tick), ..*r }).collect(),
                cuts: self.cuts[next..].to_vec(),
            },
        )
    }

    /// The same with time reversed: t becomes `u64::MAX` - t.
    pub(crate) fn mirrored(&self) -> Self {
        let turned = |r: &Allocation| Allocation {
            start: u64::MAX - r.end,
            end: u64::MAX - r.start,
            rate: r.rate,
        };
        Self {
            runs: self.runs.iter().rev().map(turned).collect(),
            cuts: self.cuts.iter().rev().map(|cut| u64::MAX - cut).collect(),
        }
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Allocation> + Clone + '_ {
        let mut runs = self.runs.iter().copied();
        let mut cuts = self.cuts.iter().copied().peekable();
        let mut rest = runs.next();
        core::iter::from_fn(move || {
            let run = rest?;
            let cut = cuts.next_if(|cut| *cut < run.end);
            rest = cut.map_or_else(|| runs.next(), |cut| Some(Allocation { start: cut, ..run }));
            Some(Allocation { end: cut.unwrap_or(run.end), ..run })
        })
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.runs.len() + self.cuts.len()
    }

    /// The runs: ranges with contiguous neighbours of equal rate joined.
    pub(crate) fn merged(&self) -> &[Allocation] {
        &self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranges of which many are back to back at one rate.
    fn ranges() -> impl Strategy<Value = Vec<Allocation>> {
        prop::collection::vec((0u64..3, 1u64..20, 1u32..4), 0..40).prop_map(|steps| {
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
            prop_assert_eq!(runs.merged(), joined(&ranges, None));
            prop_assert_eq!(runs.mirrored().mirrored().ranges().collect::<Vec<_>>(), &ranges[..]);
            let turned = runs.mirrored();
            let turned = turned.ranges().map(|r| (u64::MAX - r.end, u64::MAX - r.start, r.rate));
            let turned: Vec<_> = turned.collect();
            let expected: Vec<_> = ranges.iter().rev().map(|r| (r.start, r.end, r.rate)).collect();
            prop_assert_eq!(turned, expected);
            prop_assert_eq!(runs.ranges().collect::<Vec<_>>(), ranges);
        }

        #[test]
        fn what_was_split_and_put_together_differs_only_at_the_seam(
            ranges in ranges(), tick in 0u64..500,
        ) {
            let runs = runs_of(&ranges);
            let (before, after) = runs.split(tick);
            prop_assert!(before.ranges().all(|r| r.start < r.end && r.end <= tick));
            prop_assert!(after.ranges().all(|r| r.start < r.end && r.start >= tick));
            let mut again = before;
            again.append(after, tick);
            prop_assert_eq!(again.ranges().collect::<Vec<_>>(), joined(&ranges, Some(tick)));
        }
    }
}
