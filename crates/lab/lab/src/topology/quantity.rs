//! Quantities as configuration files have them: text with a unit, for `deserialize_with`.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A quantity written as text, like `"1Gbps"`.
///
/// # Errors
/// What the type expects, and the text.
pub fn required<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
}

/// A quantity that may be absent.
///
/// # Errors
/// Errors of [`required`].
pub fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    required(deserializer).map(Some)
}

/// A time, as [`parse_time`] reads it.
///
/// # Errors
/// Errors of [`parse_time`].
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_time(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// A time that may be absent.
///
/// # Errors
/// Errors of [`parse_time`].
pub fn optional_time<'de, D>(deserializer: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    time(deserializer).map(Some)
}

/// Reads `100ms`, `1.5 s`, `250us`; up to an hour.
///
/// # Errors
/// What is expected, in words.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    parse_time_up_to(text, 3600)
}

/// As [`parse_time`], up to `most` seconds.
///
/// # Errors
/// What is expected, in words.
pub fn parse_time_up_to(text: &str, most: u32) -> Result<Duration, String> {
    let wrong = || format!("expected a time like 100ms or 0.5s, up to {most}s, not {text:?}");
    let time = longhaul_units::parse_time(text).map_err(|_| wrong())?;
    if time > Duration::from_secs(most.into()) { Err(wrong()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly() {
        assert_eq!(parse_time("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_time("0.3 ms"), Ok(Duration::from_micros(300)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("0us"), Ok(Duration::ZERO));
        for wrong in ["", "100", "ms", "1.2.3s", "3601s", "1h", "-1s", "1e9s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
