use longhaul_units::{Duration, Instant, Rate};

/// What this host's own stack takes: it refuses packets where its buffers are full.
///
/// The path was offered none of them, so that is the governor's business and no controller's: the
/// rate falls by a quarter, at most once a round trip, and rises again by an eighth.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SenderBound {
    limit: Option<Rate>,
    /// When it last changed.
    since: Instant,
}

impl SenderBound {
    /// Packets were refused at `rate`.
    pub fn on_refused(&mut self, now: Instant, round_trip: Duration, rate: Rate) {
        if self.limit.is_none() || now - self.since >= round_trip {
            let least = Rate::from_bytes_over(LEAST_BYTES, round_trip);
            self.limit = Some(rate.min(MOST).scale(3, 4).max(least));
            self.since = now;
        }
    }

    /// Packets arrive, and the controller would send them at `wanted`.
    pub fn on_feedback(&mut self, now: Instant, round_trip: Duration, wanted: Rate) {
        if now - self.since >= round_trip {
            self.since = now;
            let raised = self.limit.map(|rate| rate.scale(9, 8));
            self.limit = raised.filter(|rate| *rate < wanted.min(MOST));
        }
    }

    /// The rate, while there is such a limit.
    pub fn limit(&self) -> Option<Rate> {
        self.limit
    }
}

/// What may go each round trip whatever was refused: two packets of the usual size.
const LEAST_BYTES: u64 = 3_000;
/// More than any host sends.
const MOST: Rate = Rate::from_gbps(400);

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(20);

    #[test]
    fn a_quarter_less_each_round_of_refusals_and_back() {
        let at = |rounds: u32| Instant::ZERO + ROUND * rounds;
        let rate = Rate::from_mbps(800);
        let mut bound = SenderBound::default();
        bound.on_feedback(at(1), ROUND, rate);
        assert_eq!(bound.limit(), None);
        bound.on_refused(at(1), ROUND, rate);
        bound.on_refused(at(1) + ROUND / 2, ROUND, rate.scale(3, 4));
        assert_eq!(bound.limit(), Some(Rate::from_mbps(600)), "of one round");
        bound.on_refused(at(2), ROUND, Rate::from_mbps(600));
        assert_eq!(bound.limit(), Some(Rate::from_mbps(450)));
        bound.on_feedback(at(2) + ROUND / 2, ROUND, rate);
        assert_eq!(bound.limit(), Some(Rate::from_mbps(450)), "too soon");
        let rounds = (3..20).take_while(|round| {
            bound.on_feedback(at(*round), ROUND, rate);
            bound.limit().is_some()
        });
        assert_eq!(rounds.count(), 4, "450 Mb/s by an eighth, until it holds nothing back");
    }

    #[test]
    fn who_knows_no_rate_gets_one() {
        let mut bound = SenderBound::default();
        bound.on_refused(Instant::ZERO, ROUND, Rate::MAX);
        assert_eq!(bound.limit(), Some(MOST.scale(3, 4)));
        bound.on_feedback(Instant::ZERO + ROUND * 3, ROUND, Rate::MAX);
        assert!(bound.limit().is_some_and(|rate| rate < MOST));
    }
}
