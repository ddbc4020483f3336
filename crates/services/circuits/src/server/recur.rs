//! Occurrences of a recurring request, by a local clock.

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use longhaul_settings::{WrongValue, wrong_value};

use crate::api::Recurring;

/// Start of an occurrence, and when it must be done.
pub(super) type Occurrence = (Timestamp, Option<Timestamp>);

/// All occurrences that begin at `now` or later.
///
/// # Errors
/// Something of it makes no sense.
pub(super) fn occurrences(rule: &Recurring, now: Timestamp) -> Result<Vec<Occurrence>, WrongValue> {
    if rule.count == 0 || rule.count > COUNT_MAX {
        return Err(wrong_value!(
            "count: expected 1 to {COUNT_MAX} occurrences, not {}",
            rule.count
        ));
    }
    let zone = TimeZone::get(&rule.time_zone)
        .map_err(|_| wrong_value!("time_zone: there is no zone {:?}", rule.time_zone))?;
    let at = local_time("at", &rule.at)?;
    let by = rule.by.as_deref().map(|by| local_time("by", by)).transpose()?;
    let days = rule.on.iter().map(|day| weekday(day)).collect::<Result<Vec<_>, _>>()?;
    let mut day = match &rule.first {
        None => now.to_zoned(zone.clone()).date(),
        Some(first) => first
            .parse::<Date>()
            .map_err(|_| wrong_value!("first: expected a day like 2027-03-01, not {first:?}"))?,
    };
    let wrong = |error: jiff::Error| wrong_value!("these times are out of range: {error}");
    let mut found = Vec::new();
    // Each day of the week comes within a week; the first day may have passed already.
    for _ in 0..u64::from(rule.count) * 7 + 8 {
        if days.is_empty() || days.contains(&day.weekday()) {
            let instant = |day: Date, time: Time| -> Result<Timestamp, WrongValue> {
                let zoned = day.to_datetime(time).to_zoned(zone.clone()).map_err(wrong)?;
                Ok(zoned.timestamp())
            };
            let start = instant(day, at)?;
            if start >= now {
                let next = day.checked_add(1.day()).map_err(wrong)?;
                let by = by.map(|by| instant(if by > at { day } else { next }, by)).transpose()?;
                found.push((start, by));
                if found.len() == rule.count as usize {
                    break;
                }
            } else if rule.first.is_some() && found.is_empty() && start < now {
                return Err(wrong_value!("first: {day} {at} has passed"));
            }
        }
        day = day.checked_add(1.day()).map_err(wrong)?;
    }
    Ok(found)
}

fn local_time(name: &str, text: &str) -> Result<Time, WrongValue> {
    let wrong = || wrong_value!("{name}: expected a local time like 22:00, not {text:?}");
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b':');
    let time: Time = text.parse().map_err(|_| wrong())?;
    if digits { Ok(time) } else { Err(wrong()) }
}

fn weekday(text: &str) -> Result<Weekday, WrongValue> {
    Ok(match text {
        "mon" => Weekday::Monday,
        "tue" => Weekday::Tuesday,
        "wed" => Weekday::Wednesday,
        "thu" => Weekday::Thursday,
        "fri" => Weekday::Friday,
        "sat" => Weekday::Saturday,
        "sun" => Weekday::Sunday,
        _ => {
            return Err(wrong_value!(
                "on: expected mon, tue, wed, thu, fri, sat or sun, not {text:?}"
            ));
        }
    })
}

/// More than a year of days.
const COUNT_MAX: u32 = 400;

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(at: &str, by: Option<&str>, first: &str, count: u32) -> Recurring {
        Recurring {
            at: at.into(),
            by: by.map(Into::into),
            time_zone: "Europe/Zurich".into(),
            on: Vec::new(),
            first: Some(first.into()),
            count,
        }
    }

    fn starts(rule: &Recurring) -> Vec<String> {
        let now = "2026-11-21T09:00:00Z".parse().unwrap();
        let found = occurrences(rule, now).unwrap();
        found.into_iter().map(|(start, _)| start.to_string()).collect()
    }

    #[test]
    fn the_local_hour_stays_when_clocks_change() {
        assert_eq!(
            starts(&rule("22:00", None, "2027-03-27", 2)),
            ["2027-03-27T21:00:00Z", "2027-03-28T20:00:00Z"]
        );
        // 02:30 does not exist on 28 March 2027, and is there twice on 31 October.
        assert_eq!(
            starts(&rule("02:30", None, "2027-03-27", 3)),
            ["2027-03-27T01:30:00Z", "2027-03-28T01:30:00Z", "2027-03-29T00:30:00Z"]
        );
        assert_eq!(
            starts(&rule("02:30", None, "2027-10-31", 2)),
            ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]
        );
    }

    #[test]
    fn a_deadline_is_the_next_such_hour() {
        let now = "2026-11-21T09:00:00Z".parse().unwrap();
        let night = occurrences(&rule("22:00", Some("06:00"), "2027-03-27", 1), now).unwrap();
        // Eight hours by the clock, seven in fact.
        assert_eq!(night[0].1.unwrap().to_string(), "2027-03-28T04:00:00Z");
        let day = occurrences(&rule("08:00", Some("09:00"), "2027-03-27", 1), now).unwrap();
        assert_eq!(day[0].1.unwrap().to_string(), "2027-03-27T08:00:00Z");
    }

    #[test]
    fn days_of_the_week_and_what_has_passed_today() {
        let mut weekly = rule("10:30", None, "", 3);
        weekly.first = None;
        weekly.on = vec!["sat".into(), "mon".into()];
        assert_eq!(
            starts(&weekly),
            ["2026-11-21T09:30:00Z", "2026-11-23T09:30:00Z", "2026-11-28T09:30:00Z"]
        );
        weekly.at = "09:30".into();
        assert_eq!(starts(&weekly)[0], "2026-11-23T08:30:00Z");
    }

    #[test]
    fn nonsense_is_refused() {
        let now = "2026-11-21T09:00:00Z".parse().unwrap();
        let good = rule("22:00", None, "2027-03-27", 1);
        for (bad, expected) in [
            (Recurring { time_zone: "Mars/Olympus".into(), ..good.clone() }, "no zone"),
            (Recurring { at: "25:00".into(), ..good.clone() }, "at:"),
            (Recurring { at: "10pm".into(), ..good.clone() }, "at:"),
            (Recurring { by: Some("soon".into()), ..good.clone() }, "by:"),
            (Recurring { on: vec!["Montag".into()], ..good.clone() }, "on:"),
            (Recurring { first: Some("2027-02-30".into()), ..good.clone() }, "first:"),
            (Recurring { first: Some("2020-02-20".into()), ..good.clone() }, "has passed"),
            (Recurring { count: 0, ..good.clone() }, "count"),
            (Recurring { count: 1_000_000, ..good.clone() }, "count"),
            (Recurring { first: Some("9999-12-30".into()), count: 5, ..good }, "out of range"),
        ] {
            let error = occurrences(&bad, now).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
