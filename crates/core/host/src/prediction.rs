use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Predicts a series of samples taken at equal intervals, and how far off it may be.
///
/// The model is autoregressive (PAPTC eq. 7): X_t = delta + phi_1 X_(t-1) + ... + phi_p X_(t-p) + A_t,
/// fitted to the last samples by the Yule-Walker equations, solved by the Levinson-Durbin recursion
/// (Durbin, "The fitting of time-series models", 1960). What is predicted h steps ahead errs by the
/// noise times the sum of the squares of the first h weights of the moving average of infinite order. The
/// bound is as many of these deviations away as makes it hold as often as it should: that
/// number follows what came (adaptive conformal inference: Gibbs and Candes, NeurIPS 2021), since
/// shares of processors are not normal.
#[derive(Clone, Debug)]
pub struct Predictor {
    config: PredictorConfig,
    /// The newest last.
    samples: VecDeque<f64>,
    /// phi_1 to phi_p, the mean, and the deviation of A_t; of the last fit.
    weights: Vec<f64>,
    mean: f64,
    noise: f64,
    /// Predictions that have yet to come true, the oldest first: value and deviation.
    pending: VecDeque<(f64, f64)>,
    /// The newest of them.
    next: Option<(f64, f64)>,
    /// Number of deviations by which the bound lies below the prediction.
    depth: f64,
}

/// Configuration of a [`Predictor`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PredictorConfig {
    /// p, 0 to [`PredictorConfig::MOST_ORDER`]; 0 predicts the mean.
    pub order: usize,
    /// Samples that the model is fitted to, at least twice the order and 8.
    pub window: usize,
    /// Steps ahead, at least 1.
    pub horizon: usize,
    /// The share of samples that may fall below the bound.
    pub miss: f64,
}

impl PredictorConfig {
    /// The largest order.
    pub const MOST_ORDER: usize = 16;
    /// The largest window, and the farthest horizon.
    pub const MOST: usize = 1_024;
}

impl Default for PredictorConfig {
    /// docs/results/host-awareness.md has the errors of other orders and windows.
    fn default() -> Self {
        Self { order: 4, window: 256, horizon: 1, miss: 0.05 }
    }
}

/// Expectation of the sample `horizon` steps ahead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// The value.
    pub value: f64,
    /// It will be no less, but for the share of cases that was chosen.
    pub lower: f64,
    /// As far above the value.
    pub upper: f64,
}

impl Predictor {
    /// One that has seen nothing. What is out of bounds in `config` is taken for the nearest bound.
    pub fn new(config: PredictorConfig) -> Self {
        let order = config.order.min(PredictorConfig::MOST_ORDER);
        let config = PredictorConfig {
            order,
            window: config.window.clamp((2 * order).max(8), PredictorConfig::MOST),
            horizon: config.horizon.clamp(1, PredictorConfig::MOST),
            miss: config.miss.clamp(0.001, 0.5),
        };
        Self {
            config,
            samples: VecDeque::new(),
            weights: Vec::new(),
            mean: 0.0,
            noise: 0.0,
            pending: VecDeque::new(),
            next: None,
            depth: FIRST_DEPTH,
        }
    }

    /// Looks so many steps ahead from now on.
    pub fn set_horizon(&mut self, horizon: usize) {
        let horizon = horizon.clamp(1, PredictorConfig::MOST);
        if horizon != self.config.horizon {
            self.config.horizon = horizon;
            self.pending.clear();
            self.next = self.ahead();
        }
    }

    /// The next sample; one that is not a number counts as the last one again.
    pub fn add(&mut self, sample: f64) {
        let sample = if sample.is_finite() { sample } else { self.last().unwrap_or(0.0) };
        if self.pending.len() >= self.config.horizon
            && let Some((value, deviation)) = self.pending.pop_front()
        {
            let missed = sample < value - self.depth * deviation - f64::EPSILON * value.abs();
            let step = if missed { 1.0 - self.config.miss } else { -self.config.miss };
            self.depth = (self.depth + PACE * step).clamp(0.0, MOST_DEPTH);
        }
        if self.samples.len() == self.config.window {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.fit();
        self.next = self.ahead();
        self.pending.extend(self.next);
    }

    /// The newest sample.
    pub fn last(&self) -> Option<f64> {
        self.samples.back().copied()
    }

    /// Mean of the samples in the window.
    pub fn mean(&self) -> Option<f64> {
        (!self.samples.is_empty()).then_some(self.mean)
    }

    /// Predicts; nothing until twice the order, and 8 samples are known.
    pub fn predict(&self) -> Option<Prediction> {
        let (value, deviation) = self.next?;
        let reach = self.depth * deviation;
        Some(Prediction { value, lower: value - reach, upper: value + reach })
    }

    /// Value and deviation at the horizon.
    fn ahead(&self) -> Option<(f64, f64)> {
        if self.samples.len() < (2 * self.config.order).max(LEAST_SAMPLES) {
            return None;
        }
        let order = self.weights.len();
        // The newest first; what was predicted is taken for what came.
        let mut recent: VecDeque<f64> =
            self.samples.iter().rev().take(order).map(|sample| sample - self.mean).collect();
        let mut impulse: VecDeque<f64> = core::iter::repeat_n(0.0, order).collect();
        let mut next = 0.0;
        let mut variance = 0.0;
        let mut weight = 1.0;
        for step in 0..self.config.horizon {
            next = dot(&self.weights, &recent);
            if step > 0 {
                weight = dot(&self.weights, &impulse);
            }
            variance += weight * weight;
            if order > 0 {
                recent.pop_back();
                recent.push_front(next);
                impulse.pop_back();
                impulse.push_front(weight);
            }
        }
        Some((self.mean + next, self.noise * root(variance)))
    }

    fn fit(&mut self) {
        let count = self.samples.len();
        self.mean = self.samples.iter().sum::<f64>() / count as f64;
        let order = self.config.order.min(count.saturating_sub(1));
        let covariances: Vec<f64> = (0..=order)
            .map(|lag| {
                let pairs = self.samples.iter().zip(self.samples.iter().skip(lag));
                let sum: f64 = pairs.map(|(a, b)| (a - self.mean) * (b - self.mean)).sum();
                sum / count as f64
            })
            .collect();
        let (weights, variance) = levinson_durbin(&covariances);
        self.weights = weights;
        self.noise = root(variance);
    }
}

/// Solves the Yule-Walker equations for these autocovariances, lag 0 first: the weights and the variance
/// of what they leave. The biased covariances that [`Predictor`] uses make the model stationary, so
/// no horizon makes it explode.
fn levinson_durbin(covariances: &[f64]) -> (Vec<f64>, f64) {
    let mut weights: Vec<f64> = Vec::new();
    let mut variance = covariances[0];
    // A constant series has nothing to explain.
    let least = covariances[0] * 1e-9;
    for lag in 1..covariances.len() {
        if variance <= least || variance <= f64::MIN_POSITIVE {
            break;
        }
        let explained: f64 =
            weights.iter().zip(covariances[1..lag].iter().rev()).map(|(w, c)| w * c).sum();
        let reflection = (covariances[lag] - explained) / variance;
        let turned: Vec<f64> = weights.iter().rev().copied().collect();
        for (weight, other) in weights.iter_mut().zip(turned) {
            *weight -= reflection * other;
        }
        weights.push(reflection);
        variance *= 1.0 - reflection * reflection;
    }
    (weights, variance.max(0.0))
}

fn dot(weights: &[f64], values: &VecDeque<f64>) -> f64 {
    weights.iter().zip(values).map(|(weight, value)| weight * value).sum()
}

/// Square root by Newton's method: `core` has none for fractions.
fn root(square: f64) -> f64 {
    if square.is_nan() || square <= 0.0 {
        return 0.0;
    }
    // Half of the exponent is a first guess within a factor of two.
    let mut root = f64::from_bits((square.to_bits() >> 1) + (1023 << 51));
    for _ in 0..6 {
        root = (root + square / root) / 2.0;
    }
    root
}

/// Less tells of no deviation.
const LEAST_SAMPLES: usize = 8;
/// The one-sided 95 % quantile of the normal distribution: where to begin.
const FIRST_DEPTH: f64 = 1.645;
/// A bound that is missed comes down by this part of a deviation: one miss in twenty keeps it where it is.
const PACE: f64 = 0.1;
/// A series that was constant and is no more makes any number of deviations; no bound follows that.
const MOST_DEPTH: f64 = 16.0;

#[cfg(test)]
mod tests;
