//! Liveness of a path: it lives if packets on it arrive, or if none are in flight.

use longhaul_units::{Duration, Instant};

use crate::silence::Silence;

/// The life of one path, by what is known to have arrived over it.
#[derive(Clone, Debug)]
pub(crate) struct PathLiveness {
    state: State,
    arrived: u64,
    /// Packets that this host's stack had refused when something arrived last.
    refused: u64,
    /// Time for which the path is not used when it falls silent next.
    rest: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Something arrived; since then nothing has, for so long, while packets were in flight.
    Beats(Silence, Instant),
    /// Nothing came through: it is not used before that time.
    Rests(Instant),
    /// It is used a little again; nothing has come through yet.
    Tried(Silence),
}

impl PathLiveness {
    /// Of a path that is believed to live.
    pub fn new(now: Instant) -> Self {
        Self {
            state: State::Beats(Silence::since(now), now),
            arrived: 0,
            refused: 0,
            rest: REST_FIRST,
        }
    }

    /// Looks at what the path has carried by now.
    pub fn look(&mut self, now: Instant, seen: &PathSeen) {
        let news = seen.arrived > self.arrived;
        self.arrived = self.arrived.max(seen.arrived);
        if news {
            self.refused = seen.refused;
        }
        // Without packets in flight nothing arrives: between the ranges of a booking, or when the
        // sink has no room. A packet refused here is never in flight, and the path carries as little.
        let idle = seen.in_flight == 0 && seen.refused <= self.refused;
        let patience = SILENCE.max(seen.round_trip * 4);
        match &mut self.state {
            State::Beats(silence, since) => {
                if news && now - *since > HEALTHY {
                    self.rest = REST_FIRST;
                }
                if news || idle {
                    *silence = Silence::since(now);
                } else if silence.look(now) > patience {
                    self.fall_silent(now);
                }
            }
            // Packets that were in flight when it was given up say nothing of now.
            State::Rests(until) if *until > now => {}
            State::Rests(_) => self.state = State::Tried(Silence::since(now)),
            State::Tried(_) if news => self.state = State::Beats(Silence::since(now), now),
            State::Tried(silence) => {
                if idle {
                    *silence = Silence::since(now);
                } else if silence.look(now) > patience {
                    self.fall_silent(now);
                }
            }
        }
    }

    /// Nothing comes through, as this end sees or the peer reports. Reports for several lanes count once.
    pub fn fall_silent(&mut self, now: Instant) {
        if matches!(self.state, State::Rests(until) if until > now) {
            return;
        }
        self.state = State::Rests(now + self.rest);
        self.rest = (self.rest * 2).min(REST_MAX);
    }

    /// True while it is believed to live.
    pub fn beats(&self) -> bool {
        matches!(self.state, State::Beats(..))
    }

    /// True while it is tried again.
    pub fn is_tried(&self) -> bool {
        matches!(self.state, State::Tried(_))
    }
}

/// A path over which nothing arrives for so long, while packets are in flight, carries nothing; a
/// long one has four round trips.
pub const SILENCE: Duration = Duration::from_secs(3);
/// Time for which it is not used then, doubled each time.
const REST_FIRST: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_secs(60);
/// A path that lived for so long is trusted as at first.
const HEALTHY: Duration = Duration::from_secs(30);

/// Counts of a path by now.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathSeen {
    /// Packets sent over it, by any lane, that are known to have arrived.
    pub arrived: u64,
    /// Packets for it that this host's own stack refused, and not for their size.
    pub refused: u64,
    /// Bytes in flight over it.
    pub in_flight: u64,
    /// Its smoothed round trip.
    pub round_trip: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn seen(arrived: u64, in_flight: u64) -> PathSeen {
        let round_trip = Duration::from_millis(20);
        PathSeen { arrived, refused: 0, in_flight, round_trip }
    }

    /// Looks every 100 ms until its state is another one; when that was.
    fn look_until(
        liveness: &mut PathLiveness,
        from: u64,
        seen: &PathSeen,
        until: fn(&PathLiveness) -> bool,
    ) -> u64 {
        let mut ms = from;
        while !until(liveness) {
            ms += 100;
            assert!(ms < from + 200_000);
            liveness.look(at(ms), seen);
        }
        ms - from
    }

    #[test]
    fn a_path_is_silent_only_while_packets_are_in_flight() {
        let mut liveness = PathLiveness::new(at(0));
        for ms in (0..60_000).step_by(100) {
            liveness.look(at(ms), &seen(0, 0));
        }
        assert!(liveness.beats());
        assert_eq!(
            look_until(&mut liveness, 60_000, &seen(0, 1), |liveness| !liveness.beats()),
            3_000
        );
    }

    #[test]
    fn a_path_is_silent_where_this_host_refuses_what_is_sent() {
        let mut liveness = PathLiveness::new(at(0));
        let refused = |arrived, refused| PathSeen { refused, ..seen(arrived, 0) };
        // A full queue is no dead path: what was refused goes a moment later.
        for ms in (0..60_000).step_by(100) {
            liveness.look(at(ms), &refused(ms / 2_000, ms / 100));
        }
        assert!(liveness.beats());
        let left =
            look_until(&mut liveness, 60_000, &refused(29, 1_000), |liveness| !liveness.beats());
        assert!((1_000..=3_000).contains(&left), "{left}");
    }

    #[test]
    fn a_silent_path_is_tried_later_and_later_until_something_arrives() {
        let mut liveness = PathLiveness::new(at(0));
        let (mut now, mut arrived) = (0, 5);
        liveness.look(at(0), &seen(arrived, 1));
        for rest in [5, 10, 20, 40, 60, 60] {
            now += look_until(&mut liveness, now, &seen(arrived, 1), |liveness| {
                !liveness.beats() && !liveness.is_tried()
            });
            // Late packets change nothing.
            arrived += 1;
            now += 100;
            liveness.look(at(now), &seen(arrived, 1));
            let rested = look_until(&mut liveness, now, &seen(arrived, 1), PathLiveness::is_tried);
            assert_eq!(rested, rest * 1000 - 100);
            now += rested;
        }
        liveness.look(at(now + 100), &seen(arrived + 1, 1));
        assert!(liveness.beats());
    }

    #[test]
    fn a_long_path_is_given_its_time() {
        let mut liveness = PathLiveness::new(at(0));
        let long = PathSeen { round_trip: Duration::from_secs(2), ..seen(0, 1) };
        assert_eq!(look_until(&mut liveness, 0, &long, |liveness| !liveness.beats()), 8_100);
    }
}
