//! End of slow start: HyStart++ (RFC 9406).

use longhaul_units::Duration;

/// Looks for a round trip that takes longer than the one before; then grows slowly for five rounds
/// (conservative slow start), to see whether it was true.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// Least round trip of the last round, and of the present one.
    last: Duration,
    present: Duration,
    samples: u32,
    conservative: Option<Conservative>,
}

#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The least round trip when it began.
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self { last: Duration::MAX, present: Duration::MAX, samples: 0, conservative: None }
    }

    pub(super) fn on_sample(&mut self, round_trip: Duration) {
        self.samples += 1;
        self.present = self.present.min(round_trip);
        if self.samples < SAMPLES {
            return;
        }
        match self.conservative {
            Some(conservative) if self.present < conservative.baseline => self.conservative = None,
            None if self.last < Duration::MAX => {
                let more = (self.last / 8).clamp(LEAST_MORE, MOST_MORE);
                if self.present >= self.last + more {
                    self.conservative = Some(Conservative { baseline: self.present, rounds: 0 });
                }
            }
            _ => {}
        }
    }

    /// A round is over; whether slow start is.
    pub(super) fn on_round(&mut self) -> bool {
        (self.last, self.present, self.samples) = (self.present, Duration::MAX, 0);
        let Some(conservative) = &mut self.conservative else { return false };
        conservative.rounds += 1;
        conservative.rounds >= CONSERVATIVE_ROUNDS
    }

    /// Returns by how many bytes the window grows for `acked` bytes that arrived.
    pub(super) fn growth(&self, acked: u64) -> u64 {
        if self.conservative.is_some() { acked / CONSERVATIVE_DIVISOR } else { acked }
    }
}

/// Of a round, before it is judged. The RFC has eight, of an acknowledgement for every other packet;
/// here some reports of a round may be lost.
const SAMPLES: u32 = 4;
/// Bounds of the growth that counts.
const LEAST_MORE: Duration = Duration::from_millis(4);
const MOST_MORE: Duration = Duration::from_millis(16);
const CONSERVATIVE_DIVISOR: u64 = 4;
const CONSERVATIVE_ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Growth of a window in rounds of so many milliseconds, until slow start is over.
    fn grown(rounds: &[u64]) -> Option<u32> {
        let mut hystart = HyStart::new();
        for (count, ms) in (1..).zip(rounds) {
            (0..8).for_each(|_| hystart.on_sample(Duration::from_millis(*ms)));
            if hystart.on_round() {
                return Some(count);
            }
        }
        None
    }

    #[test]
    fn a_longer_round_trip_ends_slow_start_five_rounds_later() {
        assert_eq!(grown(&[40, 40, 46, 46, 46, 46, 46, 46]), Some(7));
        assert_eq!(grown(&[40, 40, 43, 46, 49, 52, 55, 58, 61]), None, "less than an eighth each");
        assert_eq!(grown(&[40, 40, 46, 41, 41, 41, 41, 41, 41, 41]), None, "it was not true");
    }

    #[test]
    fn until_then_the_window_grows_by_a_quarter() {
        let mut hystart = HyStart::new();
        assert_eq!(hystart.growth(8_000), 8_000);
        for ms in [40, 46] {
            (0..8).for_each(|_| hystart.on_sample(Duration::from_millis(ms)));
            hystart.on_round();
        }
        assert_eq!(hystart.growth(8_000), 2_000);
    }
}
