//! The figures of a profile that somebody may choose: what they are, how they are read, and their
//! form on the wire.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use longhaul_units::{Bytes, Duration, Rate, parse_time};

/// One figure of a profile that its source leaves open, or that somebody may want to try otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Name for `--param` and in HELLO.
    pub name: &'static str,
    /// Effect, in one line for people.
    pub about: &'static str,
    /// Unit of its figure.
    pub unit: Unit,
    /// The default figure.
    pub default: u64,
    /// The least figure that is played,
    pub least: u64,
    /// and the greatest.
    pub most: u64,
}

impl Parameter {
    /// A share, in parts per million: the least, the usual and the greatest.
    pub(crate) const fn ppm(
        name: &'static str,
        about: &'static str,
        (least, default, most): (u64, u64, u64),
    ) -> Self {
        Self { name, about, unit: Unit::Share, default, least, most }
    }

    /// A number, likewise.
    pub(crate) const fn count(
        name: &'static str,
        about: &'static str,
        (least, default, most): (u64, u64, u64),
    ) -> Self {
        Self { name, about, unit: Unit::Count, default, least, most }
    }
}

/// Unit of a [`Parameter`]'s figure, and how people write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Parts per million, written as `0.5%` or as the factor `0.005`.
    Share,
    /// Bits per second at the IP layer, written as `5Mbps`.
    Rate,
    /// Nanoseconds, written as `10ms`.
    Time,
    /// Bytes, written as `100MB`.
    Size,
    /// A number of whatever the parameter says.
    Count,
    /// Which of these words, written as the word.
    Choice(&'static [&'static str]),
}

impl Unit {
    fn read(self, text: &str) -> Option<u64> {
        match self {
            Self::Share => match text.strip_suffix('%') {
                Some(percent) => decimal(percent, 4),
                None => decimal(text, 6),
            },
            Self::Rate => text.parse().ok().map(Rate::as_bps),
            Self::Time => u64::try_from(parse_time(text).ok()?.as_nanos()).ok(),
            Self::Size => text.parse().ok().map(Bytes::get),
            Self::Count => text.parse().ok(),
            Self::Choice(words) => words.iter().position(|word| *word == text).map(|at| at as u64),
        }
    }

    /// The figure as [`Parameters::set`] reads it again, to the last digit.
    pub fn exact(self, figure: u64) -> String {
        match self {
            Self::Share | Self::Choice(_) => self.show(figure),
            Self::Time => format!("{figure}ns"),
            Self::Rate | Self::Size | Self::Count => figure.to_string(),
        }
    }

    /// The figure for people, to three digits.
    pub fn show(self, figure: u64) -> String {
        match self {
            Self::Share => {
                let text = format!("{}.{:04}", figure / 10_000, figure % 10_000);
                format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
            }
            Self::Rate => Rate::from_bps(figure).to_string(),
            Self::Time => format!("{:?}", Duration::from_nanos(figure)),
            Self::Size => Bytes::new(figure).to_string(),
            Self::Count => figure.to_string(),
            Self::Choice(words) => {
                let word = usize::try_from(figure).ok().and_then(|at| words.get(at));
                word.map_or(String::new(), |word| (*word).to_string())
            }
        }
    }

    /// Range of values between `least` and `most`, for people.
    pub fn range(self, least: u64, most: u64) -> String {
        match self {
            Self::Choice(words) => words.join(" or "),
            _ => format!("from {} to {}", self.show_bound(least), self.show_bound(most)),
        }
    }

    /// As [`Unit::show`] where three digits are all, else to the last one: rounded up, a bound would lie
    /// beyond itself.
    pub fn show_bound(self, figure: u64) -> String {
        let shown = self.show(figure);
        if self.read(&shown) == Some(figure) { shown } else { self.exact(figure) }
    }
}

/// A decimal number times ten to the power of `places`; more places than that are refused.
fn decimal(text: &str, places: usize) -> Option<u64> {
    let (whole, below) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || below.len() > places || !digits(whole) || !digits(below) {
        return None;
    }
    format!("{whole}{below:0<places$}").parse().ok()
}

/// The figures of one profile: those that were chosen, and the defaults of the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    known: &'static [Parameter],
    figures: Vec<u64>,
}

/// A parameter that a profile does not have, or not with that value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongParameter {
    /// The profile.
    pub profile: &'static str,
    /// Explanation for people.
    pub why: String,
}

impl fmt::Display for WrongParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Parameters {
    /// The defaults.
    pub fn of(known: &'static [Parameter]) -> Self {
        Self { known, figures: known.iter().map(|parameter| parameter.default).collect() }
    }

    /// Sets one, written `name=value` as people write it; gives its name.
    ///
    /// # Errors
    ///
    /// `profile` has none of that name (the nearest is offered), or the value is not of its unit or
    /// beyond its bounds.
    pub fn set(
        &mut self,
        profile: &'static str,
        text: &str,
    ) -> Result<&'static str, WrongParameter> {
        let wrong = |why| WrongParameter { profile, why };
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.trim().is_empty())
            .ok_or_else(|| wrong(format!("a parameter is written NAME=VALUE, not {text}")))?;
        let (name, value) = (name.trim(), value.trim());
        let index = self.index(name).ok_or_else(|| wrong(self.unknown(profile, name)))?;
        let Parameter { name, unit, least, most, .. } = self.known[index];
        let figure = unit.read(value).filter(|figure| (least..=most).contains(figure));
        self.figures[index] = figure
            .ok_or_else(|| wrong(format!("{name} is {}, not {value}", unit.range(least, most))))?;
        Ok(name)
    }

    /// Explains what is wrong where the first of two names has a greater figure than the second.
    pub(crate) fn at_odds(&self, ordered: &[(&str, &str)]) -> Option<String> {
        let (low, high) = ordered.iter().find(|(low, high)| self.get(low) > self.get(high))?;
        let shown = |name: &str| {
            let at = self.index(name)?;
            Some(self.known[at].unit.show_bound(self.figures[at]))
        };
        Some(format!("{low} ({}) is above {high} ({})", shown(low)?, shown(high)?))
    }

    fn unknown(&self, profile: &str, name: &str) -> String {
        let names = self.known.iter().map(|parameter| parameter.name);
        match nearest(name, names) {
            None => format!("profile {profile} has no parameters, so no {name} either"),
            Some(nearest) => {
                format!("profile {profile} has no parameter {name}; nearest: {nearest}")
            }
        }
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.known.iter().position(|parameter| parameter.name == name)
    }

    /// The figure of that name, in the parameter's unit.
    ///
    /// # Panics
    ///
    /// If the profile declares none of that name.
    pub fn get(&self, name: &str) -> u64 {
        self.figures[self.index(name).expect("controllers read what their profile declares")]
    }

    /// As [`Parameters::get`], of a [`Unit::Share`]: parts per million, none of which is four thousand
    /// times the whole.
    pub(crate) fn share(&self, name: &str) -> u32 {
        u32::try_from(self.get(name)).unwrap_or(u32::MAX)
    }

    /// As [`Parameters::get`], of a [`Unit::Rate`].
    pub fn rate(&self, name: &str) -> Rate {
        Rate::from_bps(self.get(name))
    }

    /// As [`Parameters::get`], of a [`Unit::Time`].
    pub fn time(&self, name: &str) -> Duration {
        Duration::from_nanos(self.get(name))
    }

    /// Those that are not the default, as [`Parameters::set`] reads each, with spaces between: what
    /// HELLO carries (docs/protocol.md 2.4). `None` where all are.
    pub fn for_peer(&self) -> Option<String> {
        let figures = self.known.iter().zip(&self.figures);
        let chosen = figures.filter(|(parameter, figure)| **figure != parameter.default);
        let words: Vec<String> = chosen
            .map(|(parameter, figure)| {
                format!("{}={}", parameter.name, parameter.unit.exact(*figure))
            })
            .collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// Of `names`, that which differs from `wanted` by the fewest letters put in, left out or changed
/// (Levenshtein), whatever their case.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    names.min_by_key(|name| distance(&wanted, name))
}

fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    static KNOWN: [Parameter; 6] = {
        const fn parameter(name: &'static str, unit: Unit, bounds: (u64, u64, u64)) -> Parameter {
            let (least, default, most) = bounds;
            Parameter { name, about: "", unit, default, least, most }
        }
        [
            parameter("threshold", Unit::Share, (0, 5_000, 1_000_000)),
            parameter("step", Unit::Rate, (1, 5_000_000, 1 << 40)),
            parameter("interval", Unit::Time, (1_000, 10_000_000, 1 << 40)),
            parameter("chunk", Unit::Size, (1, 100_000_000, 1 << 40)),
            parameter("segment", Unit::Count, (1, 10_000, 1 << 20)),
            parameter("marks", Unit::Choice(&["classic", "l4s"]), (0, 0, 1)),
        ]
    };

    #[test]
    fn figures_are_read_in_their_units_and_written_again_exactly() {
        let mut chosen = Parameters::of(&KNOWN);
        assert_eq!(chosen.for_peer(), None, "all are defaults");
        for text in
            ["threshold=0.125%", "step = 7.5Mbps", "interval=250us", "chunk=8MiB", "marks=l4s"]
        {
            chosen.set("p", text).unwrap();
        }
        assert_eq!(chosen.get("threshold"), 1_250);
        assert_eq!(chosen.rate("step"), Rate::from_kbps(7_500));
        assert_eq!(chosen.time("interval"), Duration::from_micros(250));
        assert_eq!((chosen.get("chunk"), chosen.get("segment")), (8 << 20, 10_000));
        assert_eq!(chosen.get("marks"), 1);
        let mut peer = Parameters::of(&KNOWN);
        let written = chosen.for_peer().unwrap();
        for text in written.split(' ') {
            peer.set("p", text).unwrap();
        }
        assert_eq!(peer, chosen);
        chosen.set("p", "threshold=0.01").unwrap();
        assert_eq!(chosen.get("threshold"), 10_000);
    }

    #[test]
    fn an_error_comes_with_what_would_be_right() {
        let mut chosen = Parameters::of(&KNOWN);
        let mut wrong = |text: &str| chosen.set("p", text).unwrap_err().to_string();
        assert_eq!(wrong("stop=3"), "profile p has no parameter stop; nearest: step");
        assert_eq!(wrong(" =5"), "a parameter is written NAME=VALUE, not  =5");
        assert_eq!(wrong("segment=0"), "segment is from 1 to 1048576, not 0");
        assert_eq!(wrong("threshold=101%"), "threshold is from 0% to 100%, not 101%");
        let beyond = "chunk is from 1 B to 1099511627776, not 1.10TB";
        assert_eq!(wrong("chunk=1.10TB"), beyond, "what is named as a bound is taken");
        assert_eq!(wrong("marks=1"), "marks is classic or l4s, not 1");
        for text in [
            "threshold",
            "threshold=",
            "threshold=-1%",
            "threshold=.5%",
            "segment=1.5",
            "threshold=0.0000001",
            "interval=ms",
            "step=99999999999999999999Gbps",
        ] {
            assert!(!wrong(text).is_empty(), "{text}");
        }
        assert_eq!(chosen, Parameters::of(&KNOWN), "nothing was set");
    }
}
