//! Start-up of controllers that adjust a rate in steps.

use longhaul_units::{Duration, Instant, Rate};

use super::paced::least_rate;
use super::startup::Startup;
use crate::controller::{Context, Pacing, Sent, Start};
use crate::feedback::{Delivery, Feedback};
use crate::rtt::RttEstimator;

/// Rates of a path that are known before the first step.
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
    /// The most that was measured while there was enough to send; none yet.
    best: Rate,
    /// Start-up is over, and nothing was: what is sent until it is.
    unmeasured: Option<Unmeasured>,
}

/// Sending without knowing the link.
#[derive(Clone, Copy, Debug)]
struct Unmeasured {
    pacing: Pacing,
    /// From when on that is what arrives.
    from: Instant,
    seen: Seen,
}

/// Packets that arrived and were lost so far.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    arrived: u64,
    took: Duration,
    lost: u64,
    /// The time in which it was sent.
    sent_over: Duration,
}

impl Opening {
    /// The start-up of `auto`.
    pub(super) fn new(start: &Start) -> Self {
        let startup = Startup::until_full(start.now, start.packet);
        Self { startup, packet: start.packet, best: Rate::ZERO, unmeasured: None }
    }

    pub(super) fn on_sent(&mut self, now: Instant, rtt: &RttEstimator, sent: &Sent) {
        self.startup.on_sent(now, rtt, sent);
    }

    /// Returns the rates that were found, once start-up is over.
    pub(super) fn on_feedback(
        &mut self,
        cx: &mut Context<'_>,
        feedback: &Feedback,
        first: u32,
    ) -> Option<Found> {
        let slice = cx.estimates.completed.slice;
        self.packet = cx.estimates.packet();
        // What is slower was a silence.
        let least = least_rate(cx.rtt.smoothed(), self.packet);
        if let Some(slice) = slice.filter(|slice| !slice.limited && slice.rate >= least) {
            self.best = self.best.max(slice.rate);
        }
        if self.unmeasured.is_none()
            && !self.startup.on_feedback(cx.now, cx.rtt, cx.estimates, feedback, slice)
        {
            return None;
        }
        if let Some(unmeasured) = &mut self.unmeasured {
            if unmeasured.seen.arrived > 0 {
                // Before, what was lost may have been sent before.
                unmeasured.seen.lost += feedback.lost_bytes;
            }
            let delivery = feedback.delivery?;
            // What began to arrive before was sent at half of this.
            if cx.now < unmeasured.from + delivery.interval || delivery.application_limited {
                unmeasured.seen = Seen::default();
                return None;
            }
            unmeasured.seen.add(&delivery);
            let Unmeasured { pacing, seen, .. } = *unmeasured;
            let round_trip = cx.rtt.smoothed();
            if seen.took < round_trip * 2 {
                return None;
            }
            let rate = Rate::from_bytes_over(seen.arrived, seen.took);
            let window = pacing.window.unwrap_or(0);
            if rate >= pacing.rate.scale(ARRIVES, 8) {
                // What arrives as it was sent shows no link, but what we send.
                self.send_unmeasured(cx, window.saturating_mul(2));
            } else if seen.sent() < Rate::from_bytes_over(window, round_trip).scale(ARRIVES, 8) {
                // Something else held the sender: reports that were lost, or what was left to send again.
                unmeasured.seen = Seen::default();
            } else {
                cx.estimates.lengthen_slices();
                return Some(Found::at(rate, first));
            }
            return None;
        } else if self.best == Rate::ZERO {
            // On a short path a train may be lost before anything of it could be measured, or there was
            // too little to send; then nothing is known of the link. What hosts send unasked in a round
            // trip (RFC 6928) comes first, and twice as much whenever that arrives.
            self.send_unmeasured(cx, FIRST_PACKETS * self.packet);
            return None;
        }
        cx.estimates.lengthen_slices();
        // What arrived in a lump is no rate: more than was sent cannot have come through. Nor is what
        // arrived around a silence: as much as half of the most that was measured has come through.
        let link = cx.estimates.recent().max(self.best.scale(1, 2)).min(self.startup.rate);
        Some(Found::at(link, first))
    }

    fn send_unmeasured(&mut self, cx: &Context<'_>, window: u64) {
        let rate = Rate::from_bytes_over(window, cx.rtt.smoothed()).clamp(LEAST, MOST);
        let pacing = Pacing { rate, burst: window.min(MAX_BURST), window: Some(window) };
        let from = cx.now + cx.rtt.smoothed();
        self.unmeasured = Some(Unmeasured { pacing, from, seen: Seen::default() });
    }

    pub(super) fn pacing(&self) -> Pacing {
        if let Some(Unmeasured { pacing, .. }) = self.unmeasured {
            return pacing;
        }
        let Startup { rate, window, .. } = self.startup;
        let usual = rate.bytes_in(BURST_TIME).min(MAX_BURST);
        let burst = self.startup.burst().unwrap_or(usual).clamp(2 * self.packet, MAX_BURST);
        Pacing { rate, burst, window: Some(window.max(4 * self.packet)) }
    }
}

impl Seen {
    fn add(&mut self, delivery: &Delivery) {
        self.arrived += delivery.rate.bytes_in(delivery.interval);
        self.took += delivery.interval;
        self.sent_over += delivery.sent_over;
    }

    /// The rate at which it was sent.
    fn sent(&self) -> Rate {
        Rate::from_bytes_over(self.arrived.saturating_add(self.lost), self.sent_over)
    }
}

impl Found {
    /// Returns the rates that are known at the start. The user's rate is taken for the link, of which `first`
    /// parts per million are used at first.
    pub(super) fn at_start(start: &Start, first: u32) -> Option<Self> {
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

/// Of eight parts that are sent so many arrive where the link is not full: chance takes some, and what it
/// took fills the window until it is noticed.
const ARRIVES: u32 = 5;
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
    use crate::{Estimates, Parameters};
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
        let mut report = |arrived: u64, lost: u64, delivery: Option<Delivery>| {
            now += Duration::from_micros(100);
            rtt.update(now, round_trip);
            let bytes = (arrived + lost) * PACKET;
            opening.on_sent(now, &rtt, &Sent { bytes, ..Sent::default() });
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
            assert_eq!(report(2, 8, None).0, None, "nothing is known");
        }
        // Ten packets a round trip, behind a second train.
        assert_eq!(report(2, 8, None).1.rate, Rate::from_bytes_over(15_000, round_trip));
        let sample = |application_limited| {
            let interval = Duration::from_micros(100);
            let rate = Rate::from_bytes_over(4 * PACKET, interval);
            Some(Delivery { rate, interval, sent_over: interval, application_limited })
        };
        for _ in 0..40 {
            assert_eq!(report(1, 0, sample(true)).0, None, "there was no more to send");
        }
        // What is sent arrives, so twice as much is sent.
        let first = Rate::from_bytes_over(15_000, round_trip);
        while report(4, 0, sample(false)).1.rate == first {}
        (0..3).for_each(|_| assert_eq!(report(4, 0, None).0, None));
        let (rate, interval) = (first, round_trip * 3);
        let before = Delivery { rate, interval, sent_over: interval, application_limited: false };
        assert_eq!(report(4, 0, Some(before)).0, None, "it began when half as much was sent");
        // Half of that is sent, for another reason: it shows no link.
        for _ in 0..40 {
            let (found, pacing) = report(4, 0, sample(false));
            assert_eq!((found, pacing.rate), (None, first.scale(2, 1)));
        }
        // Half of that arrives: the link is full.
        let full =
            sample(false).map(|sample| Delivery { sent_over: sample.interval / 2, ..sample });
        let mut rates = alloc::vec::Vec::new();
        let found = loop {
            let (found, pacing) = report(4, 0, full);
            rates.push(pacing.rate);
            if let Some(found) = found {
                break found;
            }
        };
        rates.dedup();
        assert_eq!(rates, [first.scale(2, 1)]);
        assert_eq!(found.link, Rate::from_bytes_over(4 * PACKET, Duration::from_micros(100)));
    }
}
