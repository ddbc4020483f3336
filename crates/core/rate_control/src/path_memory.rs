//! History of a path from earlier transfers, and conclusions from it.

use longhaul_units::{Duration, Rate};

/// Observations of one transfer on a path, for those that come after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observation {
    /// Rate that the path delivered: the best of its last rounds in which there was enough to send.
    pub rate: Rate,
    /// The path bounded the rate for the longest time; else it may carry more.
    pub by_path: bool,
    /// The least round trip.
    pub round_trip: Duration,
    /// IP-layer bytes of a full packet.
    pub packet: u64,
    /// Share of packets lost by chance, parts per million.
    pub chance_ppm: u32,
}

/// An [`Observation`], and how far back it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remembered {
    /// The observation.
    pub seen: Observation,
    /// Time since it was made.
    pub age: Duration,
    /// Difference between the times of day, then and now; at most twelve hours.
    pub hours_apart: Duration,
    /// The profile that it was made under, if this program has it.
    pub profile: Option<&'static str>,
}

/// History of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathMemory {
    /// Least and largest rate that it carried lately, at this time of day where that is known: the safe
    /// band.
    pub band: (Rate, Rate),
    /// The least round trip.
    pub round_trip: Duration,
    /// Share of packets lost by chance, parts per million.
    pub chance_ppm: u32,
    /// IP-layer bytes of a full packet.
    pub packet: u64,
    /// Time since it was seen last.
    pub age: Duration,
    /// Of the profiles under which the path was what bounded the rate, the one that brought most on
    /// average; of equals the one that was used last.
    pub best_profile: Option<&'static str>,
}

impl Observation {
    /// Returns whether both may be of one route: their round trips differ by less than a factor of two.
    fn is_alike(&self, other: &Self) -> bool {
        let (one, other) = (self.round_trip, other.round_trip);
        one < other.saturating_mul(2) && other < one.saturating_mul(2)
    }
}

impl PathMemory {
    /// Sums up `remembered`, the newest first; nothing if nothing of it is young enough.
    pub fn of(remembered: &[Remembered]) -> Option<Self> {
        let young = remembered.iter().filter(|one| one.age < FORGOTTEN).take(NEWEST);
        let newest = young.clone().next()?;
        let young = young.filter(|one| newest.seen.is_alike(&one.seen));
        let same_hour = |one: &&Remembered| one.hours_apart <= HOURS;
        let known_hour = young.clone().any(|one| same_hour(&one));
        let chosen = young.filter(|one| !known_hour || same_hour(one));
        // What was slow for another reason shows no bound of the path.
        let by_path = chosen.clone().any(|one| one.seen.by_path);
        let rates = chosen.clone().filter(|one| one.seen.by_path == by_path);
        let rates = rates.map(|one| one.seen.rate);
        let (least, most) = (rates.clone().min()?, rates.max()?);
        let least = if by_path { least } else { most };
        let round_trip = chosen.clone().map(|one| one.seen.round_trip).min()?;
        let chance_ppm = chosen.clone().map(|one| one.seen.chance_ppm).max()?;
        let Remembered { age, seen: Observation { packet, .. }, .. } = *newest;
        let best_profile = best_profile(chosen);
        Some(Self { band: (least, most), round_trip, chance_ppm, packet, age, best_profile })
    }

    /// The rate to build on: the least of the band, halved for each week that it was not seen.
    pub fn rate(&self) -> Rate {
        let weeks = u32::try_from(self.age.as_secs() / HALVED.as_secs()).unwrap_or(u32::MAX);
        Rate::from_bps(self.band.0.as_bps().checked_shr(weeks).unwrap_or(0))
    }

    /// Returns whether a path of this round trip may be the one that is remembered (RFC 9959, Reconnaissance
    /// Phase): over half and at most ten times that one's.
    pub fn fits(&self, round_trip: Duration) -> bool {
        round_trip > self.round_trip / 2 && round_trip <= self.round_trip.saturating_mul(10)
    }
}

/// As [`PathMemory::best_profile`], of what was made on one route, the newest first.
fn best_profile<'a>(seen: impl Iterator<Item = &'a Remembered> + Clone) -> Option<&'static str> {
    let of = seen.filter(|one| one.seen.by_path);
    let mean = |name: &str| {
        let under = of.clone().filter(|one| one.profile == Some(name));
        let (sum, count) = under.fold((0, 0), |(sum, count), one| {
            (sum + u128::from(one.seen.rate.as_bps()), count + 1)
        });
        sum / count.max(1)
    };
    of.clone().filter_map(|one| one.profile).fold(None, |best: Option<&'static str>, name| {
        match best {
            Some(best) if mean(best) >= mean(name) => Some(best),
            _ => Some(name),
        }
    })
}

/// Age from which an observation does not count.
pub const FORGOTTEN: Duration = Duration::from_secs(30 * DAY);
/// Networks change slowly; half of the known rate is not trusted twice as long.
const HALVED: Duration = Duration::from_secs(7 * DAY);
/// So near in the time of day, a path is used alike.
const HOURS: Duration = Duration::from_secs(3 * 3_600);
/// Observations that are looked at: one slow transfer is forgotten after so many others.
const NEWEST: usize = 8;
const DAY: u64 = 24 * 3_600;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(mbps: u64, days: u64, hours_apart: u64) -> Remembered {
        let seen = Observation {
            rate: Rate::from_mbps(mbps),
            by_path: true,
            round_trip: Duration::from_millis(100),
            packet: 1_500,
            chance_ppm: 0,
        };
        let hours_apart = Duration::from_secs(hours_apart * 3_600);
        let age = Duration::from_secs(days * DAY);
        Remembered { seen, age, hours_apart, profile: Some("auto") }
    }

    #[test]
    fn the_profile_that_brought_most_is_known() {
        let under = |profile, mbps| Remembered { profile, ..seen(mbps, 0, 0) };
        let best = |of: &[Remembered]| PathMemory::of(of).unwrap().best_profile;
        let (auto, state) = (Some("auto"), Some("fobs-state"));
        assert_eq!(best(&[under(auto, 900), under(state, 910)]), state);
        assert_eq!(best(&[under(auto, 900), under(state, 910), under(auto, 930)]), auto, "mean");
        assert_eq!(best(&[under(auto, 900), under(state, 900)]), auto, "used last");
        assert_eq!(best(&[under(None, 900)]), None, "of a newer program");
        let mut limited = under(state, 990);
        limited.seen.by_path = false;
        assert_eq!(best(&[under(auto, 900), limited]), auto);
    }

    fn rate(remembered: &[Remembered]) -> Option<Rate> {
        PathMemory::of(remembered).map(|memory| memory.rate())
    }

    #[test]
    fn the_least_rate_of_this_time_of_day_is_built_on() {
        assert_eq!(rate(&[]), None);
        let busy = [seen(900, 0, 9), seen(300, 1, 2), seen(400, 2, 1)];
        assert_eq!(rate(&busy), Some(Rate::from_mbps(300)));
        let band = PathMemory::of(&busy).unwrap().band;
        assert_eq!(band, (Rate::from_mbps(300), Rate::from_mbps(400)));
        assert_eq!(rate(&[seen(900, 0, 9), seen(700, 1, 8)]), Some(Rate::from_mbps(700)));
    }

    #[test]
    fn what_something_else_held_back_says_only_that_the_path_carries_so_much() {
        let slow = |mbps, by_path| {
            let one = seen(mbps, 0, 0);
            Remembered { seen: Observation { by_path, ..one.seen }, ..one }
        };
        assert_eq!(rate(&[slow(10, false), slow(900, true)]), Some(Rate::from_mbps(900)));
        assert_eq!(rate(&[slow(10, false), slow(50, false)]), Some(Rate::from_mbps(50)));
    }

    #[test]
    fn another_route_is_not_mixed_with_the_newest() {
        let far = seen(100, 1, 0);
        let round_trip = Duration::from_millis(20);
        let near = Remembered { seen: Observation { round_trip, ..seen(900, 0, 0).seen }, ..far };
        let memory = PathMemory::of(&[near, far, far]).unwrap();
        assert_eq!((memory.rate(), memory.round_trip), (Rate::from_mbps(900), round_trip));
        assert_eq!(rate(&[far, near]), Some(Rate::from_mbps(100)));
    }

    #[test]
    fn trust_fades_and_ends() {
        assert_eq!(rate(&[seen(800, 6, 0)]), Some(Rate::from_mbps(800)));
        assert_eq!(rate(&[seen(800, 7, 0)]), Some(Rate::from_mbps(400)));
        assert_eq!(rate(&[seen(800, 29, 0)]), Some(Rate::from_mbps(50)));
        assert_eq!(rate(&[seen(800, 30, 0)]), None);
        let far = PathMemory { age: Duration::MAX, ..PathMemory::of(&[seen(1, 0, 0)]).unwrap() };
        assert_eq!(far.rate(), Rate::ZERO);
    }

    #[test]
    fn a_path_is_known_by_its_round_trip() {
        let memory = PathMemory::of(&[seen(1, 0, 0)]).unwrap();
        let fits = |ms| memory.fits(Duration::from_millis(ms));
        assert!(!fits(50) && fits(51) && fits(1_000) && !fits(1_001));
    }
}
