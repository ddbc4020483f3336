use longhaul_units::{Duration, Instant};

use crate::random::{Element, Stream};

/// Variation of the one-way delay. It only ever adds to the delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter {
    /// Distribution of the added delay.
    pub shape: JitterShape,
    /// Time for which one drawn value holds, counted along the line. Zero draws for every packet, which
    /// is right for thin traffic only: where packets follow closely and keep their order, each
    /// waits for the slowest before it and the delay sticks to its maximum.
    pub hold: Duration,
    /// True if packets wait for earlier ones that were delayed more.
    pub keep_order: bool,
}

/// Distribution of the added delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum JitterShape {
    /// Equally likely from zero to the maximum, both included.
    Uniform {
        /// Largest added delay.
        max: Duration,
    },
    /// A bell: the sum of three uniform draws, from zero to six deviations, three on average.
    Bell {
        /// Standard deviation.
        deviation: Duration,
    },
}

impl Jitter {
    /// Up to `max`, all values equally likely; order is kept and a value holds for 1 ms.
    pub const fn uniform(max: Duration) -> Self {
        Self { shape: JitterShape::Uniform { max }, hold: HOLD, keep_order: true }
    }

    /// Roughly normal around three times `deviation`; order is kept and a value holds for 1 ms.
    pub const fn bell(deviation: Duration) -> Self {
        Self { shape: JitterShape::Bell { deviation }, hold: HOLD, keep_order: true }
    }

    /// The same with another [`Jitter::hold`].
    #[must_use]
    pub const fn hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// The same, but packets overtake each other as the draws have it.
    #[must_use]
    pub const fn reordering(self) -> Self {
        Self { keep_order: false, ..self }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct JitterClock {
    shape: JitterShape,
    hold: Duration,
    stream: Stream,
    extra: Duration,
    /// A new value is drawn at this instant; the beginning of time asks for the first.
    until: Instant,
}

impl JitterClock {
    pub(crate) fn new(config: &Jitter, seed: u64) -> Self {
        Self {
            shape: config.shape,
            hold: config.hold,
            stream: Stream::new(seed, Element::Jitter),
            extra: Duration::ZERO,
            until: Instant::ZERO,
        }
    }

    /// Added delay of a packet that enters the line at `at`; instants are asked in order.
    #[inline]
    pub(crate) fn extra(&mut self, at: Instant) -> Duration {
        if at >= self.until {
            self.until = at + self.hold;
            self.extra = self.draw();
        }
        self.extra
    }

    fn draw(&mut self) -> Duration {
        match self.shape {
            JitterShape::Uniform { max } => self.up_to(max),
            JitterShape::Bell { deviation } => {
                let third = deviation.saturating_mul(2);
                let sum = self.up_to(third).saturating_add(self.up_to(third));
                sum.saturating_add(self.up_to(third))
            }
        }
    }

    fn up_to(&mut self, max: Duration) -> Duration {
        let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.stream.up_to(max))
    }
}

const HOLD: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn draws(jitter: Jitter) -> Vec<u64> {
        let mut clock = JitterClock::new(&jitter, 4);
        let extra = |at| clock.extra(Instant::from_nanos(at)).as_nanos() as u64;
        (0..50_000).map(extra).collect()
    }

    fn mean_and_deviation(values: &[u64]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().map(|&value| value as f64).sum::<f64>() / count;
        let square = |&value: &u64| (value as f64 - mean) * (value as f64 - mean);
        (mean, (values.iter().map(square).sum::<f64>() / count).sqrt())
    }

    #[test]
    fn uniform_has_its_mean_and_bounds() {
        let jitter = Jitter::uniform(Duration::from_nanos(10_000)).hold(Duration::ZERO);
        let values = draws(jitter);
        let (mean, deviation) = mean_and_deviation(&values);
        assert!((mean - 5_000.0).abs() < 60.0, "{mean}");
        assert!((deviation - 2_886.8).abs() < 40.0, "{deviation}");
        assert!(values.iter().all(|&value| value <= 10_000));
    }

    #[test]
    fn bell_has_its_mean_deviation_and_bounds() {
        let jitter = Jitter::bell(Duration::from_nanos(1_000)).hold(Duration::ZERO);
        let values = draws(jitter);
        let (mean, deviation) = mean_and_deviation(&values);
        assert!((mean - 3_000.0).abs() < 20.0, "{mean}");
        assert!((deviation - 1_000.0).abs() < 20.0, "{deviation}");
        assert!(values.iter().all(|&value| value <= 6_000));
        let central = values.iter().filter(|&&value| value.abs_diff(3_000) <= 1_000).count();
        // 68.3 % for a true normal distribution, 66.7 % for a sum of three.
        assert!((33_000..34_500).contains(&central), "{central}");
    }

    #[test]
    fn a_value_holds() {
        let jitter = Jitter::uniform(Duration::from_secs(1)).hold(Duration::from_nanos(100));
        let runs: Vec<usize> = draws(jitter).chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
        assert!(runs.iter().all(|&len| len == 100));
    }
}
