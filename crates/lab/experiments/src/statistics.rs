//! Few runs, and what they tell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The middle of some values, and an interval that holds the median of their distribution.
///
/// The interval is between two of the values themselves (order statistics): the k-th least and the
/// k-th greatest hold the median unless fewer than k of n values fell on one side of it, which has
/// a binomial probability whatever the distribution is. k is as large as 95 % allows, and 1 where
/// not even that is reached; [`Estimate::confidence`] says what the interval has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Of the values.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability with which it holds the median: 0 for a single value, 0.95 or more from six on.
    pub confidence: f64,
    /// Number of values.
    pub count: usize,
}

impl Estimate {
    /// Of at least one value; those that are no numbers do not count.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        if count == 0 {
            return None;
        }
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        let ranks = 1..=count.div_ceil(2);
        let enough = ranks.rev().find(|rank| confidence(count, *rank) >= CONFIDENCE);
        let rank = enough.unwrap_or(1);
        Some(Self {
            median,
            low: sorted[rank - 1],
            high: sorted[count - rank],
            confidence: confidence(count, rank),
            count,
        })
    }
}

/// That the median lies between the `rank`-th least and the `rank`-th greatest of `count` values:
/// 1 - 2 P(X < rank) for X binomial with one half.
fn confidence(count: usize, rank: usize) -> f64 {
    let mut term = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for k in 0..rank {
        below += term;
        term *= (count - k) as f64 / (k + 1) as f64;
    }
    (1.0 - 2.0 * below).max(0.0)
}

/// Jain's fairness index (Jain, Chiu and Hawe 1984): 1 when all have the same, 1/n when one has all.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|x| x * x).sum::<f64>());
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Correlation of two series, from -1 to 1, with an interval that holds it with 95 %.
///
/// Pearson's coefficient and Fisher's interval, for as many independent values as the series are worth:
/// values near each other are alike, and n of them stand for n / (1 + 2 sum of r_x(k) r_y(k)) by the
/// autocorrelations of both (Bartlett 1946).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// The coefficient.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
}

impl Correlation {
    /// Of pairs of series, all runs together, the second of a pair taken `lag` values later; nothing
    /// where one never changes.
    pub fn lagged(runs: &[(&[f64], &[f64])], lag: isize) -> Option<Self> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (first, second) in runs {
            let (ahead, behind) = (lag.max(0).unsigned_abs(), lag.min(0).unsigned_abs());
            let (Some(first), Some(second)) = (first.get(behind..), second.get(ahead..)) else {
                continue;
            };
            let length = first.len().min(second.len());
            let (first, second) = (&first[..length], &second[..length]);
            let Some(value) = pearson(first, second) else { continue };
            let own = independent(first, second) - 3.0;
            if own > 0.0 {
                sum += own * value.clamp(-NEAR_ONE, NEAR_ONE).atanh();
                weight += own;
            }
        }
        let (middle, half) = (sum / weight, NORMAL_95 / weight.sqrt());
        let [value, low, high] = [middle, middle - half, middle + half].map(f64::tanh);
        (weight > 0.0).then_some(Self { value, low, high })
    }
}

fn pearson(first: &[f64], second: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (a, b) = (mean(first), mean(second));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        first.iter().zip(second).map(|(x, y)| of(x - a, y - b)).sum()
    };
    let (xx, yy) = (sum(&|x, _| x * x), sum(&|_, y| y * y));
    (xx > 0.0 && yy > 0.0).then(|| sum(&|x, y| x * y) / (xx * yy).sqrt())
}

/// Number of independent values that two series are worth, beside each other.
fn independent(first: &[f64], second: &[f64]) -> f64 {
    let length = first.len();
    let own =
        |values: &[f64], k: usize| pearson(&values[k..], &values[..length - k]).unwrap_or(0.0);
    let alike: f64 = (1..length / 4).map(|k| own(first, k) * own(second, k)).sum();
    length as f64 / (1.0 + 2.0 * alike).max(1.0)
}

/// Mean and standard deviation (of a sample: over one less than their number; 0 of one value).
pub fn deviation_of(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (!values.is_empty()).then(|| (mean, (squares / (count - 1.0).max(1.0)).sqrt()))
}

/// The value that a part of them, from 0 to 1, does not exceed: the nearest in rank.
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[(last as f64 * part).round() as usize])
}

/// Standard deviation over mean.
pub fn variation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

/// Histogram of lengths of time, in microseconds of two digits: any number of them in little room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lengths(BTreeMap<u64, u64>);

impl Lengths {
    /// Adds one, of that many milliseconds.
    pub fn add(&mut self, ms: f64) {
        let us = (ms * 1e3).round() as u64;
        let unit = 10u64.pow(us.checked_ilog10().unwrap_or(0).saturating_sub(1));
        *self.0.entry((us + unit / 2) / unit * unit).or_default() += 1;
    }

    /// Adds those of another.
    pub fn extend(&mut self, other: &Self) {
        for (us, count) in &other.0 {
            *self.0.entry(*us).or_default() += count;
        }
    }

    /// Number of lengths.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The length in milliseconds that a part of them, from 0 to 1, does not exceed.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = (part * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let (us, _) = self.0.iter().find(|(_, count)| {
            below += **count;
            below >= wanted
        })?;
        Some(*us as f64 / 1e3)
    }
}

const CONFIDENCE: f64 = 0.95;
/// Of a normal distribution, in standard deviations.
const NORMAL_95: f64 = 1.96;
/// A coefficient of one would have an interval without end.
const NEAR_ONE: f64 = 0.999_999;

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4
    }

    #[test]
    fn intervals_of_medians_are_those_of_the_tables() {
        // Ranks and confidence as in the tables of Conover, Practical Nonparametric Statistics.
        for (count, rank, expected) in [
            (2, 1, 0.5),
            (3, 1, 0.75),
            (5, 1, 0.9375),
            (6, 1, 0.96875),
            (10, 2, 0.97852),
            (15, 4, 0.96484),
            (20, 6, 0.95861),
        ] {
            let estimate = Estimate::of((1..=count).map(f64::from)).unwrap();
            assert_eq!(estimate.low, f64::from(rank), "{count}");
            assert_eq!(estimate.high, f64::from(count + 1 - rank), "{count}");
            assert!(near(estimate.confidence, expected), "{count}: {}", estimate.confidence);
        }
    }

    #[test]
    fn medians_of_even_and_odd_counts() {
        assert_eq!(Estimate::of([3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Estimate::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        let single = Estimate::of([7.0, f64::NAN]).unwrap();
        assert_eq!((single.low, single.high, single.confidence), (7.0, 7.0, 0.0));
        assert_eq!(Estimate::of([]), None);
    }

    #[test]
    fn fairness_and_variation_of_known_shares() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert!(near(jain(&[1.0, 2.0, 3.0]).unwrap(), 36.0 / 42.0));
        assert_eq!(jain(&[0.0]), None);
        assert!(near(variation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap(), 2.0 / 5.0));
        assert_eq!(variation(&[]), None);
        // PAPTC's row of table 1, which prints 5.915.
        let row = [878.0, 860.0, 867.0, 863.0, 860.0, 864.0, 872.0, 860.0, 869.0, 868.0];
        let (mean, deviation) = deviation_of(&row).unwrap();
        assert!(near(mean, 866.1) && (deviation - 5.915).abs() < 1e-3, "{deviation}");
        assert_eq!((deviation_of(&[7.0]), deviation_of(&[])), (Some((7.0, 0.0)), None));
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!((quantile(&[3.0, 1.0, 2.0], 0.9), quantile(&[], 0.5)), (Some(3.0), None));
    }

    #[test]
    fn a_series_that_follows_another_is_found_at_its_lag() {
        // A generator's bits, and the same two values later with another's added.
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / f64::from(1u32 << 24)
        };
        let load: Vec<f64> = (0..400).map(|_| next()).collect();
        let noise: Vec<f64> = (0..400).map(|_| next()).collect();
        let loss = |at: usize| if at < 2 { 0.0 } else { load[at - 2] + noise[at] / 2.0 };
        let loss: Vec<f64> = (0..400).map(loss).collect();
        let at = |lag| Correlation::lagged(&[(&load, &loss)], lag).unwrap();
        let expected = (1.0f64 / 1.25).sqrt();
        assert!(at(2).low < expected && expected < at(2).high, "{:?}", at(2));
        assert!(at(2).high - at(2).low < 0.1);
        for lag in [-2, 0, 1, 3] {
            assert!(at(lag).low < 0.0 && at(lag).high > 0.0, "{lag}: {:?}", at(lag));
        }
        assert_eq!(Correlation::lagged(&[(&load, &[1.0; 400])], 0), None);
        assert_eq!(Correlation::lagged(&[(&load[..3], &loss[..3])], 5), None);
        // Twice the data, an interval less than that much narrower.
        let twice = Correlation::lagged(&[(&load, &loss), (&load, &loss)], 2).unwrap();
        assert!(twice.high - twice.low < at(2).high - at(2).low);
    }

    #[test]
    fn values_that_are_alike_are_worth_fewer() {
        let slow: Vec<f64> = (0..400).map(|at| f64::from(at / 40 % 2)).collect();
        let worth = independent(&slow, &slow);
        assert!(worth < 40.0, "{worth}");
    }

    #[test]
    fn lengths_are_kept_to_two_digits() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.quantile(0.5), None);
        (1..=1000).for_each(|tenth| lengths.add(f64::from(tenth) / 10.0));
        let found = [0.0, 0.5, 0.9, 1.0].map(|part| lengths.quantile(part).unwrap());
        assert_eq!(found, [0.1, 50.0, 90.0, 100.0]);
        let mut both = lengths.clone();
        both.extend(&lengths);
        assert_eq!((both.count(), both.quantile(0.5)), (2000, Some(50.0)));
        [0.0, 1.249, 99.6].iter().for_each(|ms| lengths.add(*ms));
        let kept: Vec<u64> = lengths.0.keys().copied().collect();
        assert!(kept.contains(&0) && kept.contains(&1_200) && kept.contains(&100_000), "{kept:?}");
    }
}
