//! Randomness: one independent stream for each element of a path, all from one seed.

use alloc::vec::Vec;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::probability::Probability;

/// The elements that draw. The numbers are part of what a seed means: never reuse one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    RandomLoss = 1,
    BurstState = 2,
    BurstLoss = 3,
    Reordering = 4,
    Duplication = 5,
    Corruption = 6,
    CorruptedBit = 7,
    Jitter = 8,
    EcnRamp = 9,
}

/// A stream of random integers.
#[derive(Clone, Debug)]
pub(crate) struct Stream(Xoshiro256PlusPlus);

impl Stream {
    pub(crate) fn new(seed: u64, element: Element) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(mix(seed, element as u64)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..=max`, biased by less than `max` / 2^64.
    pub(crate) fn up_to(&mut self, max: u64) -> u64 {
        ((u128::from(self.next()) * (u128::from(max) + 1)) >> 64) as u64
    }
}

/// A seed that has nothing visible in common with `seed` or with that of another `number`:
/// the output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(crate) fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Lengths of the gaps between independent events of one probability.
///
/// A gap is the number of trials that fail before the next one that succeeds. Drawing gaps costs
/// nothing for the trials inside them, and integers keep the result equal on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Geometric {
    /// (1 - p)^(2^k) as fractions of 2^64, for every k where that is not zero.
    powers: Vec<u64>,
    never: bool,
}

impl Geometric {
    pub(crate) fn new(probability: Probability) -> Self {
        let mut powers = Vec::new();
        let never = probability == Probability::ZERO;
        let mut power = probability.complement().as_fixed();
        while power != 0 && !never {
            powers.push(power);
            power = ((u128::from(power) * u128::from(power)) >> 64) as u64;
        }
        Self { powers, never }
    }

    /// The next gap; `None` when the event never happens.
    ///
    /// The gap is at least n with probability (1 - p)^n, so it is the largest n with
    /// (1 - p)^n > u for a uniform u. The bits of n are found from the highest down.
    pub(crate) fn gap(&self, stream: &mut Stream) -> Option<u64> {
        if self.never {
            return None;
        }
        let uniform = u128::from(stream.next());
        let mut reached = 1u128 << 64;
        let mut gap = 0;
        for (bit, &power) in self.powers.iter().enumerate().rev() {
            let next = (reached * u128::from(power)) >> 64;
            if next > uniform {
                reached = next;
                gap |= 1 << bit;
            }
        }
        Some(gap)
    }
}

/// Independent events at numbered trials: tells which number is hit next.
#[derive(Clone, Debug)]
pub(crate) struct Hits {
    geometric: Geometric,
    stream: Stream,
    next: u64,
}

impl Hits {
    pub(crate) fn new(probability: Probability, stream: Stream) -> Self {
        let mut hits = Self { geometric: Geometric::new(probability), stream, next: 0 };
        hits.restart(0);
        hits
    }

    /// Number of the next trial that succeeds; `u64::MAX` for never.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// True if trial `number` succeeds. Numbers are asked in order, none with an event left out.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        if number != self.next {
            return false;
        }
        self.restart(number + 1);
        true
    }

    /// Draws again for the trials from `number` on.
    pub(crate) fn restart(&mut self, number: u64) {
        let gap = self.geometric.gap(&mut self.stream);
        self.next = gap.map_or(u64::MAX, |gap| number.saturating_add(gap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(seed: u64) -> Stream {
        Stream::new(seed, Element::RandomLoss)
    }

    #[test]
    fn never_and_always() {
        assert_eq!(Geometric::new(Probability::ZERO).gap(&mut stream(1)), None);
        assert_eq!(Geometric::new(Probability::ONE).gap(&mut stream(1)), Some(0));
        let mut always = Hits::new(Probability::ONE, stream(1));
        assert!((0..100).all(|number| always.take(number)));
    }

    /// The mean gap is (1 - p) / p, its standard deviation sqrt(1 - p) / p.
    #[test]
    fn mean_gap_is_right_down_to_one_in_a_billion() {
        for ppb in [1, 1_000, 10_000_000, 500_000_000, 900_000_000] {
            let geometric = Geometric::new(Probability::from_ppb(ppb));
            let mut stream = stream(u64::from(ppb));
            let draws = 40_000u32;
            let sum: u128 =
                (0..draws).filter_map(|_| geometric.gap(&mut stream)).map(u128::from).sum();
            let p = f64::from(ppb) / 1e9;
            let (mean, expected) = (sum as f64 / f64::from(draws), (1.0 - p) / p);
            let bound = 4.0 * (1.0 - p).sqrt() / p / f64::from(draws).sqrt();
            assert!((mean - expected).abs() < bound, "{ppb}: {mean} against {expected}");
        }
    }

    /// Each gap length has probability p (1 - p)^n: a chi-squared test with fixed seed.
    #[test]
    fn gaps_are_geometric() {
        let geometric = Geometric::new(Probability::from_percent(20));
        let mut stream = stream(5);
        let mut seen = [0u32; 16];
        for _ in 0..100_000 {
            let gap = geometric.gap(&mut stream).unwrap();
            seen[gap.min(15) as usize] += 1;
        }
        let mut chi_squared = 0.0;
        for (length, &count) in seen.iter().enumerate() {
            let p = 0.8f64.powi(length as i32) * if length < 15 { 0.2 } else { 1.0 };
            let expected = 100_000.0 * p;
            chi_squared += (f64::from(count) - expected).powi(2) / expected;
        }
        // 15 degrees of freedom: 37.7 is exceeded once in a thousand seeds.
        assert!(chi_squared < 37.7, "{chi_squared}");
    }

    #[test]
    fn hits_are_independent_of_how_often_one_asks() {
        let probability = Probability::from_percent(3);
        let mut every = Hits::new(probability, stream(9));
        let asked: Vec<u64> = (0..10_000).filter(|&number| every.take(number)).collect();
        let mut only_next = Hits::new(probability, stream(9));
        for number in asked {
            assert_eq!(only_next.next(), number);
            assert!(only_next.take(number));
        }
    }

    #[test]
    fn streams_differ_by_element_and_seed() {
        let first = |seed, element| Stream::new(seed, element).next();
        assert_ne!(first(1, Element::RandomLoss), first(1, Element::Reordering));
        assert_ne!(first(1, Element::RandomLoss), first(2, Element::RandomLoss));
    }

    #[test]
    fn uniform_draws_reach_both_ends() {
        let mut stream = stream(3);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[stream.up_to(3) as usize] = true;
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(stream.up_to(0), 0);
        let _ = stream.up_to(u64::MAX);
    }
}
