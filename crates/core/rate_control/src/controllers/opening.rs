//! How controllers begin that adjust a rate in steps.

use longhaul_units::{Duration, Instant, Rate};

use super::startup::Startup;
use crate::{Context, Feedback, Pacing, RttEstimator, Sent, Start};

/// What is known of a path before the first step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Capacity of the slowest link, as far as anybody knows.
    pub(super) link: Rate,
    /// The rate to begin with.
    pub(super) rate: Rate,
}

/// The way to the first rate: the start-up of `auto`, where neither the user nor a controller before
/// says what the path is.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    startup: Startup,
    packet: u64,
    /// Something was measured while there was enough to send.
    measured: bool,
    /// Start-up is over, and nothing was: what is sent until it is.
    unmeasured: Option<Pacing>,
}

impl Opening {
    /// The start-up of `auto`.
    pub(super) fn new(start: &Start) -> Self {
        let startup = Startup::until_full(start.now, start.packet);
        Self { startup, packet: start.packet, measured: false, unmeasured: None }
    }

    pub(super) fn on_sent(&mut self, now: Instant, rtt: &RttEstimator, sent: &Sent) {
        self.startup.on_sent(now, rtt, sent);
    }

    /// What was found, once start-up is over.
    pub(super) fn on_feedback(
        &mut self,
        cx: &mut Context<'_>,
        feedback: &Feedback,
        first: u32,
    ) -> Option<Found> {
        let slice = cx.estimates.completed.slice;
        self.packet = cx.estimates.packet();
        // Two packets a round trip always get through a link that somebody can use: what is slower was
        // a silence.
        let least = Rate::from_bytes_over(2 * self.packet, cx.rtt.smoothed());
        self.measured |= slice.is_some_and(|slice| !slice.limited && slice.rate >= least);
        if self.unmeasured.is_none()
            && !self.startup.on_feedback(cx.now, cx.rtt, cx.estimates, feedback, slice)
        {
            return None;
        }
        if !self.measured {
            // On a short path a train may be lost before anything of it could be measured, and then
            // nothing is known of the link. What hosts send unasked in a round trip (RFC 6928) tells.
            let window = FIRST_PACKETS * self.packet;
            let rate = Rate::from_bytes_over(window, cx.rtt.smoothed()).clamp(LEAST, MOST);
            self.unmeasured = Some(Pacing { rate, burst: window, window: Some(window) });
            return None;
        }
        cx.estimates.lengthen_slices();
        // What arrived in a lump is no rate: more than was sent cannot have come through.
        Some(Found::at(cx.estimates.recent().min(self.startup.rate), first))
    }

    pub(super) fn pacing(&self) -> Pacing {
        if let Some(pacing) = self.unmeasured {
            return pacing;
        }
        let Startup { rate, window, .. } = self.startup;
        let usual = rate.bytes_in(BURST_TIME).min(MAX_BURST);
        let burst = self.startup.burst().unwrap_or(usual).clamp(2 * self.packet, MAX_BURST);
        Pacing { rate, burst, window: Some(window.max(4 * self.packet)) }
    }
}

impl Found {
    /// What is known from the start. The user's rate is taken for the link, of which `first` parts
    /// per million are used at first.
    pub(super) fn told(start: &Start, first: u32) -> Option<Self> {
        match (start.known, start.rate) {
            (Some(known), link) => {
                let rate = known.rate.clamp(LEAST, MOST);
                Some(Self { link: link.map_or(rate, |link| link.clamp(rate, MOST)), rate })
            }
            (None, Some(link)) => Some(Self::at(link, first)),
            (None, None) => None,
        }
    }

    fn at(link: Rate, first: u32) -> Self {
        let link = link.clamp(LEAST, MOST);
        Self { link, rate: share(link, first).max(LEAST) }
    }
}

/// So many parts per million of a rate.
pub(super) fn share(rate: Rate, ppm: u32) -> Rate {
    rate.scale(ppm, 1_000_000)
}

/// The initial window of RFC 6928.
const FIRST_PACKETS: u64 = 10;
/// A packet of 1500 bytes in 12 s: there is no slower path.
pub(super) const LEAST: Rate = Rate::from_kbps(1);
/// Far beyond any link, far from overflow.
pub(super) const MOST: Rate = Rate::from_gbps(10_000);
/// A timer of the operating system fires up to half a millisecond late; the burst makes up for it.
pub(super) const BURST_TIME: Duration = Duration::from_micros(500);
pub(super) const MAX_BURST: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delivery, Estimates, Parameters};
    use longhaul_units::Losses;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    const PACKET: u64 = 1500;

    #[test]
    fn a_link_whose_first_train_was_lost_is_not_known_before_something_is_measured() {
        let round_trip = Duration::from_micros(250);
        let parameters = Parameters::of(&[]);
        let start =
            Start { now: Instant::ZERO, packet: PACKET, rate: None, known: None, parameters };
        let mut opening = Opening::new(&start);
        let mut estimates = Estimates::new(Instant::ZERO, PACKET);
        let mut rtt = RttEstimator::new(round_trip);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut now = Instant::ZERO;
        opening.on_sent(now, &rtt, &Sent { bytes: 64 * PACKET, ..Sent::default() });
        let mut told = |arrived: u64, lost: u64, delivery: Option<Delivery>| {
            now += Duration::from_micros(100);
            rtt.update(now, round_trip);
            let unknown = Losses { unknown: lost, ..Losses::default() };
            let feedback = Feedback {
                acked_packets: arrived,
                acked_bytes: arrived * PACKET,
                lost: unknown,
                lost_bytes: lost * PACKET,
                rtt: Some(round_trip),
                delivery,
                ..Feedback::default()
            };
            let feedback = estimates.on_feedback(now, &rtt, &feedback);
            let estimates = &mut estimates;
            let mut cx = Context { now, rtt: &rtt, estimates, rng: &mut rng };
            (opening.on_feedback(&mut cx, &feedback, 1_000_000), opening.pacing())
        };
        for _ in 0..40 {
            assert_eq!(told(2, 8, None).0, None, "nothing is known");
        }
        // Ten packets a round trip.
        assert_eq!(told(2, 8, None).1.rate, Rate::from_bytes_over(15_000, round_trip));
        // What came before and behind a silence is no rate.
        let sample = |mbps, us| {
            let interval = Duration::from_micros(us);
            let rate = Rate::from_mbps(mbps);
            Some(Delivery { rate, interval, sent_over: interval, application_limited: false })
        };
        assert_eq!(told(10, 0, sample(1, 120_000)).0, None);
        let found = told(10, 0, sample(200, 2_500)).0.expect("it is measured");
        assert_eq!(found.link, Rate::from_mbps(200));
    }
}
