//! Size of a step: section 5 of the paper.

use longhaul_units::Rate;

/// Gradient ascent whose steps grow while the direction stays: by confidence, and within a boundary
/// that is widened when it is hit.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Step {
    up: bool,
    /// Steps in this direction.
    same: u64,
    /// Times that the boundary was widened.
    widened: u64,
}

impl Step {
    /// The rate that follows `rate`, where u has this gradient: millionths a Mb/s.
    pub(super) fn next(&mut self, rate: Rate, gradient: i64) -> Rate {
        let up = gradient > 0;
        if up != self.up || self.same == 0 {
            *self = Self { up, same: 0, widened: 0 };
        }
        self.same = (self.same + 1).min(MOST_SAME);
        let confidence = if self.same <= 3 { self.same } else { 2 * self.same - 3 };
        // A unit of utility a Mb/s is worth a Mb/s.
        let wanted = u128::from(gradient.unsigned_abs()) * u128::from(confidence);
        let bps = u128::from(rate.as_bps());
        let boundary = bps * u128::from(BOUNDARY + self.widened * WIDER) / 100;
        let change = if wanted > boundary {
            self.widened = (self.widened + 1).min(MOST_WIDENED);
            boundary
        } else {
            let share = u64::try_from(wanted * 100 / bps.max(1)).unwrap_or(0);
            self.widened = self.widened.min(share.saturating_sub(BOUNDARY).div_ceil(WIDER));
            wanted
        };
        let change = Rate::from_bps(u64::try_from(change).unwrap_or(u64::MAX));
        if up { rate + change } else { rate - change }
    }

    pub(super) fn goes_up(&self) -> bool {
        self.up
    }

    /// The direction was wrong.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Percent of the rate (omega_0), and by how much it is widened (delta).
const BOUNDARY: u64 = 5;
const WIDER: u64 = 10;
/// Half of the rate, nearly: a step down leaves some.
const MOST_WIDENED: u64 = 4;
const MOST_SAME: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_with_confidence_within_a_boundary_that_widens() {
        let mut step = Step::default();
        let mut rate = Rate::from_mbps(100);
        let mut changes = [0; 8];
        for change in &mut changes {
            let next = step.next(rate, 500_000);
            *change = (next - rate).as_bps();
            rate = next;
        }
        let units = [1, 2, 3, 5, 7, 9, 11, 13].map(|times| times * 500_000);
        // 13 x 0.5 Mb/s is more than five percent.
        assert_eq!(changes[..7], units[..7]);
        assert_eq!(changes[7], (rate.as_bps() - changes[7]) / 20);
        assert!(step.goes_up());
        let down = step.next(rate, -40_000_000);
        assert_eq!((rate - down).as_bps(), rate.as_bps() / 20, "from the beginning");
        let further = step.next(down, -40_000_000);
        assert_eq!((down - further).as_bps(), down.as_bps() * 15 / 100);
        assert!(step.next(Rate::from_kbps(1), i64::MIN) > Rate::ZERO);
    }
}
