use core::fmt;
use core::str::FromStr;

/// A probability in parts per billion, so that a run is the same on every machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Probability(u32);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0);
    /// Always.
    pub const ONE: Self = Self(ONE_PPB);

    /// `ppb` parts per billion; 10^9 and more mean always.
    pub const fn from_ppb(ppb: u32) -> Self {
        Self(if ppb > ONE_PPB { ONE_PPB } else { ppb })
    }

    /// `ppm` parts per million; 10^6 and more mean always.
    pub const fn from_ppm(ppm: u32) -> Self {
        Self::from_ppb(ppm.saturating_mul(1_000))
    }

    /// `percent` parts per hundred; 100 and more mean always.
    pub const fn from_percent(percent: u32) -> Self {
        Self::from_ppb(percent.saturating_mul(10_000_000))
    }

    /// One in `count`, rounded down to a whole part per billion; always when `count` is zero.
    pub const fn one_in(count: u32) -> Self {
        match ONE_PPB.checked_div(count) {
            Some(ppb) => Self(ppb),
            None => Self::ONE,
        }
    }

    /// Parts per billion, 0 to 10^9.
    pub const fn as_ppb(self) -> u32 {
        self.0
    }

    /// Probability that the event does not happen.
    pub const fn complement(self) -> Self {
        Self(ONE_PPB - self.0)
    }

    /// As a fraction of 2^64, rounded down; certainty is the largest value.
    pub(crate) const fn as_fixed(self) -> u64 {
        if self.0 == ONE_PPB {
            return u64::MAX;
        }
        (((self.0 as u128) << 64) / ONE_PPB as u128) as u64
    }
}

/// Why a probability could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseProbabilityError {
    /// Not a decimal number with one of the known units.
    #[error("expected a probability like 0.1%, 0.001 or 250ppm")]
    Malformed,
    /// More than certain.
    #[error("a probability is at most 1 (100%)")]
    AboveOne,
    /// Not zero, but less than one part per billion.
    #[error("a probability is zero or at least one in 10^9")]
    TooSmall,
}

impl FromStr for Probability {
    type Err = ParseProbabilityError;

    /// Reads `0.1%`, `250ppm`, `20 ppb` or a plain fraction like `0.001`. What is finer than one
    /// part per billion is cut off.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let (number, places) = UNITS
            .iter()
            .find_map(|&(unit, places)| Some((text.strip_suffix(unit)?.trim_end(), places)))
            .unwrap_or((text, 9));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() && fraction.is_empty() || !digits(whole) || !digits(fraction) {
            return Err(ParseProbabilityError::Malformed);
        }
        let mut ppb = 0u64;
        let mut finer = false;
        let kept = fraction.bytes().chain(core::iter::repeat(b'0')).take(places);
        for digit in whole.bytes().chain(kept) {
            ppb = ppb.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
        }
        if let Some(rest) = fraction.get(places..) {
            finer = rest.bytes().any(|digit| digit != b'0');
        }
        let one = u64::from(ONE_PPB);
        if ppb > one || ppb == one && finer {
            return Err(ParseProbabilityError::AboveOne);
        }
        if ppb == 0 && finer {
            return Err(ParseProbabilityError::TooSmall);
        }
        Ok(Self(ppb as u32))
    }
}

impl fmt::Display for Probability {
    /// Exact, in percent: `0.1%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut part) = (self.0 / 10_000_000, self.0 % 10_000_000);
        if part == 0 {
            return write!(f, "{whole}%");
        }
        let mut width = 7;
        while part % 10 == 0 {
            part /= 10;
            width -= 1;
        }
        write!(f, "{whole}.{part:0width$}%")
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const ONE_PPB: u32 = 1_000_000_000;

/// Units and the decimal places by which a number of them is finer than a part per billion.
const UNITS: [(&str, usize); 3] = [("%", 7), ("ppm", 3), ("ppb", 0)];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        for (text, ppb) in [
            ("0", 0),
            ("0%", 0),
            ("0.1%", 1_000_000),
            (".5 %", 5_000_000),
            ("100%", 1_000_000_000),
            ("1", 1_000_000_000),
            ("0.001", 1_000_000),
            ("250ppm", 250_000),
            ("1.5ppm", 1_500),
            ("20 ppb", 20),
            ("0.0000000019", 1),
        ] {
            assert_eq!(text.parse(), Ok(Probability::from_ppb(ppb)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        use ParseProbabilityError::{AboveOne, Malformed, TooSmall};
        for (text, error) in [
            ("", Malformed),
            ("%", Malformed),
            (".", Malformed),
            ("-1%", Malformed),
            ("+1%", Malformed),
            ("1e-3", Malformed),
            ("1.2.3", Malformed),
            ("often", Malformed),
            ("101%", AboveOne),
            ("1.0000000001", AboveOne),
            ("99999999999999999999999", AboveOne),
            ("0.0000000001", TooSmall),
            ("0.5ppb", TooSmall),
        ] {
            assert_eq!(text.parse::<Probability>(), Err(error), "{text}");
        }
    }

    #[test]
    fn shows_percent() {
        assert_eq!(Probability::from_ppm(1_000).to_string(), "0.1%");
        assert_eq!(Probability::ONE.to_string(), "100%");
        assert_eq!(Probability::ZERO.to_string(), "0%");
        assert_eq!(Probability::from_ppb(1).to_string(), "0.0000001%");
        assert_eq!(Probability::one_in(8).to_string(), "12.5%");
    }

    #[test]
    fn certainty_is_the_limit() {
        assert_eq!(Probability::from_percent(u32::MAX), Probability::ONE);
        assert_eq!(Probability::one_in(0), Probability::ONE);
        assert_eq!(Probability::ONE.complement(), Probability::ZERO);
        assert_eq!(Probability::from_percent(50).as_fixed(), 1 << 63);
    }

    proptest! {
        #[test]
        fn text_round_trips(ppb in 0u32..=1_000_000_000) {
            let probability = Probability::from_ppb(ppb);
            prop_assert_eq!(probability.to_string().parse(), Ok(probability));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".*") {
            let _ = text.parse::<Probability>();
        }
    }
}
