use crate::text::number;

/// The meaning of a direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Beside it, with the unit.
    pub label: String,
    /// The scale, by which values become places.
    pub scale: Scale,
    /// First and last value; from the data if there is none.
    pub range: Option<(f64, f64)>,
}

/// A scale: it turns values into places.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm; what is not above zero lies on the edge.
    Log,
    /// Names at equal distances: values are their numbers.
    Names(Vec<String>),
}

impl Axis {
    /// Evenly divided; from zero where all values are positive.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, range: None }
    }

    /// Logarithmic.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log, range: None }
    }

    /// Names at equal distances.
    pub fn names(label: impl Into<String>, names: Vec<String>) -> Self {
        Self { label: label.into(), scale: Scale::Names(names), range: None }
    }

    /// The same, from `first` to `last`.
    #[must_use]
    pub fn from_to(self, first: f64, last: f64) -> Self {
        Self { range: Some((first, last)), ..self }
    }

    /// The same with room for these values, unless its range is set.
    #[must_use]
    pub fn around(&self, values: impl Iterator<Item = f64>) -> Self {
        if self.range.is_some() {
            return self.clone();
        }
        let log = self.scale == Scale::Log;
        let fits = |value: &f64| value.is_finite() && (!log || *value > 0.0);
        let (low, high) = values
            .filter(fits)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let range = match &self.scale {
            Scale::Names(names) => (-0.5, names.len().max(1) as f64 - 0.5),
            _ if low > high => (0.1, 1.0),
            Scale::Log => (low / LOG_ROOM, high * LOG_ROOM),
            Scale::Linear if low >= 0.0 => (0.0, if high > 0.0 { high * ROOM } else { 1.0 }),
            Scale::Linear => (low * ROOM, high.max(0.0) * ROOM),
        };
        Self { range: Some(range), ..self.clone() }
    }

    /// From 0 at the first value of the range to 1 at the last.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let (first, last) = self.range.unwrap_or((0.0, 1.0));
        let share = match self.scale {
            Scale::Log => (value.max(first) / first).ln() / (last / first).ln(),
            _ => (value - first) / (last - first),
        };
        share.clamp(0.0, 1.0)
    }

    /// Round values within the range, with their texts.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let (first, last) = self.range.unwrap_or((0.0, 1.0));
        let within = |value: &f64| (first..=last).contains(value);
        match &self.scale {
            Scale::Names(names) => {
                names.iter().enumerate().map(|(n, name)| (n as f64, name.clone())).collect()
            }
            Scale::Log => {
                let decades = (last / first).log10();
                let steps: &[f64] = if decades > WIDE { &[1.0] } else { &[1.0, 2.0, 5.0] };
                (-9..=12)
                    .flat_map(|d| steps.iter().map(move |step| step * 10f64.powi(d)))
                    .filter(within)
                    .map(|value| (value, number(value)))
                    .collect()
            }
            Scale::Linear => {
                let rough = (last - first) / STEPS;
                let decade = 10f64.powf(rough.log10().floor());
                let factors = [1.0, 2.0, 5.0, 10.0];
                let step = factors.map(|f| f * decade).into_iter().find(|step| *step >= rough);
                let step = step.unwrap_or(rough);
                let from = (first / step).ceil() as i64;
                let values = (from..from + 2 * STEPS as i64).map(|n| n as f64 * step);
                // What is next to the end by rounding belongs to it.
                values
                    .filter(|value| *value <= last + step * 1e-6)
                    .map(|value| (value, number(value)))
                    .collect()
            }
        }
    }
}

/// Above the highest value.
const ROOM: f64 = 1.05;
const LOG_ROOM: f64 = 1.2;
/// Decades beyond which only their beginnings are marked.
const WIDE: f64 = 2.4;
/// Ticks of a linear axis, about.
const STEPS: f64 = 5.0;
