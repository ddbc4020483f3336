//! Parts of sentences.

use longhaul_plot::number;

use crate::measure::Measure;
use crate::record::Record;
use crate::statistics::Estimate;

/// Why there is nothing of a contender.
pub(super) fn absence(records: &[&Record], name: &str) -> Option<String> {
    let without = records.iter().find(|one| one.contender == name && one.why.is_some())?;
    let why = without.why.as_deref().unwrap_or_default();
    Some(format!("{}: {}: {}.", capital(name), without.verdict.name(), why.lines().next()?))
}

/// `2.1 to 2.3 in 5 runs`.
pub(super) fn interval(estimate: &Estimate) -> String {
    match estimate.count {
        1 => "one run".into(),
        count => format!("{} to {} in {count} runs", number(estimate.low), number(estimate.high)),
    }
}

/// The better of two values comes first.
pub(super) fn order(by: Measure, a: f64, b: f64) -> std::cmp::Ordering {
    if by.more_is_better() { b.total_cmp(&a) } else { a.total_cmp(&b) }
}

/// As a sentence begins.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
