use longhaul_units::{Duration, Instant, Rate};

/// Bound by this host's own stack, which refuses packets where its buffers are full.
///
/// The path was offered none of them, so that is the governor's business and no controller's: the
/// rate falls when packets are refused, and after each round trip that saw more refused, by more each
/// time: a start-up may be far above what a queue in front of the device takes. After any other it
/// rises, in steps that double. The steps were measured, against a kernel whose socket refuses
/// (docs/rate-control.md, hosts).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SenderBound {
    limit: Option<Rate>,
    /// Time when it last changed.
    since: Instant,
    /// Packets were refused since, once what had been on its way through the stack was gone.
    refusing: bool,
    /// Eighths that the next step adds.
    rise: u32,
    /// Times that it fell without a rise between them.
    falls: usize,
}

impl SenderBound {
    /// Packets were refused at `rate`.
    pub fn on_refused(&mut self, now: Instant, round_trip: Duration, rate: Rate) {
        let passed = now - self.since;
        if self.limit.is_none() || passed >= round_trip {
            self.fall(now, round_trip, rate);
        } else {
            self.refusing |= passed >= round_trip / 2;
        }
    }

    /// Packets arrive, and the controller would send them at `wanted`.
    pub fn on_feedback(&mut self, now: Instant, round_trip: Duration, wanted: Rate) {
        let Some(limit) = self.limit.filter(|_| now - self.since >= round_trip) else { return };
        if self.refusing {
            return self.fall(now, round_trip, limit);
        }
        (self.since, self.falls) = (now, 0);
        let raised = limit.scale(8 + self.rise, 8);
        self.limit = Some(raised).filter(|rate| *rate < wanted.min(MOST));
        self.rise = (self.rise * 2).min(MOST_RISE);
    }

    fn fall(&mut self, now: Instant, round_trip: Duration, rate: Rate) {
        let least = Rate::from_bytes_over(LEAST_BYTES, round_trip);
        let left = LEFT[self.falls.min(LEFT.len() - 1)];
        let limit = Some(rate.min(MOST).scale(left, 8).max(least));
        *self =
            Self { limit, since: now, refusing: false, rise: FIRST_RISE, falls: self.falls + 1 };
    }

    /// The rate, while there is such a limit.
    pub fn limit(&self) -> Option<Rate> {
        self.limit
    }
}

/// Eighths that are left after the first fall, the second, and all others in a row.
const LEFT: [u32; 3] = [6, 4, 2];
/// Eighths. The first step, and what doubling ends at: twice the rate.
const FIRST_RISE: u32 = 1;
const MOST_RISE: u32 = 8;
/// Bytes that may go each round trip whatever was refused: two packets of the usual size.
const LEAST_BYTES: u64 = 3_000;
/// More than any host sends.
const MOST: Rate = Rate::from_gbps(400);

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(20);

    fn at(rounds: u32) -> Instant {
        Instant::ZERO + ROUND * rounds
    }

    #[test]
    fn less_each_round_of_refusals_and_back_in_steps_that_double() {
        let rate = Rate::from_mbps(800);
        let mut bound = SenderBound::default();
        bound.on_feedback(at(1), ROUND, rate);
        assert_eq!(bound.limit(), None);
        bound.on_refused(at(1), ROUND, rate);
        bound.on_refused(at(1) + ROUND / 4, ROUND, rate.scale(3, 4));
        assert_eq!(bound.limit(), Some(Rate::from_mbps(600)), "of one round");
        bound.on_refused(at(2), ROUND, Rate::from_mbps(600));
        assert_eq!(bound.limit(), Some(Rate::from_mbps(300)));
        bound.on_refused(at(3), ROUND, Rate::from_mbps(300));
        assert_eq!(bound.limit(), Some(Rate::from_mbps(75)));
        bound.on_feedback(at(3) + ROUND / 2, ROUND, rate);
        assert_eq!(bound.limit(), Some(Rate::from_mbps(75)), "too soon");
        let back = [84_375_000, 105_468_750, 158_203_125, 316_406_250, 632_812_500].map(Some);
        for (round, limit) in (4..).zip(back.into_iter().chain([None])) {
            bound.on_feedback(at(round), ROUND, rate);
            assert_eq!(bound.limit().map(Rate::as_bps), limit, "an eighth, a quarter, a half, all");
        }
    }

    /// Feedback comes more often than packets are refused: who looks only at the moment rises.
    #[test]
    fn a_round_in_which_packets_were_refused_is_none_to_rise_after() {
        let rate = Rate::from_mbps(800);
        let mut bound = SenderBound::default();
        bound.on_refused(at(1), ROUND, rate);
        bound.on_refused(at(1) + ROUND * 3 / 4, ROUND, rate);
        bound.on_feedback(at(2), ROUND, rate);
        assert_eq!(bound.limit(), Some(Rate::from_mbps(300)));
        bound.on_feedback(at(3), ROUND, rate);
        assert_eq!(bound.limit(), Some(Rate::from_bps(337_500_000)));
    }

    #[test]
    fn after_a_long_refusal_the_rate_is_soon_back() {
        let rate = Rate::from_gbps(10);
        let mut bound = SenderBound::default();
        for round in 0..100 {
            let refused = bound.limit().unwrap_or(rate);
            bound.on_refused(at(round), ROUND, refused);
        }
        assert_eq!(bound.limit(), Some(Rate::from_bytes_over(LEAST_BYTES, ROUND)));
        let back = (100..).take_while(|round| {
            bound.on_feedback(at(*round), ROUND, rate);
            bound.limit().is_some()
        });
        assert_eq!(back.count(), 14);
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
