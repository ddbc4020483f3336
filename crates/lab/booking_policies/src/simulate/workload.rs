//! The requests of the paper's section 3.3.1.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// One file request: what the paper's section 3.3.1 draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Arrival, which is also the requested start, in seconds.
    pub at: f64,
    /// Size in bytes.
    pub bytes: f64,
    /// Rmax in channels.
    pub max_rate: u32,
}

impl Arrival {
    /// Seconds that the file takes at Rmax on an idle link.
    pub fn ideal(&self) -> f64 {
        self.bytes * 8.0 / (f64::from(self.max_rate) * CHANNEL_BPS)
    }
}

/// Seeded source of the distributions the workloads need.
pub struct Draw(Xoshiro256PlusPlus);

impl Draw {
    /// The source with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count - 1)
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// A file size, by the inverse of the bounded Pareto distribution (equation 2).
    pub fn file_bytes(&mut self) -> f64 {
        let tail = 1.0 - (SMALLEST / LARGEST).powf(ALPHA);
        SMALLEST / (1.0 - self.unit() * tail).powf(1.0 / ALPHA)
    }

    /// Rmax in channels: 1, 5 and 10 with 0.3, 0.3 and 0.4.
    pub fn max_rate(&mut self) -> u32 {
        match self.unit() {
            u if u < 0.3 => CLASSES[0],
            u if u < 0.6 => CLASSES[1],
            _ => CLASSES[2],
        }
    }
}

/// Mean of the bounded Pareto distribution, in bytes.
pub fn mean_bytes() -> f64 {
    let (a, k, p) = (ALPHA, SMALLEST, LARGEST);
    let ratio = k.powf(a) / (1.0 - (k / p).powf(a));
    ratio * a / (a - 1.0) * (k.powf(1.0 - a) - p.powf(1.0 - a))
}

/// Requests per second that offer `load` to the paper's link.
pub fn rate_for(load: f64) -> f64 {
    load * f64::from(CHANNELS) * CHANNEL_BPS / (8.0 * mean_bytes())
}

/// `count` requests at `load`, ascending. The same seed at another load gives the same files in
/// the same order, closer together or further apart, so that loads are paired as well.
pub fn arrivals(load: f64, count: usize, seed: u64) -> Vec<Arrival> {
    let mut draw = Draw::new(seed);
    let gap = 1.0 / rate_for(load);
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            at += draw.exponential(gap);
            Arrival { at, bytes: draw.file_bytes().round(), max_rate: draw.max_rate() }
        })
        .collect()
}

/// Channels of the paper's link.
pub const CHANNELS: u32 = 100;
/// Bits per second of a channel.
pub const CHANNEL_BPS: f64 = 1e10;
/// The paper's Rmax classes.
pub const CLASSES: [u32; 3] = [1, 5, 10];
/// Shape of the size distribution.
const ALPHA: f64 = 1.1;
/// Smallest file, bytes.
const SMALLEST: f64 = 500e6;
/// Largest file, bytes.
const LARGEST: f64 = 100e9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_classes_follow_the_paper() {
        let files = arrivals(0.8, 200_000, 1);
        let mean = files.iter().map(|f| f.bytes).sum::<f64>() / files.len() as f64;
        assert!((mean / mean_bytes() - 1.0).abs() < 0.02, "{mean} {}", mean_bytes());
        assert!(files.iter().all(|f| (SMALLEST..=LARGEST).contains(&f.bytes)));
        let tens = files.iter().filter(|f| f.max_rate == 10).count() as f64;
        assert!((tens / files.len() as f64 - 0.4).abs() < 0.01);
        let span = files[files.len() - 1].at;
        let offered = files.iter().map(|f| f.bytes * 8.0).sum::<f64>() / span;
        let load = offered / (f64::from(CHANNELS) * CHANNEL_BPS);
        assert!((load - 0.8).abs() < 0.03, "{load}");
    }

    #[test]
    fn the_mean_uncontended_transfer_takes_under_a_second() {
        assert!((mean_bytes() - 2.27e9).abs() < 0.01e9);
        assert!((rate_for(0.5) - 27.5).abs() < 0.1);
    }
}
