//! Values of options: how they are read, and the help of those that are many.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use longhaul::{CarrierChoice, MEMORY_LEAST, Protect};
use longhaul_rate_control::{Parameter, Profile};
use longhaul_settings::WrongValue;
use longhaul_units::{Bytes, ParseQuantityError};

use crate::circuits::when;
use crate::location;

/// `--protect`.
pub(crate) fn protect() -> impl TypedValueParser<Value = Protect> {
    one_of([
        ("aead", "Encrypted and authenticated", Protect::Aead),
        ("integrity", "Authenticated, not secret", Protect::Integrity),
        ("clear", "Neither on the way; hashes still find every changed byte", Protect::Clear),
    ])
}

/// `--path`.
pub(crate) fn path() -> impl TypedValueParser<Value = &'static str> {
    one_of([
        ("shared", "Others, who get their share", "path=shared"),
        ("dedicated", "Nobody: all of it may be taken", "path=dedicated"),
    ])
}

/// `--carrier`.
pub(crate) fn carrier() -> impl TypedValueParser<Value = CarrierChoice> {
    one_of([
        ("auto", "UDP where it passes", CarrierChoice::Auto),
        ("udp", "UDP or nothing", CarrierChoice::Udp),
        ("tcp", "TCP connections", CarrierChoice::Tcp),
    ])
}

/// `--fsync`.
pub(crate) fn fsync() -> impl TypedValueParser<Value = bool> {
    one_of([
        ("end", "Before a file is called done", true),
        ("never", "Left to the operating system: faster, and lost with its memory", false),
    ])
}

/// Values by name, each with its help.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = values.map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).try_map(move |text| {
        let value = values.iter().find(|(name, ..)| *name == text).map(|(.., value)| *value);
        value.ok_or("no such value")
    })
}

/// Profiles, each with its description.
pub(crate) fn profile_help() -> String {
    let mut help = "Whole protocol: how losses are repaired, and what sets the rate:".to_owned();
    for profile in Profile::all() {
        help += &format!("\n  {:<11} {}", profile.name, profile.description);
    }
    help
}

/// Parameters of profiles, each with its range.
pub(crate) fn parameters_help() -> String {
    let mut help = "One of the profile's parameters; may be given several times:".to_owned();
    for profile in Profile::all() {
        for parameter in profile.controller.parameters() {
            let Parameter { name, about, unit, default, least, most } = parameter;
            let (default, range) = (unit.show_bound(*default), unit.range(*least, *most));
            help += &format!("\n  {}: {name}={default}, {range}: {about}", profile.name);
        }
    }
    help
}

/// A round trip: up to a minute.
pub(crate) fn parse_time(text: &str) -> Result<std::time::Duration, String> {
    longhaul_lab::parse_time_up_to(text, 60)
}

/// Ports, from the first to the last.
pub(crate) fn ports(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let wrong = |_| format!("expected ports from 1 to 65535, like 50000-50100, not {text}");
    let (first, last) =
        (location::number(first).map_err(wrong)?, location::number(last).map_err(wrong)?);
    if first > last {
        return Err(format!("{last} is before {first}"));
    }
    Ok((first, last))
}

/// A time in a file of settings.
pub(crate) fn written_time(text: &str) -> Result<std::time::Duration, WrongValue> {
    when::parse_time(text).map_err(WrongValue::new)
}

/// A time between lines of progress.
pub(crate) fn period(text: &str) -> Result<std::time::Duration, String> {
    match when::parse_time(text)? {
        std::time::Duration::ZERO => Err(format!("{text} is no time between lines: like 30s")),
        period => Ok(period),
    }
}

/// A number of things.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number like 100, not {text}"))
}

/// A number of lanes.
pub(crate) fn lanes(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to 64, like 4, not {text}"))
}

/// Hundredths.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse();
    number.map_err(|_| format!("expected percent, as a number like 2.5, not {text}"))
}

/// Memory for data that is under way.
pub(crate) fn memory(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: ParseQuantityError| error.to_string())?;
    if bytes < MEMORY_LEAST {
        return Err("a transfer takes at least 64MiB".into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let ms = std::time::Duration::from_millis;
        assert_eq!(parse_time("100ms"), Ok(ms(100)));
        assert_eq!(parse_time("0.5 s"), Ok(ms(500)));
        assert_eq!(parse_time("250us"), Ok(std::time::Duration::from_micros(250)));
        for wrong in ["", "100", "ms", "1.2.3s", "61s", "1h", "-1s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(period("30s"), Ok(ms(30_000)));
        assert!(period("0s").unwrap_err().contains("no time between lines"));
    }

    #[test]
    fn what_is_written_wrongly_is_shown_with_an_example() {
        for (error, like) in [
            (count("many").err(), "like 100, not many"),
            (lanes("65").err(), "from 1 to 64, like 4, not 65"),
            (percent("some").err(), "like 2.5, not some"),
            (period("a").err(), "like 90s, 15min, 2h or 30d, or seconds, not a"),
            (ports("some").err(), "like 50000-50100, not some"),
            (memory("1.6Gbps").err(), "like 12MB"),
        ] {
            assert!(error.as_ref().is_some_and(|it| it.ends_with(like)), "{error:?}");
        }
        assert_eq!(lanes("64"), Ok(64));
        assert_eq!((percent("2%"), ports("7000")), (Ok(2.0), Ok((7000, 7000))));
    }
}
