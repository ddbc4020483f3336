use longhaul_units::PacketNumber;
use longhaul_wire::Frame;

use super::Policy;

/// Everything is sent once, then what of it is missing, until nothing is (RAPID section 1 on RBUDP;
/// protocol.md 5.9). What is missing is found out only when all of a round was sent.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    round: u64,
    /// Nothing more will be offered before something is delivered.
    flushed: bool,
    ending: Option<Ending>,
}

/// All of a round is sent, and the peer is asked what is missing.
#[derive(Clone, Copy, Debug)]
struct Ending {
    /// Numbers of the round are below.
    end: u64,
    /// The packet that asked last.
    asked: Option<u64>,
    /// It is to be asked (again).
    ask: bool,
}

impl Rounds {
    /// Where the round ends, once a report up to `largest` answers the question.
    fn answered(&self, largest: u64) -> Option<u64> {
        let ending = self.ending?;
        ending.asked.is_some_and(|asked| largest >= asked).then_some(ending.end)
    }
}

impl Policy for Rounds {
    fn on_offered(&mut self) {
        self.flushed = false;
    }

    fn on_flushed(&mut self) {
        self.flushed = true;
    }

    fn on_all_sent(&mut self, next: u64, outstanding: &dyn Fn() -> bool) {
        if self.flushed && self.ending.is_none() && outstanding() {
            self.ending = Some(Ending { end: next, asked: None, ask: true });
        }
    }

    fn on_probe_timeout(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.ask = true;
        }
    }

    fn poll_frame(&mut self, number: u64) -> Option<Frame<'static>> {
        let ending = self.ending.as_mut().filter(|ending| ending.ask)?;
        (ending.asked, ending.ask) = (Some(number), false);
        Some(Frame::RoundEnd { round: self.round, end: PacketNumber::new(ending.end) })
    }

    fn lost_below(&self, largest: u64) -> Option<u64> {
        Some(self.answered(largest).unwrap_or(0))
    }

    fn on_report(&mut self, largest: u64, outstanding: &dyn Fn(u64) -> bool) {
        if self.answered(largest).is_some_and(|end| !outstanding(end)) {
            self.ending = None;
            self.round += 1;
        }
    }

    fn rounds(&self) -> u64 {
        self.round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_all_is_sent_and_the_question_is_answered() {
        let mut rounds = Rounds::default();
        let asks = |rounds: &mut Rounds, number| match rounds.poll_frame(number) {
            Some(Frame::RoundEnd { round, end }) => Some((round, end.get())),
            _ => None,
        };
        rounds.on_offered();
        rounds.on_all_sent(9, &|| true);
        assert_eq!(asks(&mut rounds, 9), None, "more may be offered");
        rounds.on_flushed();
        rounds.on_all_sent(10, &|| false);
        assert_eq!(asks(&mut rounds, 10), None, "nothing is open");
        rounds.on_all_sent(10, &|| true);
        rounds.on_all_sent(12, &|| true);
        assert_eq!((asks(&mut rounds, 12), asks(&mut rounds, 13)), (Some((0, 10)), None));
        assert_eq!(rounds.lost_below(11), Some(0), "not answered yet");
        rounds.on_probe_timeout();
        assert_eq!(asks(&mut rounds, 20), Some((0, 10)));
        assert_eq!((rounds.lost_below(19), rounds.lost_below(20)), (Some(0), Some(10)));
        rounds.on_report(20, &|end| end == 10);
        assert_eq!(rounds.rounds(), 0, "some of it is open");
        rounds.on_report(20, &|_| false);
        assert_eq!((rounds.rounds(), rounds.lost_below(30)), (1, Some(0)));
    }
}
