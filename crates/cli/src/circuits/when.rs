//! Times on the command line.

use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;

/// A point in time, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So much later than now: `+2h`.
    After(Duration),
    /// RFC 3339: `2027-03-01T22:00Z`, `2027-03-01T22:00:30+01:00`.
    At(Timestamp),
}

impl When {
    /// The time it means if it is `now`.
    pub(crate) fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::After(delay) => now.checked_add(delay).map_or(Timestamp::MAX, |time| time),
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(delay) = text.strip_prefix('+') {
            return parse_time(delay).map(Self::After);
        }
        text.parse().map(Self::At).map_err(|_| {
            format!(
                "expected a time like 2027-03-01T22:00Z or +2h, not {text}: with Z or an offset"
            )
        })
    }
}

/// Reads `90s`, `2h`, `30d`, or a number of seconds.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let unit = if is_number { "s" } else { "" };
    longhaul_circuits::service::config::time("time", &format!("{text}{unit}")).map_err(|_| {
        let text = if text.is_empty() { "nothing" } else { text };
        format!("expected a time like 90s, 15min, 2h or 30d, or seconds, not {text}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_delays() {
        let now: Timestamp = "2026-11-21T09:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("+2h", "2026-11-21T11:00:00Z"),
            ("+90s", "2026-11-21T09:01:30Z"),
            ("+90", "2026-11-21T09:01:30Z"),
            ("2027-03-01T22:00Z", "2027-03-01T22:00:00Z"),
            ("2027-03-01T22:00:30+01:00", "2027-03-01T21:00:30Z"),
        ] {
            assert_eq!(text.parse::<When>().unwrap().from(now).to_string(), expected, "{text}");
        }
        for wrong in [
            "",
            "+",
            "tomorrow",
            "2027-03-01T22:00",
            "22:00",
            "+2 weeks",
            "+-2h",
            "+1.5",
            "+99999999999",
        ] {
            assert!(wrong.parse::<When>().is_err(), "{wrong}");
        }
    }
}
