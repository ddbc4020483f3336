//! `--rate`: one rate, or a timetable.

use jiff::Zoned;
use jiff::civil::Time;
use longhaul::RateSchedule;
use longhaul_rate_control::Profile;
use longhaul_units::Rate;

/// The most that is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum RateChoice {
    /// At any time.
    One(Rate),
    /// From these times of the day on, ascending; nothing for no limit.
    Times(Vec<(Time, Option<Rate>)>),
}

/// As people write it: `1.6Gbps`, or `08:00,200Mbps 19:00,off`.
pub(crate) fn parse(text: &str) -> Result<RateChoice, String> {
    if !text.contains(',') {
        return text
            .parse()
            .map(RateChoice::One)
            .map_err(|error: longhaul_units::ParseQuantityError| error.to_string());
    }
    let mut times = text.split_whitespace().map(from).collect::<Result<Vec<_>, String>>()?;
    times.sort_by_key(|(time, _)| *time);
    match times.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(format!("{} has two rates", pair[0].0.strftime("%H:%M"))),
        None => Ok(RateChoice::Times(times)),
    }
}

fn from(text: &str) -> Result<(Time, Option<Rate>), String> {
    let wrong = || format!("{text:?}: a timetable is written HH:MM,RATE HH:MM,off");
    let (time, rate) = text.split_once(',').ok_or_else(wrong)?;
    let time = Time::strptime("%H:%M", time).map_err(|_| wrong())?;
    if rate == "off" {
        return Ok((time, None));
    }
    let rate: Rate = rate.parse().map_err(|error| format!("{text:?}: {error}"))?;
    match rate < Profile::RATE_LEAST {
        true => Err(format!("{text:?}: at least {}", Profile::RATE_LEAST)),
        false => Ok((time, Some(rate))),
    }
}

impl RateChoice {
    /// One rate for all times.
    pub(crate) fn one(&self) -> Option<Rate> {
        match self {
            Self::One(rate) => Some(*rate),
            Self::Times(_) => None,
        }
    }

    /// That of the time of the day; before the first one it is that of yesterday's last.
    fn at(&self, now: Time) -> Option<Rate> {
        match self {
            Self::One(rate) => Some(*rate),
            Self::Times(times) => {
                let last = times.iter().rev().find(|(time, _)| *time <= now);
                last.or(times.last()).and_then(|(_, rate)| *rate)
            }
        }
    }

    /// By this host's clock and time zone.
    pub(crate) fn schedule(&self) -> Option<RateSchedule> {
        let choice = matches!(self, Self::Times(_)).then(|| self.clone())?;
        Some(RateSchedule::new(move || choice.at(Zoned::now().time())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_or_a_timetable() {
        assert_eq!(parse("1.6Gbps").unwrap().one(), Some(Rate::from_mbps(1600)));
        let day = parse("19:00,off 08:00,200Mbps 12:30,50Mbps").unwrap();
        let at = |hour, minute| day.at(Time::constant(hour, minute, 0, 0));
        assert_eq!((at(0, 0), at(7, 59)), (None, None), "as yesterday at 19:00");
        assert_eq!(
            (at(8, 0), at(12, 29)),
            (Some(Rate::from_mbps(200)), Some(Rate::from_mbps(200)))
        );
        assert_eq!((at(12, 30), at(19, 0)), (Some(Rate::from_mbps(50)), None));
        assert!(day.one().is_none() && day.schedule().is_some());
        assert!(parse("1Gbps").unwrap().schedule().is_none());
        for wrong in [
            "08:00,",
            "8h,1Mbps",
            "25:00,off",
            "08:00,1Mbps 08:00,off",
            "08:00,fast",
            ",",
            "08:00,1bps",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("12MiB!").unwrap_err().ends_with("like 1.6Gbps"));
    }
}
