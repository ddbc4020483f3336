//! Detects a full pipe, where more in flight brings no more: section 5.3.1.2 of the draft.

use longhaul_units::Rate;

use super::samples::RateSample;

/// Looks for three rounds in which the rate did not rise by a quarter.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FullPipe {
    base: Rate,
    rounds: u32,
    is_full: bool,
}

impl FullPipe {
    /// Searches again from this rate.
    pub(super) fn from(base: Rate) -> Self {
        Self { base, ..Self::default() }
    }

    /// Returns whether the pipe is full.
    pub(super) fn on_sample(&mut self, sample: Option<&RateSample>, round_is_over: bool) -> bool {
        let Some(sample) = sample.filter(|sample| !self.is_full && !sample.limited) else {
            return self.is_full;
        };
        if sample.rate >= self.base.scale(5, 4) {
            *self = Self::from(sample.rate);
        } else if round_is_over {
            self.rounds += 1;
            self.is_full = self.rounds >= ROUNDS;
        }
        self.is_full
    }
}

const ROUNDS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_without_a_quarter_more() {
        let mut pipe = FullPipe::default();
        let mut full = |mbps, limited| {
            let sample = RateSample { rate: Rate::from_mbps(mbps), delivered: 1, limited };
            pipe.on_sample(Some(&sample), true)
        };
        assert!([10, 20, 25].into_iter().all(|mbps| !full(mbps, false)), "growing");
        assert!(!full(29, false) && !full(30, true) && !full(30, true), "two say nothing");
        assert!(!full(30, false) && full(31, false));
        assert!(full(90, false), "known");
    }
}
