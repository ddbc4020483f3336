//! The answer to a queue that marks early (L4S).

use crate::estimates::Round;

/// As much less as packets are marked: the scalable response that RFC 9331, section 4.3, asks of who
/// sends ECT(1), by the law of DCTCP (RFC 8257, section 3.3). A round with marks is sent at 1 - alpha / 2
/// of the rate, where alpha follows the share of packets that are marked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalable {
    /// Parts per million.
    alpha: u32,
    /// The last round brought marks.
    marked: bool,
}

impl Default for Scalable {
    /// The first marks count in full (RFC 8257, section 4.2).
    fn default() -> Self {
        Self { alpha: WHOLE, marked: false }
    }
}

impl Scalable {
    pub(super) fn on_round(&mut self, round: &Round) {
        let all = round.acked_packets.max(round.marked_packets).max(1);
        let share = round.marked_packets.saturating_mul(u64::from(WHOLE)) / all;
        self.marked = round.marked_packets > 0;
        // By a sixteenth of the difference, rounded up, so that it reaches it.
        let [alpha, share] = [i64::from(self.alpha), share as i64];
        let step = share - alpha;
        self.alpha = (alpha + step / GAIN + step.signum()).clamp(0, i64::from(WHOLE)) as u32;
    }

    /// Of the rate, what may be sent: parts per million.
    pub(super) fn factor(&self) -> u32 {
        if self.marked { WHOLE - self.alpha / 2 } else { WHOLE }
    }
}

/// Parts per million.
pub(super) const WHOLE: u32 = 1_000_000;
/// The estimate moves by a sixteenth of the difference (g of RFC 8257, section 4.2).
const GAIN: i64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rounds: u32, marked_packets: u64) -> u32 {
        let mut scalable = Scalable::default();
        for _ in 0..rounds {
            scalable.on_round(&Round { acked_packets: 100, marked_packets, ..Round::default() });
        }
        scalable.factor()
    }

    #[test]
    fn the_rate_falls_by_half_of_the_share_that_is_marked() {
        assert_eq!(after(1, 0), WHOLE, "no marks");
        assert_eq!(after(1, 100), WHOLE / 2, "all of them");
        assert!((940_000..960_000).contains(&after(200, 10)), "{}", after(200, 10));
        assert!((499_000..501_000).contains(&after(200, 1_000)), "more than arrived");
    }
}
