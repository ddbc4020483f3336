use longhaul_units::{Instant, Rate};

use crate::controller::Pacing;

/// Turns a rate into departure times: a token bucket that is counted as time.
///
/// The bucket holds the burst, so a wake-up that comes late catches up by that much and no more,
/// and times are absolute, so lateness does not add up.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    pacing: Pacing,
    /// Time when the bucket is, or was, full.
    full: Instant,
}

impl Pacer {
    /// A pacer that may send one burst at once.
    pub fn new(now: Instant, pacing: Pacing) -> Self {
        Self { pacing, full: now }
    }

    /// Changes the rate from now on. What was saved stays, up to the new burst, and what was
    /// overdrawn, up to one large batch. Parts of a byte are not saved: changes that follow each other
    /// would add them up.
    pub fn set(&mut self, now: Instant, pacing: Pacing) {
        if pacing == self.pacing {
            return;
        }
        let missing = self.pacing.rate.bytes_in(self.full - now) + u64::from(self.full > now);
        let saved = self.pacing.burst.saturating_sub(missing);
        let debt = missing.saturating_sub(self.pacing.burst).min(MAX_DEBT);
        let missing = pacing.burst.saturating_sub(saved) + debt;
        self.full = match missing {
            0 => self.full.min(now),
            _ => now + pacing.rate.time_for(missing),
        };
        self.pacing = pacing;
    }

    /// Returns when `bytes` may leave; `None` means now.
    ///
    /// Batches larger than the burst leave when the bucket is full, and overdraw it. At rate zero
    /// nothing ever leaves.
    pub fn earliest(&self, now: Instant, bytes: u64) -> Option<Instant> {
        let Pacing { rate, burst, .. } = self.pacing;
        if rate == Rate::ZERO {
            return Some(Instant::FAR_FUTURE);
        }
        let at = self.full.before(rate.time_for(burst.saturating_sub(bytes)));
        (at > now).then_some(at)
    }

    /// Returns since when allowance is lost because the bucket is full; in the future while it fills.
    pub fn full_since(&self) -> Instant {
        self.full
    }

    /// Records that `bytes` left.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.full = self.full.max(now) + self.pacing.rate.time_for(bytes);
    }
}

/// A debt survives a change of rate up to this many bytes, the largest batch, so that a moment at a
/// very low rate cannot stop the path for long afterwards.
const MAX_DEBT: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Duration;
    use proptest::prelude::*;

    fn pacing(rate: Rate, burst: u64) -> Pacing {
        Pacing { rate, burst, window: None }
    }

    #[test]
    fn a_full_bucket_then_one_batch_per_interval() {
        let start = Instant::from_nanos(1_000_000_000);
        let mut pacer = Pacer::new(start, pacing(Rate::from_gbps(1), 30_000));
        for _ in 0..2 {
            assert_eq!(pacer.earliest(start, 15_000), None);
            pacer.on_sent(start, 15_000);
        }
        let next = start + Duration::from_micros(120);
        assert_eq!(pacer.earliest(start, 15_000), Some(next));
        assert_eq!(pacer.earliest(next, 15_000), None);
    }

    #[test]
    fn a_late_wake_up_catches_up_by_one_burst() {
        let start = Instant::from_nanos(1_000_000_000);
        let mut pacer = Pacer::new(start, pacing(Rate::from_gbps(1), 30_000));
        let late = start + Duration::from_secs(1);
        let mut sent = 0;
        while pacer.earliest(late, 1_500).is_none() {
            pacer.on_sent(late, 1_500);
            sent += 1_500;
        }
        assert_eq!(sent, 30_000);
    }

    #[test]
    fn rate_zero_holds_and_lets_go() {
        let start = Instant::from_nanos(1_000_000_000);
        let mut pacer = Pacer::new(start, pacing(Rate::ZERO, 1_500));
        assert_eq!(pacer.earliest(start, 1_500), Some(Instant::FAR_FUTURE));
        pacer.set(start, pacing(Rate::from_mbps(12), 1_500));
        assert!(pacer.earliest(start + Duration::from_millis(1), 1_500).is_none());
    }

    #[test]
    fn no_limit_never_waits() {
        let start = Instant::from_nanos(5);
        let mut pacer = Pacer::new(start, pacing(Rate::MAX, 1 << 20));
        for _ in 0..1_000 {
            assert_eq!(pacer.earliest(start, 65_000), None);
            pacer.on_sent(start, 65_000);
        }
    }

    proptest! {
        /// Over any stretch, no more leaves than the rate allows, one burst and one batch.
        #[test]
        fn never_above_the_rate(
            mbps in 1u64..50_000,
            burst in 1_500u64..200_000,
            steps in prop::collection::vec((0u64..2_000_000, 1u64..65_000), 1..200),
        ) {
            let start = Instant::from_nanos(1 << 40);
            let rate = Rate::from_mbps(mbps);
            let (mut pacer, mut now) = (Pacer::new(start, pacing(rate, burst)), start);
            let (mut sent, mut largest) = (0, 0);
            for (wait, bytes) in steps {
                now += Duration::from_nanos(wait);
                now = pacer.earliest(now, bytes).unwrap_or(now);
                pacer.on_sent(now, bytes);
                sent += bytes;
                largest = largest.max(bytes);
                // A nanosecond is lost to rounding with every batch.
                let time = now - start + Duration::from_nanos(300);
                prop_assert!(sent <= rate.bytes_in(time) + burst + largest);
            }
        }
    }
}
