use longhaul_units::{Bytes, Duration, Instant};

use crate::repair::Repair;

/// Memory that one end of a transfer may use for what is under way.
///
/// The bytes of one round trip have to be kept until they are known to have arrived, or to have room
/// where they arrive; another is for what is lost, and the reports of it. So the budget is two
/// products of rate and round trip beside a base, and grows as the path shows its product, as a TCP
/// receiver tunes its buffer (Fisk and Feng, "Dynamic right-sizing in TCP", 2001). It never
/// shrinks: what was promised to the peer stays promised.
///
/// A round of blasts ([`Repair::Rounds`]) ends where the receiver has no room for more, and RBUDP's are of the
/// whole file: there all that has passed may have to be kept until the next round, so the budget grows by that.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBudget {
    base: u64,
    most: u64,
    /// The largest product so far.
    product: u64,
    /// All that passed, where that may have to be kept.
    kept: Option<u64>,
    /// Time when the present measurement began, and what had passed by then.
    since: Instant,
    before: u64,
}

impl MemoryBudget {
    /// A budget of `base`, which may grow to `most`, for what is repaired so.
    pub fn new(now: Instant, base: Bytes, most: Bytes, repair: Repair) -> Self {
        let kept = (repair == Repair::Rounds).then_some(0);
        Self { base: base.get(), most: most.get(), product: 0, kept, since: now, before: 0 }
    }

    /// The budget now.
    pub fn get(&self) -> Bytes {
        let worth = self.product.saturating_mul(2).max(self.kept.unwrap_or(0));
        Bytes::new(self.base.saturating_add(worth).min(self.most))
    }

    /// `passed` bytes in all have come through by `now`, over a path whose round trip, without
    /// queues, is `round_trip`. Gives the budget.
    pub fn update(&mut self, now: Instant, passed: u64, round_trip: Duration) -> Bytes {
        self.kept = self.kept.map(|kept| kept.max(passed));
        let took = now - self.since;
        if took >= round_trip.max(INTERVAL) {
            let bytes = u128::from(passed.saturating_sub(self.before));
            let product = bytes * round_trip.as_nanos() / took.as_nanos();
            self.product = self.product.max(u64::try_from(product).unwrap_or(u64::MAX));
            self.since = now;
            self.before = passed;
        }
        self.get()
    }
}

/// So long that what a stalled host finds in its buffers when it wakes does not look like a rate.
const INTERVAL: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget(base: Bytes, most: Bytes, repair: Repair) -> MemoryBudget {
        MemoryBudget::new(Instant::ZERO, base, most, repair)
    }

    #[test]
    fn two_products_beside_the_base() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let round_trip = Duration::from_millis(300);
        let mut budget = budget(Bytes::from_mib(10), Bytes::from_mib(100), Repair::Continuous);
        assert_eq!(budget.update(at(100), 90 * MIB, round_trip), Bytes::from_mib(10), "too soon");
        assert_eq!(budget.update(at(300), 10 * MIB, round_trip), Bytes::from_mib(30));
        assert_eq!(budget.update(at(900), 40 * MIB, round_trip), Bytes::from_mib(40));
        assert_eq!(budget.update(at(1500), 41 * MIB, round_trip), Bytes::from_mib(40), "slower");
        assert_eq!(budget.update(at(1800), 141 * MIB, round_trip), Bytes::from_mib(100), "most");
    }

    #[test]
    fn rounds_keep_all_that_has_passed() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let round_trip = Duration::from_millis(1);
        let mut budget = budget(Bytes::from_mib(10), Bytes::from_mib(100), Repair::Rounds);
        assert_eq!(budget.update(at(1), 3 * MIB, round_trip), Bytes::from_mib(13));
        assert_eq!(budget.update(at(300), 70 * MIB, round_trip), Bytes::from_mib(80));
        assert_eq!(budget.update(at(310), 300 * MIB, round_trip), Bytes::from_mib(100), "most");
    }

    #[test]
    fn impossible_figures_do_no_harm() {
        let mut budget = budget(Bytes::from_mib(1), Bytes::from_mib(2), Repair::Rounds);
        let late = Instant::ZERO + Duration::from_secs(100);
        assert_eq!(budget.update(late, u64::MAX, Duration::from_secs(60)), Bytes::from_mib(2));
        assert_eq!(budget.update(late, 0, Duration::ZERO), Bytes::from_mib(2));
    }
}
