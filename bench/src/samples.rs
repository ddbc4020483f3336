//! Samples of transfers, rows of them, and their medians.

/// One transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Payload or file data.
    pub bytes: u64,
    /// Duration.
    pub seconds: f64,
    /// CPU-seconds of the sending end, where known. On one machine the sender's calls also do much
    /// of the network stack's work of the receiving end.
    pub cpu_send: Option<f64>,
    /// CPU-seconds of the receiving end, where known.
    pub cpu_receive: Option<f64>,
    /// CPU-seconds of a program between the ends.
    pub cpu_relay: Option<f64>,
    /// A remark for the reader.
    pub note: Option<String>,
}

impl Sample {
    /// Bits per second.
    pub fn goodput(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 }
    }

    fn per_gigabyte(&self, cpu: Option<f64>) -> Option<f64> {
        cpu.filter(|_| self.bytes > 0).map(|cpu| cpu * 1e9 / self.bytes as f64)
    }
}

/// A transfer that is repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Short and stable.
    pub name: &'static str,
    /// The work: what is encrypted, authenticated and hashed.
    pub work: &'static str,
    /// One a run.
    pub samples: Vec<Sample>,
}

impl Row {
    /// Median bits per second.
    pub fn goodput(&self) -> f64 {
        median(self.samples.iter().map(Sample::goodput)).unwrap_or(0.0)
    }

    /// Median seconds.
    pub fn seconds(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.seconds)).unwrap_or(0.0)
    }

    /// Median CPU-seconds of the sending end per 10^9 bytes.
    pub fn cpu_send(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.per_gigabyte(sample.cpu_send)))
    }

    /// Median CPU-seconds of the receiving end per 10^9 bytes.
    pub fn cpu_receive(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.per_gigabyte(sample.cpu_receive)))
    }

    /// Median CPU-seconds of a program between the ends per 10^9 bytes.
    pub fn cpu_relay(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.per_gigabyte(sample.cpu_relay)))
    }
}

/// The speed of one core at one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Name of the row.
    pub name: &'static str,
    /// Per second: bytes, or tags.
    pub unit: &'static str,
    /// One a run.
    pub samples: Vec<f64>,
}

impl Speed {
    /// The median.
    pub fn median(&self) -> f64 {
        median(self.samples.iter().copied()).unwrap_or(0.0)
    }
}

/// A row without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmeasured {
    /// Name of the row.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Of an even number the mean of the middle two.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0, 1.0, 9.0].into_iter()), Some(3.0));
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
    }
}
