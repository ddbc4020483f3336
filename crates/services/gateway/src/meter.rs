//! Bytes over time.

use longhaul_units::{Duration, Instant, Rate};

/// The rate of a count of bytes, over about the time of its window.
#[derive(Debug)]
pub(crate) struct Meter {
    window: Duration,
    bytes: u64,
    at: Instant,
    bps: f64,
    /// Between the last two notes.
    last_bps: f64,
}

impl Meter {
    pub const fn new(window: Duration, now: Instant) -> Self {
        Self { window, bytes: 0, at: now, bps: 0.0, last_bps: 0.0 }
    }

    /// By now so many bytes.
    pub fn note(&mut self, bytes: u64, now: Instant) {
        let time = now.since(self.at);
        if time.is_zero() {
            return;
        }
        self.last_bps = bytes.saturating_sub(self.bytes) as f64 * 8.0 / time.as_secs_f64();
        let weight = (time.as_secs_f64() / self.window.as_secs_f64()).min(1.0);
        self.bps += (self.last_bps - self.bps) * weight;
        (self.bytes, self.at) = (bytes, now);
    }

    /// The rate over the window.
    pub fn rate(&self) -> Rate {
        Rate::from_bps(self.bps as u64)
    }

    /// That, or the one since the last note where it is more.
    pub fn peak(&self) -> Rate {
        Rate::from_bps(self.bps.max(self.last_bps) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_bytes_now_and_then_are_a_small_rate() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut meter = Meter::new(Duration::from_secs(1), at(0));
        for i in 1..=50 {
            meter.note(i / 2 * 2, at(100 * i));
        }
        assert!((70..90).contains(&meter.rate().as_bps()), "{}", meter.rate());
        meter.note(50, at(5_000));
        assert!(meter.peak().as_bps() <= 160);
    }
}
