use crate::repair::{ChunkSizes, Repair};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use longhaul_units::{Dscp, Duration, Instant, Rate, shown};

use crate::controller::{Controller, ControllerConfig, Known, Start};
use crate::controllers::{
    AutoConfig, BbrConfig, CubicConfig, FixedConfig, FobsConfig, FobsLinearConfig, FobsStateConfig,
    LambdaStreamConfig, PaptcConfig, PccConfig, RapidConfig, SabulConfig, ScavengerConfig,
    TrcConfig, TsunamiConfig, UdtConfig, UnlimitedConfig,
};
use crate::parameters::{Parameters, WrongParameter, nearest};

/// A whole protocol under a name. It is of the connection: HELLO names it and both ends play it, or
/// there is no connection.
#[derive(Debug)]
pub struct Profile {
    /// Name for `--profile` and in HELLO.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// Kind of repair of losses.
    pub repair: Repair,
    /// Schedule of a receiver's reports.
    pub feedback: FeedbackSchedule,
    /// Controller that sets the rate.
    pub controller: &'static (dyn ControllerConfig + Sync),
    /// True if the receiving host's abilities bound the rate, too. Where the paper sends at one rate,
    /// whatever happens, they do not.
    pub heeds_receiver: bool,
    /// Part of the receiver beside receiving; known to both ends by the profile's name.
    pub receiver_part: ReceiverPart,
    /// True if its controller slows down for marks of congestion (ECN). Only then packets are sent
    /// ECN-capable (docs/protocol.md 5.4.2): who asks for marks has to heed them (RFC 3168).
    pub heeds_marks: bool,
    /// Treatment that its packets ask of the network.
    pub dscp: Dscp,
    /// True if the user has to choose a rate.
    pub needs_rate: bool,
}

/// Part of a receiver beside receiving (docs/host-awareness.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverPart {
    /// Nothing: the paper's receiver reports what came.
    None,
    /// Both ends watch their own host, and the receiving one tells what it can take before it loses
    /// anything (docs/protocol.md 5.4.3, 5.11).
    Monitor,
    /// RAPID's performance monitor, which suspends the sender.
    Rapid,
    /// PAPTC's model, which predicts the rate that it can process.
    Paptc,
}

/// Frequency of a receiver's reports while packets arrive (docs/protocol.md 5.4).
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
    /// Schedule of profiles which name no other.
    pub const USUAL: Self = Self {
        per_round_trip: 8,
        least: Duration::from_micros(250),
        most: Duration::from_millis(10),
    };

    /// PAPTC's acknowledgements, "after a carefully selected period of time": a quarter of a round trip. They say
    /// all that its four types do: with nothing missing they are NXT, else RXM; those that its timer sends, TNT and TMO.
    pub const PAPTC: Self = Self {
        per_round_trip: 4,
        least: Duration::from_millis(1),
        most: Duration::from_millis(40),
    };

    /// The same, with this time between two reports whatever the round trip; itself where that is zero.
    fn each(self, interval: Duration) -> Self {
        let interval =
            if interval.is_zero() { return self } else { interval.max(Self::USUAL.least) };
        Self { least: interval, most: interval, ..self }
    }

    /// Time between two reports on a path of this round trip.
    pub fn interval(&self, round_trip: Duration) -> Duration {
        (round_trip / self.per_round_trip).clamp(self.least, self.most)
    }
}

impl Profile {
    /// Least rate that a user may choose: a packet of 1000 bytes a second. Below it nothing would seem to move,
    /// and the user has forgotten the unit.
    pub const RATE_LEAST: Rate = Rate::from_kbps(8);
    /// No socket sends faster, nor does any link: a greater one is taken for this.
    pub const RATE_MOST: Rate = Rate::from_gbps(1_000);

    /// Profile of lanes on a booked circuit.
    pub const CIRCUIT: &'static Self = &TRC;

    /// The profile of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Every profile, the default first.
    pub fn all() -> &'static [Self] {
        PROFILES
    }

    /// The names, the default first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|profile| profile.name)
    }

    /// The profile that somebody wishes, here or at the other end: the default where no name is
    /// given, with parameters written `name=value`. A rate above [`Self::RATE_MOST`] is taken for that.
    ///
    /// # Errors
    ///
    /// [`Unplayable`]: there is none of that name, `rate` lacks or is below [`Self::RATE_LEAST`], or a
    /// parameter is not its own, out of bounds, given twice or at odds with another.
    pub fn wished<'a>(
        name: Option<&str>,
        rate: Option<Rate>,
        parameters: impl IntoIterator<Item = &'a str>,
    ) -> Result<ChosenProfile, Unplayable> {
        let profile = match name {
            None => &PROFILES[0],
            Some(name) => Self::by_name(name).ok_or_else(|| Unplayable::Unknown(shown(name)))?,
        };
        if profile.needs_rate && rate.is_none() {
            return Err(Unplayable::MissingRate(profile.name));
        }
        if let Some(rate) = rate.filter(|rate| *rate < Self::RATE_LEAST) {
            return Err(Unplayable::Slow(rate));
        }
        let rate = rate.map(|rate| rate.min(Self::RATE_MOST));
        let mut chosen = ChosenProfile { profile, rate, ..ChosenProfile::of(profile) };
        let wrong = |why| Unplayable::Parameter(WrongParameter { profile: profile.name, why });
        let mut given = Vec::new();
        for text in parameters {
            let name = chosen.parameters.set(profile.name, text).map_err(Unplayable::Parameter)?;
            if given.contains(&name) {
                return Err(wrong(format!("{name} is given twice, at last as {text}")));
            }
            given.push(name);
        }
        let at_odds = chosen.parameters.at_odds(profile.controller.ordered());
        at_odds.map_or(Ok(chosen), |why| Err(wrong(why)))
    }
}

/// A profile with what was chosen about it: what both ends of a connection play.
#[derive(Clone, Debug)]
pub struct ChosenProfile {
    /// Which one.
    pub profile: &'static Profile,
    /// The user's rate: a limit, at which some profiles send, and which others take for the link.
    pub rate: Option<Rate>,
    /// Its parameters.
    pub parameters: Parameters,
}

impl ChosenProfile {
    fn of(profile: &'static Profile) -> Self {
        Self { profile, rate: None, parameters: Parameters::of(profile.controller.parameters()) }
    }

    /// Kind of repair, with the sizes that were chosen.
    pub fn repair(&self) -> Repair {
        match self.profile.repair {
            Repair::Chunks(_) => Repair::Chunks(ChunkSizes {
                segment: self.parameters.get("segment"),
                chunk: self.parameters.get("chunk"),
                overlap: self.parameters.get("overlap"),
            }),
            other => other,
        }
    }

    /// Schedule of a receiver's reports, with the time that was chosen.
    pub fn feedback(&self) -> FeedbackSchedule {
        match self.profile.receiver_part {
            ReceiverPart::Paptc => self.profile.feedback.each(self.parameters.time("acknowledge")),
            _ => self.profile.feedback,
        }
    }

    /// A new controller for full packets of `packet` bytes, on a path of which nothing is known, or
    /// what a controller left there.
    pub fn controller(
        &self,
        now: Instant,
        packet: u64,
        known: Option<Known>,
    ) -> Box<dyn Controller> {
        let Self { profile, rate, ref parameters } = *self;
        let parameters = parameters.clone();
        profile.controller.build(&Start { now, packet, rate, known, parameters })
    }

    /// Returns whether its rate is a reservation, which belongs to one path: a limit is divided among several.
    pub fn is_reserved(&self) -> bool {
        self.profile.controller.is_reserved()
    }
}

/// Reason for which a profile cannot be played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unplayable {
    /// There is none of that name.
    Unknown(String),
    /// It sends at the user's rate, but none was chosen.
    MissingRate(&'static str),
    /// The user's rate is below [`Profile::RATE_LEAST`].
    Slow(Rate),
    /// It has no such parameter, or not with that value.
    Parameter(WrongParameter),
}

impl fmt::Display for Unplayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let near = nearest(name, Profile::names()).unwrap_or_default();
                write!(f, "there is no profile {name}; nearest: {near}; all:")?;
                let mut names = Profile::names().enumerate();
                names
                    .try_for_each(|(i, name)| write!(f, "{} {name}", if i == 0 { "" } else { "," }))
            }
            Self::MissingRate(name) => {
                write!(f, "profile {name} sends at the rate that you choose: give one with --rate")
            }
            Self::Slow(rate) => write!(
                f,
                "{rate} is not one small packet a second; a rate is a number with its unit, as in \
                 --rate 1Gbps"
            ),
            Self::Parameter(wrong) => wrong.fmt(f),
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
    receiver_part: ReceiverPart::None,
    heeds_marks: false,
    dscp: Dscp::BestEffort,
    needs_rate: true,
};

const SABUL: Profile = Profile {
    name: "sabul",
    description: "SABUL: a constant step down for each round trip with more than 0.1 % lost; --rate is \
                  taken for the link",
    repair: Repair::Continuous,
    feedback: FeedbackSchedule::USUAL,
    controller: &SabulConfig,
    heeds_receiver: false,
    receiver_part: ReceiverPart::None,
    heeds_marks: false,
    dscp: Dscp::BestEffort,
    needs_rate: false,
};

const TSUNAMI: Profile = Profile {
    name: "tsunami",
    description: "Tsunami UDP: your rate, and slower while more than 15 % are missing",
    repair: Repair::Continuous,
    feedback: FeedbackSchedule::USUAL,
    controller: &TsunamiConfig,
    heeds_receiver: false,
    receiver_part: ReceiverPart::None,
    heeds_marks: false,
    dscp: Dscp::BestEffort,
    needs_rate: true,
};

const LAMBDASTREAM: Profile = Profile {
    name: "lambdastream",
    description: "LambdaStream: a constant rate, lower as soon as packets arrive further apart than they \
                  left; --rate is taken for the link",
    repair: Repair::Continuous,
    feedback: FeedbackSchedule::USUAL,
    controller: &LambdaStreamConfig,
    heeds_receiver: false,
    receiver_part: ReceiverPart::None,
    heeds_marks: false,
    dscp: Dscp::BestEffort,
    needs_rate: false,
};

const UDT: Profile = Profile {
    name: "udt",
    description: "UDT 4: rises each 10 ms by what is left of the link, falls by a ninth where \
                  packets are lost",
    repair: Repair::Continuous,
    feedback: FeedbackSchedule::USUAL,
    controller: &UdtConfig,
    heeds_receiver: false,
    receiver_part: ReceiverPart::None,
    heeds_marks: false,
    dscp: Dscp::BestEffort,
    needs_rate: false,
};

const RAPID: Profile = Profile {
    name: "rapid",
    description: "RAPID: rbudp, and the receiver suspends the sender before it loses its processor",
    repair: Repair::Rounds,
    feedback: FeedbackSchedule::USUAL,
    controller: &RapidConfig,
    heeds_receiver: false,
    receiver_part: ReceiverPart::Rapid,
    heeds_marks: false,
    dscp: Dscp::BestEffort,
    needs_rate: true,
};

const PAPTC: Profile = Profile {
    name: "paptc",
    description: "PAPTC: steps towards the rate that the receiver predicts it can process, at most your \
                  rate, that of a dedicated link",
    repair: Repair::Continuous,
    feedback: FeedbackSchedule::PAPTC,
    controller: &PaptcConfig,
    heeds_receiver: false,
    receiver_part: ReceiverPart::Paptc,
    heeds_marks: false,
    dscp: Dscp::BestEffort,
    needs_rate: true,
};

static PROFILES: &[Profile] = &[
    Profile {
        name: "auto",
        description: "finds the rate that path and receiver can take, and shares the path",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &AutoConfig {},
        heeds_receiver: true,
        receiver_part: ReceiverPart::Monitor,
        heeds_marks: true,
        dscp: Dscp::BestEffort,
        needs_rate: false,
    },
    Profile {
        name: "cubic",
        description: "CUBIC (RFC 9438), as TCP of most systems has it; a reference",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &CubicConfig,
        heeds_receiver: true,
        receiver_part: ReceiverPart::None,
        heeds_marks: true,
        dscp: Dscp::BestEffort,
        needs_rate: false,
    },
    Profile {
        name: "bbr",
        description: "BBR version 3: bandwidth and round trip as a model; bears chance loss up to 2 %",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &BbrConfig,
        heeds_receiver: true,
        receiver_part: ReceiverPart::None,
        heeds_marks: true,
        dscp: Dscp::BestEffort,
        needs_rate: false,
    },
    Profile {
        name: "pcc",
        description: "PCC Vivace: tries rates, and goes where throughput, delay and loss are worth most",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &PccConfig,
        heeds_receiver: true,
        receiver_part: ReceiverPart::None,
        heeds_marks: true,
        dscp: Dscp::BestEffort,
        needs_rate: false,
    },
    Profile {
        name: "scavenger",
        description: "LEDBAT++: takes what others leave, and makes room as soon as packets wait",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &ScavengerConfig,
        heeds_receiver: true,
        receiver_part: ReceiverPart::Monitor,
        heeds_marks: true,
        dscp: Dscp::LowerEffort,
        needs_rate: false,
    },
    Profile {
        name: "fixed",
        description: "sends at your rate, or what the receiver takes; for dedicated capacity",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &FixedConfig::DEFAULT,
        heeds_receiver: true,
        receiver_part: ReceiverPart::None,
        heeds_marks: false,
        dscp: Dscp::BestEffort,
        needs_rate: true,
    },
    Profile {
        name: "fobs",
        description: "FOBS: changes between fobs-linear, fobs-state and auto as path and receiver \
                      change; --rate is taken for the link",
        repair: Repair::Chunks(ChunkSizes::FOBS),
        feedback: FeedbackSchedule::USUAL,
        controller: &FobsConfig,
        heeds_receiver: false,
        receiver_part: ReceiverPart::None,
        heeds_marks: false,
        dscp: Dscp::BestEffort,
        needs_rate: false,
    },
    Profile {
        name: "fobs-linear",
        description: "FOBS, gentle: one linear step after each 100 MB, and a memory of which \
                      rates lose packets; --rate is taken for the link",
        repair: Repair::Chunks(ChunkSizes::FOBS),
        feedback: FeedbackSchedule::USUAL,
        controller: &FobsLinearConfig,
        heeds_receiver: false,
        receiver_part: ReceiverPart::None,
        heeds_marks: false,
        dscp: Dscp::BestEffort,
        needs_rate: false,
    },
    Profile {
        name: "fobs-state",
        description: "FOBS, brisk: three states with rates and steps of their own, judged after \
                      each 10,000 packets; --rate is taken for the link",
        repair: Repair::Chunks(ChunkSizes::FOBS),
        feedback: FeedbackSchedule::USUAL,
        controller: &FobsStateConfig,
        heeds_receiver: false,
        receiver_part: ReceiverPart::None,
        heeds_marks: false,
        dscp: Dscp::BestEffort,
        needs_rate: false,
    },
    LAMBDASTREAM,
    PAPTC,
    RAPID,
    Profile {
        name: "rbudp",
        description: "Reliable Blast UDP: sends all at your rate, then what was missing, in rounds",
        repair: Repair::Rounds,
        feedback: FeedbackSchedule::USUAL,
        controller: &FixedConfig::DEFAULT,
        heeds_receiver: false,
        receiver_part: ReceiverPart::None,
        heeds_marks: false,
        dscp: Dscp::BestEffort,
        needs_rate: true,
    },
    SABUL,
    TRC,
    TSUNAMI,
    UDT,
    Profile {
        name: "unlimited",
        description: "no rate control at all; for tests on paths that belong to you",
        repair: Repair::Continuous,
        feedback: FeedbackSchedule::USUAL,
        controller: &UnlimitedConfig,
        heeds_receiver: false,
        receiver_part: ReceiverPart::None,
        heeds_marks: false,
        dscp: Dscp::BestEffort,
        needs_rate: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use longhaul_units::{Bottleneck, Instant};

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
        let rbudp = |rate| Profile::wished(Some("rbudp"), rate, []);
        assert_eq!(rbudp(None).unwrap_err(), Unplayable::MissingRate("rbudp"));
        let chosen = rbudp(Some(Rate::from_gbps(2))).unwrap();
        let controller = chosen.controller(Instant::ZERO, 1500, None);
        assert_eq!(controller.pacing().rate, Rate::from_gbps(2));
    }

    #[test]
    fn whose_rate_is_a_reservation_says_so_as_its_controller_does() {
        let rate = Some(Rate::from_mbps(3));
        for profile in Profile::all() {
            let chosen = Profile::wished(Some(profile.name), rate, []).unwrap();
            let bound = chosen.controller(Instant::ZERO, 1500, None).metrics().bound;
            assert_eq!(chosen.is_reserved(), bound == Bottleneck::Reservation, "{}", profile.name);
        }
        assert!(Profile::wished(Some("trc"), rate, []).unwrap().is_reserved());
    }

    #[test]
    fn what_cannot_be_played_is_refused_by_name() {
        let rate = Some(Rate::from_mbps(3));
        let name = |wish, rate| Profile::wished(wish, rate, []).map(|chosen| chosen.profile.name);
        assert_eq!(name(None, None), Ok("auto"));
        assert_eq!(name(Some("rbudp"), rate), Ok("rbudp"));
        assert_eq!(name(Some("rbudp"), None), Err(Unplayable::MissingRate("rbudp")));
        for slow in [Rate::ZERO, Rate::from_bps(7_999)] {
            assert_eq!(name(Some("fixed"), Some(slow)), Err(Unplayable::Slow(slow)));
            assert_eq!(name(None, Some(slow)), Err(Unplayable::Slow(slow)), "as a limit, too");
        }
        let fastest = Profile::wished(Some("fixed"), Some(Rate::MAX), []).unwrap();
        assert_eq!(fastest.rate, Some(Profile::RATE_MOST));
        let other = name(Some("of\nanother version"), rate).unwrap_err().to_string();
        assert!(other.contains("another version") && !other.contains('\n'), "{other}");
        let all: Vec<&str> = Profile::names().collect();
        assert!(other.ends_with(&all.join(", ")), "{other}");
        let near = name(Some("rbdup"), rate).unwrap_err().to_string();
        assert!(near.contains("nearest: rbudp;"), "{near}");
        let near = name(Some("FOBS"), rate).unwrap_err().to_string();
        assert!(near.contains("nearest: fobs;"), "{near}");
        let none = Profile::wished(Some("fixed"), rate, ["step=3"]).unwrap_err();
        assert_eq!(none.to_string(), "profile fixed has no parameters, so no step either");
    }

    #[test]
    fn parameters_that_contradict_each_other_are_refused() {
        let wish = |name, parameters: &[&'static str]| {
            let parameters = parameters.iter().copied();
            Profile::wished(Some(name), None, parameters).map_err(|wrong| wrong.to_string()).err()
        };
        let twice = wish("auto", &["path=shared", "path=dedicated"]).unwrap();
        assert!(twice.ends_with("path is given twice, at last as path=dedicated"), "{twice}");
        let odds = wish("fobs-state", &["green-floor=90%", "green-ceiling=80%"]).unwrap();
        assert!(odds.ends_with("green-floor (90%) is above green-ceiling (80%)"), "{odds}");
        assert_eq!(wish("fobs-state", &["green-floor=80%", "green-ceiling=80%"]), None);
    }

    #[test]
    fn reports_come_eight_times_a_round_trip_within_bounds() {
        let interval = |ms| FeedbackSchedule::USUAL.interval(Duration::from_millis(ms));
        assert_eq!(interval(1), Duration::from_micros(250));
        assert_eq!(interval(40), Duration::from_millis(5));
        assert_eq!(interval(300), Duration::from_millis(10));
        let chosen = |parameters: &[&'static str]| {
            let rate = Some(Rate::from_gbps(1));
            Profile::wished(Some("paptc"), rate, parameters.iter().copied()).unwrap().feedback()
        };
        assert_eq!(chosen(&[]), FeedbackSchedule::PAPTC);
        let each = chosen(&["acknowledge=200ms"]);
        for ms in [1, 1_000] {
            assert_eq!(each.interval(Duration::from_millis(ms)), Duration::from_millis(200));
        }
    }
}
