//! Limits of each token: what it may have at a time, and how often it may ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_sys::sync::lock;

use crate::service::config::Pace;

/// Counts of something, by token.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Arc<Mutex<HashMap<String, usize>>>);

/// One of them, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    counts: Counts,
    token: String,
}

impl Counts {
    /// One more for a token, unless it has `most`.
    pub(super) fn take(&self, token: &str, most: usize) -> Option<Place> {
        let mut counts = lock(&self.0);
        let count = counts.entry(token.into()).or_default();
        (*count < most).then(|| {
            *count += 1;
            Place { counts: self.clone(), token: token.into() }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts.0);
        if let Some(count) = counts.get_mut(&self.token) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.token);
            }
        }
    }
}

/// A bucket for each token that has asked. Only tokens that are let in have one.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates(Arc<Mutex<HashMap<String, Bucket>>>);

impl Rates {
    /// `cost` requests at `now`.
    ///
    /// # Errors
    /// They come too soon, by so much.
    pub(super) fn take(
        &self,
        token: &str,
        cost: u32,
        pace: Pace,
        now: Duration,
    ) -> Result<(), Duration> {
        let mut buckets = lock(&self.0);
        if let Some(bucket) = buckets.get_mut(token) {
            return bucket.take(cost, pace, now);
        }
        buckets.entry(token.into()).or_default().take(cost, pace, now)
    }
}

/// A token bucket, as the time at which it will be full: so it needs no count (the generic cell
/// rate algorithm of ITU-T I.371).
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full_at: Duration,
}

impl Bucket {
    /// Takes `cost` out. What costs more than the bucket holds is let through when it is full.
    fn take(&mut self, cost: u32, pace: Pace, now: Duration) -> Result<(), Duration> {
        let each = Duration::from_secs(1) / pace.rate.max(1);
        let full_at = self.full_at.max(now) + each * cost;
        let room = each * pace.burst.max(cost);
        match full_at.checked_sub(now + room) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                self.full_at = full_at;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { rate: 10, burst: 5 };

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let at = Duration::from_millis;
        let mut bucket = Bucket::default();
        assert!((0..5).all(|_| bucket.take(1, PACE, at(1000)).is_ok()));
        assert_eq!(bucket.take(1, PACE, at(1000)), Err(at(100)));
        assert_eq!(bucket.take(1, PACE, at(1040)), Err(at(60)));
        assert_eq!(bucket.take(1, PACE, at(1100)), Ok(()));
        assert_eq!(bucket.take(1, PACE, at(1100)), Err(at(100)), "what is refused costs nothing");
        let passed = (1101..=3100).filter(|ms| bucket.take(1, PACE, at(*ms)).is_ok()).count();
        assert_eq!(passed, 20);
        // Rest fills it, but not beyond its size.
        let passed = (0..99).filter(|_| bucket.take(1, PACE, at(60_000)).is_ok()).count();
        assert_eq!(passed, 5);
        // What is larger than it goes through when it is full, and is paid for.
        assert_eq!(bucket.take(20, PACE, at(60_100)), Err(at(400)));
        assert_eq!(bucket.take(20, PACE, at(60_500)), Ok(()));
        assert_eq!(bucket.take(1, PACE, at(60_500)), Err(at(1600)));
    }

    #[test]
    fn each_token_has_its_own() {
        let (rates, counts, now) = (Rates::default(), Counts::default(), Duration::ZERO);
        assert!((0..5).all(|_| rates.take("a", 1, PACE, now).is_ok()));
        assert!(rates.take("a", 1, PACE, now).is_err() && rates.take("b", 1, PACE, now).is_ok());
        let places: Vec<_> = (0..3).filter_map(|_| counts.take("a", 2)).collect();
        assert_eq!(places.len(), 2);
        assert!(counts.take("b", 2).is_some());
        drop(places);
        assert!(counts.take("a", 2).is_some());
        assert!(lock(&counts.0).is_empty());
    }
}
