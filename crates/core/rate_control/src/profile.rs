use alloc::boxed::Box;
use core::fmt;

use crate::{
    AutoConfig, Controller, ControllerConfig, FixedConfig, Start, TrcConfig, UnlimitedConfig,
};

/// A whole protocol under a name: how losses are repaired, and what sets the rate.
#[derive(Debug)]
pub struct Profile {
    /// What `--profile` takes.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// How losses are repaired.
    pub repair: Repair,
    /// Whether the user has to choose a rate.
    pub needs_rate: bool,
    factory: fn(&Start) -> Box<dyn Controller>,
}

/// How losses are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Repair {
    /// Lost bytes go out again as soon as their loss is known.
    Continuous,
    /// Everything is sent once, then everything that was missing, until nothing is (RBUDP).
    BlastRounds,
}

impl Profile {
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

    /// A new controller.
    ///
    /// # Errors
    ///
    /// [`MissingRate`] if the profile needs the user's rate and `start` has none.
    pub fn controller(&self, start: &Start) -> Result<Box<dyn Controller>, MissingRate> {
        if self.needs_rate && start.rate.is_none() {
            return Err(MissingRate { profile: self.name });
        }
        Ok((self.factory)(start))
    }
}

/// The profile sends at the user's rate, but none was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissingRate {
    /// The profile.
    pub profile: &'static str,
}

impl fmt::Display for MissingRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "profile {} sends at the rate that you choose: give one with --rate",
            self.profile
        )
    }
}

impl core::error::Error for MissingRate {}

static PROFILES: [Profile; 5] = [
    Profile {
        name: "auto",
        description: "finds the rate that path and receiver can take, and shares the path",
        repair: Repair::Continuous,
        needs_rate: false,
        factory: |start| AutoConfig::default().build(start),
    },
    Profile {
        name: "fixed",
        description: "sends at your rate and repairs continuously; for dedicated capacity",
        repair: Repair::Continuous,
        needs_rate: true,
        factory: |start| FixedConfig::default().build(start),
    },
    Profile {
        name: "rbudp",
        description: "Reliable Blast UDP: sends all at your rate, then what was missing, in rounds",
        repair: Repair::BlastRounds,
        needs_rate: true,
        factory: |start| FixedConfig::default().build(start),
    },
    Profile {
        name: "trc",
        description: "VBTP: follows the rates of a booked circuit in small bursts; without a \
                      booking, a circuit of your rate",
        repair: Repair::Continuous,
        needs_rate: true,
        factory: |start| TrcConfig::default().build(start),
    },
    Profile {
        name: "unlimited",
        description: "no rate control at all; for tests on paths that belong to you",
        repair: Repair::Continuous,
        needs_rate: false,
        factory: |start| UnlimitedConfig.build(start),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::{Instant, Rate};

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
        assert_eq!(profile.controller(&start).unwrap_err(), MissingRate { profile: "rbudp" });
        start.rate = Some(Rate::from_gbps(2));
        assert_eq!(profile.controller(&start).unwrap().pacing().rate, Rate::from_gbps(2));
    }
}
