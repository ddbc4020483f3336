//! Parts, rates and times as people write them.

use std::time::Duration;

use longhaul_settings::{WrongValue, wrong_value};
use longhaul_units::Rate;

use crate::ledger::Rules;

pub(super) fn parts(name: &str, part: f64) -> Result<u32, WrongValue> {
    match (0.0..=1000.0).contains(&part) {
        true => Ok((part * 1e6).round() as u32),
        false => Err(wrong_value!("{name}: expected a part like 0.25")),
    }
}

pub(super) fn rate(name: &str, text: &str) -> Result<u64, WrongValue> {
    let rate: Rate = text.parse().map_err(|error| wrong_value!("{name}: {text}: {error}"))?;
    match rate.as_bps() {
        0 => Err(wrong_value!("{name}: a rate of zero")),
        bps => Ok(bps),
    }
}

pub(super) fn channels(name: &str, text: &str, rules: &Rules) -> Result<u32, WrongValue> {
    let channels = rate(name, text)? / rules.channel_bps;
    match u32::try_from(channels) {
        Ok(0) => {
            Err(wrong_value!("{name}: {text} is less than a channel ({} b/s)", rules.channel_bps))
        }
        Ok(channels) => Ok(channels),
        Err(_) => {
            Err(wrong_value!("{name}: {text} is more than 2^32 channels: choose wider channels"))
        }
    }
}

/// Reads `10ms`, `90s`, `2h`, `30d`, also as `30 days`.
pub fn time(name: &str, text: &str) -> Result<Duration, WrongValue> {
    let wrong = || wrong_value!("{name}: expected a time like 10ms, 90s, 2h or 30d, not {text:?}");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let nanos: u64 = match unit.trim_start() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hour" | "hours" => 3_600_000_000_000,
        "d" | "day" | "days" => 86_400_000_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(nanos).map(Duration::from_nanos).ok_or_else(wrong)
}

/// The same, but not nothing.
pub(super) fn some_time(name: &str, text: &str) -> Result<Duration, WrongValue> {
    match time(name, text)? {
        Duration::ZERO => Err(wrong_value!("{name}: {text} is no time at all")),
        time => Ok(time),
    }
}
