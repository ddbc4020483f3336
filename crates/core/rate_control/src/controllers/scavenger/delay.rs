//! Queueing delay of packets: RFC 6817 section 3.4, with round trips as LEDBAT++ has them.

use longhaul_units::{Duration, Instant};

use crate::feedback::Feedback;
use crate::filter::MinFilter;

/// The least round trip of ten minutes, and what the last samples have above it. The one-way delay that
/// reports carry, and [`crate::estimates::Estimates::queue`], follow a standing queue of others within half a
/// minute.
#[derive(Clone, Debug)]
pub(super) struct Delay {
    base: MinFilter,
    /// Queueing delays of the last samples.
    last: [Duration; FILTER],
    next: usize,
}

impl Delay {
    pub(super) fn new() -> Self {
        Self { base: MinFilter::new(), last: [Duration::ZERO; FILTER], next: 0 }
    }

    pub(super) fn on_feedback(&mut self, now: Instant, feedback: &Feedback) {
        let Some(round_trip) = feedback.rtt else { return };
        self.base.update(now, round_trip.as_nanos() as u64, BASE_HISTORY);
        self.last[self.next] = round_trip.saturating_sub(self.base(round_trip));
        self.next = (self.next + 1) % FILTER;
    }

    /// Round trip without a queue; `guess` before the first sample.
    pub(super) fn base(&self, guess: Duration) -> Duration {
        self.base.get().map_or(guess, Duration::from_nanos)
    }

    /// The present queueing delay.
    pub(super) fn queue(&self) -> Duration {
        self.last.into_iter().min().unwrap_or_default()
    }
}

const FILTER: usize = 4;
const BASE_HISTORY: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_four_samples_above_the_base() {
        let ms = Duration::from_millis;
        let mut delay = Delay::new();
        let mut queue = |rtt| {
            let feedback = Feedback { rtt: Some(ms(rtt)), ..Feedback::default() };
            delay.on_feedback(Instant::from_nanos(1), &feedback);
            (delay.base(ms(1)), delay.queue())
        };
        assert_eq!(queue(40), (ms(40), ms(0)));
        let queues = [90, 95, 80, 99, 90].map(|rtt| queue(rtt).1);
        assert_eq!(queues, [0, 0, 0, 40, 40].map(ms));
    }
}
