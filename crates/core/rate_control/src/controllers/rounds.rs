//! Round trips, counted by what was under way.

use crate::feedback::Feedback;

/// A round is over when as much is settled as was in flight at its start, as TCP counts them: it
/// follows the path, where a round by the clock would follow its estimate.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Rounds {
    /// Bytes to be settled before the round is over.
    left: u64,
}

impl Rounds {
    /// Takes in what was settled; whether that ends the round.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback) -> bool {
        let settled = feedback.acked_bytes.saturating_add(feedback.lost_bytes);
        self.left = self.left.saturating_sub(settled);
        let over = settled > 0 && self.left == 0;
        if over {
            self.restart(feedback.in_flight);
        }
        over
    }

    /// A round begins, with so much in flight.
    pub(super) fn restart(&mut self, in_flight: u64) {
        self.left = in_flight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_what_was_in_flight_at_its_start() {
        let feedback = |acked_bytes, lost_bytes, in_flight| Feedback {
            acked_bytes,
            lost_bytes,
            in_flight,
            ..Feedback::default()
        };
        let mut rounds = Rounds::default();
        assert!(rounds.on_feedback(&feedback(10, 0, 100)), "nothing was in flight before");
        assert!(!rounds.on_feedback(&feedback(50, 0, 120)));
        assert!(!rounds.on_feedback(&feedback(0, 40, 140)));
        assert!(rounds.on_feedback(&feedback(10, 0, 0)));
        assert!(!rounds.on_feedback(&feedback(0, 0, 60)), "nothing new");
        assert!(rounds.on_feedback(&feedback(60, 0, 60)));
    }
}
