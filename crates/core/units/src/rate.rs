use core::fmt;
use core::ops::{Add, Sub};
use core::str::FromStr;
use core::time::Duration;

use crate::quantity::{self, ParseQuantityError};

/// A rate in bits per second, counted at the IP layer (headers included) unless a name says
/// goodput. Integer, so that controllers are deterministic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// Nothing may be sent.
    pub const ZERO: Self = Self(0);
    /// No limit.
    pub const MAX: Self = Self(u64::MAX);

    /// A rate of `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// A rate of `kbps` kilobits (1000 bits) per second.
    pub const fn from_kbps(kbps: u64) -> Self {
        Self(kbps * 1_000)
    }

    /// A rate of `mbps` megabits (10^6 bits) per second.
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps * 1_000_000)
    }

    /// A rate of `gbps` gigabits (10^9 bits) per second.
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps * 1_000_000_000)
    }

    /// The rate at which `bytes` pass in `time`; [`Rate::MAX`] when no time passed.
    pub fn from_bytes_over(bytes: u64, time: Duration) -> Self {
        let nanos = time.as_nanos();
        if nanos == 0 {
            return Self::MAX;
        }
        Self(narrow(u128::from(bytes) * 8 * 1_000_000_000 / nanos))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Whole bytes that pass in `time`, saturating.
    pub fn bytes_in(self, time: Duration) -> u64 {
        narrow(u128::from(self.0).saturating_mul(time.as_nanos()) / 8_000_000_000)
    }

    /// Time that `bytes` need, rounded down to a nanosecond; 584 years at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::from_nanos(u64::MAX);
        }
        Duration::from_nanos(narrow(u128::from(bytes) * 8_000_000_000 / u128::from(self.0)))
    }

    /// This rate times `numerator / denominator`, saturating. `denominator` must not be zero.
    pub const fn scale(self, numerator: u32, denominator: u32) -> Self {
        let scaled = self.0 as u128 * numerator as u128 / denominator as u128;
        Self(if scaled > u64::MAX as u128 { u64::MAX } else { scaled as u64 })
    }
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

impl Add for Rate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Rate {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl FromStr for Rate {
    type Err = ParseQuantityError;

    /// Reads `1.6Gbps`, `800 Mb/s`, `1.6Gbit`, `500k` or a plain number of bits per second. Prefixes are
    /// decimal; a capital `B` after the prefix means bytes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (value, unit) =
            quantity::parse(text, &["bps", "bit/s", "bits/s", "bit", "bits", "b/s", "b", ""], LIKE)
                .map(|value| (value, 1))
                .or_else(|error| match error {
                    ParseQuantityError::TooLarge => Err(error),
                    _ => quantity::parse(text, &["Bps", "B/s", "B"], LIKE).map(|value| (value, 8)),
                })?;
        Ok(Self(value.checked_mul(unit).ok_or(ParseQuantityError::TooLarge)?))
    }
}

impl fmt::Display for Rate {
    /// Three significant digits: `1.60 Gb/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAX {
            return f.pad("unlimited");
        }
        quantity::display(f, self.0, "b/s")
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A rate as it is written.
const LIKE: &str = "1.6Gbps";

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn bytes_and_time_agree() {
        let rate = Rate::from_gbps(1);
        assert_eq!(rate.bytes_in(Duration::from_micros(12)), 1_500);
        assert_eq!(rate.time_for(1_500), Duration::from_micros(12));
        assert_eq!(Rate::from_bytes_over(1_500, Duration::from_micros(12)), rate);
    }

    #[test]
    fn extremes_do_not_panic() {
        assert_eq!(Rate::MAX.time_for(1), Duration::ZERO);
        assert_eq!(Rate::ZERO.time_for(1), Duration::from_nanos(u64::MAX));
        assert_eq!(Rate::MAX.bytes_in(Duration::MAX), u64::MAX);
        assert_eq!(Rate::from_bytes_over(1, Duration::ZERO), Rate::MAX);
        assert_eq!(Rate::MAX.scale(5, 4), Rate::MAX);
    }

    #[test]
    fn parses_what_people_write() {
        for (text, bps) in [
            ("1.6Gbps", 1_600_000_000),
            ("800 Mb/s", 800_000_000),
            ("1.6Gbit", 1_600_000_000),
            ("500k", 500_000),
            ("64000", 64_000),
            ("125MB/s", 1_000_000_000),
            ("10Gbit/s", 10_000_000_000),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().as_bps(), bps, "{text}");
        }
        for text in ["", "fast", "-1Gbps", "1.2.3M", "1e99G", "99999999999999G"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["99999999Tbps", "9999999TB/s"] {
            assert_eq!(text.parse::<Rate>(), Err(ParseQuantityError::TooLarge), "{text}");
        }
    }

    #[test]
    fn shows_three_digits() {
        assert_eq!(Rate::from_bps(1_600_000_000).to_string(), "1.60 Gb/s");
        assert_eq!(Rate::from_bps(945_678_000).to_string(), "946 Mb/s");
        assert_eq!(Rate::from_bps(999).to_string(), "999 b/s");
        assert_eq!(Rate::from_bps(999_999).to_string(), "1.00 Mb/s");
        assert_eq!(Rate::MAX.to_string(), "unlimited");
    }
}
