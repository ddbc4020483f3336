//! Random choices from a seed.

use longhaul_units::Duration;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of random choices. Each part of the world has its own, so that one more choice in one
/// part does not change those of another.
#[derive(Clone, Debug)]
pub(crate) struct Draw(Xoshiro256PlusPlus);

impl Draw {
    /// The stream number `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mixed = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Less than `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// Both ends included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Both ends included, small values as likely as large ones of the same ratio.
    pub fn scaled(&mut self, least: u64, most: u64) -> u64 {
        let octaves = (most / least.max(1)).max(1).ilog2() + 1;
        let top = (least << self.below(u64::from(octaves))).clamp(least, most);
        self.between(top, (top * 2).min(most))
    }

    /// True once in `times`; never for 0.
    pub fn one_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// As [`Draw::scaled`], in microseconds.
    pub fn micros(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.scaled(least, most))
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }

    /// For what takes a generator.
    pub fn rng(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.0
    }
}
