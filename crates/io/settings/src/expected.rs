//! Words for the values that are expected.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// An address of this host.
pub(crate) const ADDRESS: &str = "one address, in quotes";

/// A whole number of this range.
pub(crate) fn whole<T: Display>(range: &RangeInclusive<T>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}
