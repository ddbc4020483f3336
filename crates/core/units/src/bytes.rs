use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;

use crate::quantity::{self, ParseQuantityError};

/// A number of bytes. Bits never have this type; see [`crate::rate::Rate`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `count` bytes.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// `count` times 2^20 bytes.
    pub const fn from_mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl FromStr for Bytes {
    type Err = ParseQuantityError;

    /// Reads `12MB` (decimal), `8MiB` (binary), `500k` or a plain count.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        quantity::parse(text, &["B", "", "b"], "12MB").map(Self)
    }
}

impl fmt::Display for Bytes {
    /// Three significant digits, decimal prefixes: `12.0 MB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quantity::display(f, self.0, "B")
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn decimal_and_binary_prefixes() {
        assert_eq!("12MB".parse(), Ok(Bytes::new(12_000_000)));
        assert_eq!("8MiB".parse(), Ok(Bytes::from_mib(8)));
        assert_eq!("1.5 GB".parse(), Ok(Bytes::new(1_500_000_000)));
        assert_eq!("1448".parse(), Ok(Bytes::new(1_448)));
        assert_eq!("12 MW".parse::<Bytes>(), Err(ParseQuantityError::Malformed { like: "12MB" }));
        assert_eq!(Bytes::new(12_000_000).to_string(), "12.0 MB");
    }
}
