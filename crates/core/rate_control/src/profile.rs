use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use longhaul_units::{Duration, Rate, shown};

use crate::{
    AutoConfig, Controller, ControllerConfig, FixedConfig, Start, TrcConfig, UnlimitedConfig,
};

/// A whole protocol under a name. It is of the connection: HELLO names it and both ends play it, or
/// there is no connection.
#[derive(Debug)]
pub struct Profile {
    /// What `--profile` takes, and HELLO carries.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// How losses are repaired.
    pub repair: Repair,
    /// When a receiver reports.
    pub feedback: FeedbackSchedule,
    /// What sets the rate.
    pub controller: &'static (dyn ControllerConfig + Sync),
    /// Whether what the receiving host takes bounds the rate, too. Where the paper sends at one rate,
    /// whatever happens, it does not.
    pub heeds_receiver: bool,
    /// Its one parameter: whether the user has to choose a rate.
    pub needs_rate: bool,
}

/// How losses are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// Lost bytes go out again as soon as their loss is known.
    Continuous,
    /// Everything is sent once, then everything that was missing, until nothing is (RBUDP).
    Rounds,
}

/// How often a receiver reports while packets arrive (docs/protocol.md 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedbackSchedule {
    /// So many times a round trip,
    pub per_round_trip: u32,
    /// but not more often than this,
    pub least: Duration,
    /// nor less.
    pub most: Duration,
}

impl FeedbackSchedule {
    /// That of profiles which say nothing else.
    pub const USUAL: Self = Self {
        per_round_trip: 8,
        least: Duration::from_micros(250),
        most: Duration::from_millis(10),
    };

    /// Time between two reports on a path of this round trip.
    pub fn interval(&self, round_trip: Duration) -> Duration {
        (round_trip / self.per_round_trip).clamp(self.least, self.most)
    }
}

impl Profile {
    /// That of lanes on a booked circuit.
    pub const CIRCUIT: &'static Self = &TRC;

    /// The profile of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Every profile, the default first.
    pub fn all() -> &'static [Self] {
        &PROFILES
    }

    /// The names, the default first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|profile| profile.name)
    }

    /// The profile that somebody wishes, here or at the other end: the default where no name is
    /// given.
    ///
    /// # Errors
    ///
    /// [`Unplayable`]: there is none of that name, or `rate` lacks.
    pub fn wished(name: Option<&str>, rate: Option<Rate>) -> Result<&'static Self, Unplayable> {
        let Some(name) = name else { return Ok(&PROFILES[0]) };
        let unknown = || Unplayable::Unknown(shown(name));
        let profile = Self::by_name(name).ok_or_else(unknown)?;
        profile.requires(rate)?;
        Ok(profile)
    }

    /// A new controller.
    ///
    /// # Errors
    ///
    /// [`Unplayable`] if the profile needs the user's rate and `start` has none.
    pub fn controller(&self, start: &Start) -> Result<Box<dyn Controller>, Unplayable> {
        self.requires(start.rate)?;
        Ok(self.controller.build(start))
    }

    fn requires(&self, rate: Option<Rate>) -> Result<(), Unplayable> {
        match rate {
            None if self.needs_rate => Err(Unplayable::MissingRate(self.name)),
            _ => Ok(()),
        }
    }
}

/// Why a profile cannot be played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unplayable {
    /// There is none of that name.
    Unknown(String),
    /// It sends at the user's rate, but none was chosen.
    MissingRate(&'static str),
}

impl fmt::Display for Unplayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(f, "there is no profile {name}; there are")?;
                let mut names = Profile::names().enumerate();
                names
                    .try_for_each(|(i, name)| write!(f, "{} {name}", if i == 0 { "" } else { "," }))
            }
            Self::MissingRate(name) => {
                write!(f, "profile {name} sends at the rate that you choose: give one with --rate")
            }
        }
    }
}

impl core::error::Error for Unplayable {}

const TRC: Profile = Profile {
    name: "trc",
    description: "VBTP: follows the rates of a booked circuit in small bursts; without a \
                  booking, a circuit of your rate",
    repair: Repair::Continuous,
    feedback: FeedbackSchedule::USUAL,
    controller: &TrcConfig::DEFAULT,
    heeds_receiver: false,
    needs_rate: true,
};

static PROFILES: [Profile; 5] = [
    Profile {
        name: "auto",
        description: "finds the rate that path and receiver can take, and shares the path",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &AutoConfig {},
        heeds_receiver: true,
        needs_rate: false,
    },
    Profile {
        name: "fixed",
        description: "sends at your rate, or what the receiver takes; for dedicated capacity",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &FixedConfig::DEFAULT,
        heeds_receiver: true,
        needs_rate: true,
    },
    Profile {
        name: "rbudp",
        description: "Reliable Blast UDP: sends all at your rate, then what was missing, in rounds",
        repair: Repair::Rounds,
        feedback: FeedbackSchedule::USUAL,
        controller: &FixedConfig::DEFAULT,
        heeds_receiver: false,
        needs_rate: true,
    },
    TRC,
    Profile {
        name: "unlimited",
        description: "no rate control at all; for tests on paths that belong to you",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &UnlimitedConfig,
        heeds_receiver: false,
        needs_rate: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use longhaul_units::Instant;

    #[test]
    fn names_are_unique_and_found() {
        for profile in Profile::all() {
            let found = Profile::by_name(profile.name).unwrap();
            assert!(core::ptr::eq(found, profile), "{} is there twice", profile.name);
        }
        assert!(Profile::by_name("tcp").is_none());
    }

    #[test]
    fn rbudp_sends_at_the_users_rate_or_not_at_all() {
        let profile = Profile::by_name("rbudp").unwrap();
        let mut start = Start { now: Instant::ZERO, packet: 1500, rate: None };
        assert_eq!(profile.controller(&start).unwrap_err(), Unplayable::MissingRate("rbudp"));
        start.rate = Some(Rate::from_gbps(2));
        assert_eq!(profile.controller(&start).unwrap().pacing().rate, Rate::from_gbps(2));
    }

    #[test]
    fn what_cannot_be_played_is_refused_by_name() {
        let rate = Some(Rate::from_mbps(3));
        let name = |wish, rate| Profile::wished(wish, rate).map(|profile| profile.name);
        assert_eq!(name(None, None), Ok("auto"));
        assert_eq!(name(Some("rbudp"), rate), Ok("rbudp"));
        assert_eq!(name(Some("rbudp"), None), Err(Unplayable::MissingRate("rbudp")));
        let other = name(Some("of\nanother version"), rate).unwrap_err().to_string();
        assert!(other.contains("another version") && !other.contains('\n'), "{other}");
        assert!(other.ends_with("auto, fixed, rbudp, trc, unlimited"), "{other}");
    }

    #[test]
    fn reports_come_eight_times_a_round_trip_within_bounds() {
        let interval = |ms| FeedbackSchedule::USUAL.interval(Duration::from_millis(ms));
        assert_eq!(interval(1), Duration::from_micros(250));
        assert_eq!(interval(40), Duration::from_millis(5));
        assert_eq!(interval(300), Duration::from_millis(10));
    }
}
