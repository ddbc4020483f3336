//! The least round trip, and when it is to be looked for: section 5.3.4.3 of the draft.

use longhaul_units::{Duration, Instant};

/// The least of ten seconds, and that of the last five.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    least: Duration,
    stamp: Instant,
    recent: Duration,
    recent_stamp: Instant,
    expired: bool,
}

impl MinRtt {
    pub(super) fn new(now: Instant, known: Option<Duration>) -> Self {
        let least = known.unwrap_or(Duration::MAX);
        Self { least, stamp: now, recent: least, recent_stamp: now, expired: false }
    }

    pub(super) fn update(&mut self, now: Instant, sample: Option<Duration>) {
        self.expired = now - self.recent_stamp > PROBE_INTERVAL;
        let Some(sample) = sample else { return };
        if sample < self.recent || self.expired {
            (self.recent, self.recent_stamp) = (sample, now);
        }
        if self.recent < self.least || now - self.stamp > FILTER_LENGTH {
            (self.least, self.stamp) = (self.recent, self.recent_stamp);
        }
    }

    /// Returns whether no round trip as short as the least was seen for so long that it is to be looked for.
    pub(super) fn is_expired(&self) -> bool {
        self.expired
    }

    /// It was looked for.
    pub(super) fn on_probed(&mut self, now: Instant) {
        self.recent_stamp = now;
        self.expired = false;
    }

    /// `guess` before the first sample.
    pub(super) fn get(&self, guess: Duration) -> Duration {
        if self.least == Duration::MAX { guess } else { self.least.max(LEAST) }
    }
}

const FILTER_LENGTH: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The resolution of send times.
const LEAST: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_seconds_without_it_and_it_is_looked_for() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let mut least = MinRtt::new(at(0), None);
        assert_eq!(least.get(ms(7)), ms(7), "a guess");
        least.update(at(10), Some(ms(40)));
        least.update(at(5_000), Some(ms(50)));
        assert_eq!((least.get(ms(7)), least.is_expired()), (ms(40), false));
        least.update(at(5_011), Some(ms(52)));
        assert_eq!((least.get(ms(7)), least.is_expired()), (ms(40), true));
        least.on_probed(at(5_300));
        least.update(at(10_200), Some(ms(55)));
        assert_eq!((least.get(ms(7)), least.is_expired()), (ms(52), false), "of ten seconds");
    }
}
