//! Estimate of the slowest link's rate, from the spread of packet pairs.

use longhaul_units::Rate;

/// The last 64 rates of trains that the path spread: what UDT measures with packet pairs.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    rates: [Rate; WINDOW],
    seen: usize,
    median: Rate,
}

impl Capacity {
    pub(super) fn new() -> Self {
        Self { rates: [Rate::ZERO; WINDOW], seen: 0, median: Rate::ZERO }
    }

    pub(super) fn add(&mut self, rate: Rate) {
        self.rates[self.seen % WINDOW] = rate;
        self.seen = self.seen.wrapping_add(1).max(1);
        let mut sorted = self.rates;
        let known = self.seen.min(WINDOW);
        let (_, median, _) = sorted[..known].select_nth_unstable(known / 2);
        self.median = *median;
    }

    /// Of at least a quarter of what is remembered.
    pub(super) fn median(&self) -> Option<Rate> {
        (self.seen >= WINDOW / 4).then_some(self.median)
    }
}

/// Sizes of UDT's `CPktTimeWindow`.
const WINDOW: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_last_sixty_four() {
        let mut capacity = Capacity::new();
        for i in 0..16 {
            assert_eq!(capacity.median(), None, "of {i}");
            capacity.add(Rate::from_mbps(if i % 3 == 0 { 900 } else { 100 }));
        }
        assert_eq!(capacity.median(), Some(Rate::from_mbps(100)), "lumps are no link");
        for _ in 0..64 {
            capacity.add(Rate::from_mbps(50));
        }
        assert_eq!(capacity.median(), Some(Rate::from_mbps(50)));
    }
}
