//! Measures of a run, and their summary over runs.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::workload::{Arrival, CLASSES};

/// A mean over seeds with the half width of its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Mean over the seeds.
    pub mean: f64,
    /// Half width of the interval, 0 for one seed.
    pub half_width: f64,
}

impl Estimate {
    /// The estimate from one value of each seed.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        if values.len() < 2 {
            return Self { mean, half_width: 0.0 };
        }
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, half_width: student(values.len() - 1) * (variance / n).sqrt() }
    }

    /// True if the interval holds `value`.
    pub fn covers(&self, value: f64) -> bool {
        (self.mean - value).abs() <= self.half_width
    }
}

/// The 97.5 % quantile of Student's t distribution.
fn student(degrees: usize) -> f64 {
    let standard = StudentsT::new(0.0, 1.0, degrees.max(1) as f64);
    standard.map_or(f64::INFINITY, |distribution| distribution.inverse_cdf(0.975))
}

/// Measures of one run of one contender; requests of the warm-up are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measures {
    /// Equation 1 per Rmax class and over all: delay weighted with size, in seconds.
    pub normalised: [f64; 4],
    /// Mean delay per Rmax class and over all, in seconds.
    pub mean: [f64; 4],
    /// Mean of delay over the delay on an idle link.
    pub slowdown: f64,
    /// 99th percentile of the slowdown.
    pub slowdown_p99: f64,
    /// Share of the link that carries data between the end of the warm-up and the last arrival.
    pub utilisation: f64,
}

impl Measures {
    /// Measures the requests from `warm_up` on.
    pub fn of(files: &[Arrival], delays: &[f64], warm_up: usize) -> Self {
        let mut weight = [0.0; 4];
        let mut count = [0.0; 4];
        let mut out = Self::default();
        let mut slowdowns = Vec::with_capacity(files.len() - warm_up);
        for (file, delay) in files.iter().zip(delays).skip(warm_up) {
            let class = CLASSES.iter().position(|c| *c == file.max_rate);
            for slot in [class, Some(3)].into_iter().flatten() {
                out.normalised[slot] += file.bytes * delay;
                weight[slot] += file.bytes;
                out.mean[slot] += delay;
                count[slot] += 1.0;
            }
            slowdowns.push(delay / file.ideal());
        }
        for slot in 0..4 {
            out.normalised[slot] /= weight[slot];
            out.mean[slot] /= count[slot];
        }
        slowdowns.sort_by(f64::total_cmp);
        out.slowdown = slowdowns.iter().sum::<f64>() / slowdowns.len() as f64;
        out.slowdown_p99 = slowdowns[(slowdowns.len() - 1) * 99 / 100];
        out.utilisation = utilisation(files, delays, warm_up);
        out
    }
}

/// Share of the link used between two arrivals, with each file spread evenly over its stay.
fn utilisation(files: &[Arrival], delays: &[f64], warm_up: usize) -> f64 {
    let (from, to) = (files[warm_up].at, files[files.len() - 1].at);
    let bits: f64 = files
        .iter()
        .zip(delays)
        .map(|(file, delay)| {
            let inside = (file.at + delay).min(to) - file.at.max(from);
            file.bytes * 8.0 * (inside / delay).clamp(0.0, 1.0)
        })
        .sum();
    let link = f64::from(super::workload::CHANNELS) * super::workload::CHANNEL_BPS;
    bits / (link * (to - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        let e = Estimate::of(&[1.0, 2.0, 3.0]);
        assert_eq!(e.mean, 2.0);
        assert!((e.half_width - 4.302_653 / 3f64.sqrt()).abs() < 1e-5);
        assert!(e.covers(4.0) && !e.covers(5.0));
        assert_eq!(Estimate::of(&[7.0]).half_width, 0.0);
    }

    #[test]
    fn equation_one_weighs_by_size() {
        let file = |bytes, max_rate| Arrival { at: 0.0, bytes, max_rate };
        let files = [file(1e9, 1), file(3e9, 1), file(1e9, 5)];
        let m = Measures::of(&files, &[1.0, 5.0, 2.0], 0);
        assert_eq!(m.normalised[0], 4.0);
        assert_eq!(m.mean[0], 3.0);
        assert_eq!(m.normalised[1], 2.0);
        assert_eq!(m.normalised[3], 18.0 / 5.0);
    }
}
