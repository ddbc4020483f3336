//! Which carrier a client takes that may take either (docs/protocol.md section 8).

use longhaul_units::{Duration, Instant};

use crate::silence::Silence;

/// Decides between UDP lanes, which have begun, and TCP connections, which may take their place.
///
/// Its driver looks again and again, at least when [`next_timeout`](Self::next_timeout) says so,
/// and does what [`look`](Self::look) returns.
#[derive(Clone, Debug)]
pub struct Race {
    /// The connections are opened then, if no lane has answered.
    open_at: Instant,
    /// They do not join before.
    join_at: Instant,
    silence: Silence,
}

/// Progress of the TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpProgress {
    /// Nobody has asked for them.
    None,
    /// They are being opened, which takes a bounded time.
    Opening,
    /// All are open.
    Open,
    /// They cannot be opened.
    Failed,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaceStep {
    /// Nothing yet.
    Wait,
    /// The connections are to be opened.
    Open,
    /// UDP carries: the connections are closed, and none has joined.
    Udp,
    /// TCP carries: the lanes end, and the connections join.
    Tcp,
}

impl Race {
    /// Of lanes that begin `now` on a path with that round trip. Where UDP was swallowed of late the
    /// connections are opened at once.
    pub fn new(now: Instant, rtt: Duration, was_swallowed: bool) -> Self {
        let patience = rtt.saturating_mul(ROUND_TRIPS).max(LEAST);
        let open_at = if was_swallowed { now } else { now + patience };
        // UDP is preferred, so it has the time of an answer in any case.
        let join_at = now + rtt.saturating_mul(ANSWER).max(ANSWER_LEAST);
        Self { open_at, join_at, silence: Silence::since(now) }
    }

    /// The step that is due `now`, where a lane has answered or none has.
    pub fn look(&mut self, now: Instant, has_answered: bool, tcp: TcpProgress) -> RaceStep {
        let silent = self.silence.look(now);
        match tcp {
            _ if has_answered => RaceStep::Udp,
            TcpProgress::None if now >= self.open_at => RaceStep::Open,
            TcpProgress::Open if now >= self.join_at => RaceStep::Tcp,
            // Without either, the reason of the connections is the one that people get.
            TcpProgress::Failed if silent >= PATIENCE => RaceStep::Tcp,
            _ => RaceStep::Wait,
        }
    }

    /// When to look next, at the latest; that the connections are open is a reason to look, too.
    pub fn next_timeout(&self, tcp: TcpProgress) -> Option<Instant> {
        match tcp {
            TcpProgress::None => Some(self.open_at),
            TcpProgress::Open => Some(self.join_at),
            TcpProgress::Failed => Some(self.silence.next_look(PATIENCE)),
            TcpProgress::Opening => None,
        }
    }
}

/// Time for which UDP may stay silent before TCP is tried beside it.
const ROUND_TRIPS: u32 = 4;
const LEAST: Duration = Duration::from_millis(300);
/// An answer over UDP takes a round trip, and the time that a server needs.
const ANSWER: u32 = 2;
const ANSWER_LEAST: Duration = Duration::from_millis(100);
/// Time for which UDP may stay silent where nothing can take its place.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn race(rtt_ms: u64, was_swallowed: bool) -> Race {
        Race::new(at(0), Duration::from_millis(rtt_ms), was_swallowed)
    }

    #[test]
    fn tcp_is_opened_after_four_round_trips_and_at_least_300_ms() {
        for (rtt, due) in [(1, 300), (75, 300), (200, 800)] {
            let mut race = race(rtt, false);
            assert_eq!(race.next_timeout(TcpProgress::None), Some(at(due)));
            assert_eq!(race.look(at(due - 1), false, TcpProgress::None), RaceStep::Wait);
            assert_eq!(race.look(at(due), false, TcpProgress::None), RaceStep::Open);
            assert_eq!(race.look(at(due + 1), false, TcpProgress::Opening), RaceStep::Wait);
            assert_eq!(race.look(at(due + 2 * rtt), false, TcpProgress::Open), RaceStep::Tcp);
        }
    }

    #[test]
    fn where_udp_was_swallowed_both_begin_at_once_and_udp_has_time_to_answer() {
        for (rtt, answer) in [(1, 100), (200, 400)] {
            let mut race = race(rtt, true);
            assert_eq!(race.look(at(0), false, TcpProgress::None), RaceStep::Open);
            assert_eq!(race.look(at(answer - 1), false, TcpProgress::Open), RaceStep::Wait);
            assert_eq!(race.clone().look(at(answer - 1), true, TcpProgress::Open), RaceStep::Udp);
            assert_eq!(race.look(at(answer), false, TcpProgress::Open), RaceStep::Tcp);
        }
    }

    #[test]
    fn udp_that_answers_wins_however_far_tcp_is() {
        for tcp in [TcpProgress::None, TcpProgress::Opening, TcpProgress::Open, TcpProgress::Failed]
        {
            assert_eq!(race(10, false).look(at(60_000), true, tcp), RaceStep::Udp);
        }
    }

    #[test]
    fn where_tcp_is_refused_udp_has_five_seconds() {
        let mut race = race(10, false);
        for ms in (100..5_000).step_by(100) {
            assert_eq!(race.look(at(ms), false, TcpProgress::Failed), RaceStep::Wait);
            assert_eq!(race.next_timeout(TcpProgress::Failed), Some(at(5_000.min(ms + 200))));
        }
        assert_eq!(race.look(at(5_000), false, TcpProgress::Failed), RaceStep::Tcp);
    }
}
