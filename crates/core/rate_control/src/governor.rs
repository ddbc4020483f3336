use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use crate::burst::useful_burst;
use crate::controller::Pacing;
use crate::estimates::Estimates;
use crate::feedback::{Feedback, HostLimit, ReceiverState};
use crate::receiver::ReceiverBound;
use crate::rtt::RttEstimator;
use crate::sender::SenderBound;

/// Takes the minimum of the controller's rate and all other bounds, and keeps account of which one
/// it was.
///
/// The others are the limits of the whole connection, of which a path has a share, what this host's
/// own stack takes, and, where the profile heeds it, what the receiving host takes.
#[derive(Clone, Debug)]
pub struct Governor {
    limits: [Option<Rate>; Bottleneck::COUNT],
    /// Share of those limits, parts per million.
    share: u32,
    sender: SenderBound,
    receiver: Option<ReceiverBound>,
    controller: Bottleneck,
    active: Bottleneck,
    since: Instant,
    spent: [Duration; Bottleneck::COUNT],
}

impl Governor {
    /// No bounds but the controller's, which starts up. It heeds what the receiving host takes if
    /// `heeds_receiver`, see [`crate::profile::Profile::heeds_receiver`].
    pub fn new(now: Instant, heeds_receiver: bool) -> Self {
        Self {
            limits: [None; Bottleneck::COUNT],
            share: WHOLE,
            sender: SenderBound::default(),
            receiver: heeds_receiver.then(|| ReceiverBound::new(now)),
            controller: Bottleneck::StartUp,
            active: Bottleneck::StartUp,
            since: now,
            spent: [Duration::ZERO; Bottleneck::COUNT],
        }
    }

    /// Governor of another path of the same connection, which begins now: the connection's limits hold
    /// there, too.
    #[must_use]
    pub fn beside(&self, now: Instant, heeds_receiver: bool) -> Self {
        Self { limits: self.limits, ..Self::new(now, heeds_receiver) }
    }

    /// Limits the rate of the connection, in the name of `bound`.
    pub fn set(&mut self, bound: Bottleneck, rate: Rate) {
        self.limits[bound as usize] = Some(rate);
    }

    /// Lifts the limit of that name.
    pub fn clear(&mut self, bound: Bottleneck) {
        self.limits[bound as usize] = None;
    }

    /// Lets this path use so much of the connection's limits, in parts per million; all of them by
    /// default.
    pub fn set_share(&mut self, ppm: u32) {
        self.share = ppm.clamp(1, WHOLE);
    }

    /// The least limit that was set ([`Governor::set`]), where there is one.
    pub fn set_limit(&self) -> Option<Rate> {
        self.limits.iter().copied().flatten().min()
    }

    /// The least limit of the whole connection, where there is one.
    pub fn connection_limit(&self) -> Option<Rate> {
        let announced = self.receiver.as_ref().and_then(ReceiverBound::announced);
        self.set_limit().into_iter().chain(announced).min()
    }

    /// A batch left; `in_flight` bytes are on their way.
    pub fn on_sent(&mut self, in_flight: u64) {
        if let Some(receiver) = &mut self.receiver {
            receiver.on_sent(in_flight);
        }
    }

    /// This host's own stack refused packets, sent at `rate`.
    pub fn on_refused(&mut self, now: Instant, round_trip: Duration, rate: Rate) {
        self.sender.on_refused(now, round_trip, rate);
    }

    /// Takes in feedback, which `estimates` have taken in before, and what the receiver says of
    /// itself; the controller would send at `wanted`.
    pub fn on_feedback(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        estimates: &Estimates,
        (feedback, receiver): (&Feedback, &ReceiverState),
        wanted: Rate,
    ) {
        self.sender.on_feedback(now, rtt.smoothed(), wanted);
        if let Some(bound) = &mut self.receiver {
            bound.on_feedback(now, rtt, estimates, feedback, receiver);
        }
    }

    /// The receiving host has announced a limit over another path than that of this governor.
    pub fn heed(&mut self, limit: HostLimit) {
        if let Some(receiver) = &mut self.receiver {
            receiver.heed(limit);
        }
    }

    /// A limit of the receiving host may be over; whether one is.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.receiver.as_mut().is_some_and(|receiver| receiver.expire(now))
    }

    /// Returns when [`Governor::expire`] has something to do.
    pub fn expires(&self) -> Option<Instant> {
        self.receiver.as_ref().and_then(ReceiverBound::expires)
    }

    /// Says what the controller's own rate stands for: `metrics().bound`.
    pub fn set_controller_bound(&mut self, bound: Bottleneck) {
        self.controller = bound;
    }

    /// Returns what may be sent, and which bound says so. At equal rates another bound wins over the
    /// controller. No more may leave back to back than is of use at any limit's own rate, half a
    /// millisecond of it or some packets, even where the controller's rate is lower: its burst is made
    /// for a path that can carry more. A controller that goes at exactly the limit's rate has made its
    /// burst for that.
    pub fn allow(&self, controller: Pacing) -> (Pacing, Bottleneck) {
        let mut least = (controller.rate, self.controller);
        let fits = self.receiver.as_ref().and_then(ReceiverBound::burst).unwrap_or(u64::MAX);
        let mut burst = controller.burst.min(fits.max(controller.rate.bytes_in(WAKE_UP)));
        for (bound, rate) in self.rates() {
            if rate != controller.rate {
                burst = burst.min(useful_burst(rate, PACKET));
            }
            if rate < least.0 || rate == least.0 && least.1 == self.controller {
                least = (rate, bound);
            }
        }
        let (rate, mut bound) = least;
        let mut window = controller.window;
        let starts = self.controller == Bottleneck::StartUp;
        if let Some((limit, is_full)) = self.receiver.as_ref().and_then(|host| host.window(starts))
            && window.is_none_or(|window| limit < window)
        {
            window = Some(limit);
            if is_full && bound == self.controller {
                bound = Bottleneck::ReceiverBuffer;
            }
        }
        (Pacing { rate, burst, window }, bound)
    }

    /// The rates that bound this path beside the controller.
    fn rates(&self) -> impl Iterator<Item = (Bottleneck, Rate)> {
        let limits = Bottleneck::ALL.into_iter().zip(self.limits);
        let limits = limits.filter_map(|(bound, limit)| {
            limit.map(|rate| (bound, rate.scale(self.share, WHOLE).max(LEAST)))
        });
        let sender = self.sender.limit().map(|rate| (Bottleneck::SenderBuffer, rate));
        let receiver = self.receiver.iter().flat_map(|receiver| receiver.rates(self.share));
        limits.chain(sender).chain(receiver)
    }

    /// Books the time since the last call to the bound that was active, and makes `bound` the
    /// active one.
    ///
    /// `bound` is what [`Governor::allow`] named, or what the caller alone can see: a sender that was
    /// late is [`Bottleneck::SenderCpu`].
    pub fn account(&mut self, now: Instant, bound: Bottleneck) {
        self.spent[self.active as usize] += now - self.since;
        self.since = now.max(self.since);
        self.active = bound;
    }

    /// The bound that was active for the longest time, start-up apart.
    pub fn longest(&self) -> Bottleneck {
        let bounds = Bottleneck::ALL.into_iter().zip(self.spent);
        let later = bounds.filter(|(bound, _)| *bound != Bottleneck::StartUp);
        later.max_by_key(|(_, spent)| *spent).map_or(Bottleneck::Unknown, |(bound, _)| bound)
    }

    /// Returns the time that `bound` was active, up to the last [`Governor::account`].
    pub fn time_limited_by(&self, bound: Bottleneck) -> Duration {
        self.spent[bound as usize]
    }
}

/// Parts per million.
const WHOLE: u32 = 1_000_000;
/// A share of a limit still lets packets go.
const LEAST: Rate = Rate::from_bps(1);
/// Costs a thread as much: what leaves at once is to be worth it.
const WAKE_UP: Duration = Duration::from_micros(20);
/// The usual size of packets.
const PACKET: u64 = 1_500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delivery;
    use longhaul_units::{Bytes, Losses};

    const CONTROLLER: Pacing =
        Pacing { rate: Rate::from_gbps(5), burst: 64_000, window: Some(1_000_000) };

    #[test]
    fn the_least_bound_is_named() {
        let mut governor = Governor::new(Instant::ZERO, false);
        assert_eq!(governor.allow(CONTROLLER), (CONTROLLER, Bottleneck::StartUp));
        governor.set_controller_bound(Bottleneck::Network);
        governor.set(Bottleneck::UserLimit, Rate::from_gbps(2));
        governor.set(Bottleneck::ReceiverDisk, Rate::from_gbps(1));
        let (pacing, bound) = governor.allow(CONTROLLER);
        assert_eq!((pacing.rate, bound), (Rate::from_gbps(1), Bottleneck::ReceiverDisk));
        assert_eq!(pacing.window, CONTROLLER.window);
        governor.clear(Bottleneck::ReceiverDisk);
        assert_eq!(governor.allow(CONTROLLER).1, Bottleneck::UserLimit);
        governor.set(Bottleneck::UserLimit, CONTROLLER.rate);
        assert_eq!(governor.allow(CONTROLLER).1, Bottleneck::UserLimit);
        governor.set(Bottleneck::UserLimit, Rate::MAX);
        assert_eq!(governor.allow(CONTROLLER).1, Bottleneck::Network);
    }

    #[test]
    fn the_burst_under_a_limit_fits_its_rate() {
        let controller = Pacing { burst: 512 << 10, ..CONTROLLER };
        let mut governor = Governor::new(Instant::ZERO, false);
        for (limit, burst) in [
            (Rate::from_mbps(1), 3_000),
            (Rate::from_mbps(20), 6_000),
            (Rate::from_mbps(100), 15_000),
            (Rate::from_mbps(500), 31_250),
            (Rate::from_gbps(4), 250_000),
            (Rate::from_gbps(6), 375_000),
            (Rate::from_gbps(9), 512 << 10),
        ] {
            governor.set(Bottleneck::UserLimit, limit);
            assert_eq!(governor.allow(controller).0.burst, burst, "{limit}");
        }
        // A controller below the limit may find it fit to send much at once; the limit does not.
        governor.set(Bottleneck::UserLimit, Rate::from_gbps(1));
        let slower = Pacing { rate: Rate::from_mbps(900), ..controller };
        assert_eq!(
            governor.allow(slower),
            (Pacing { burst: 62_500, ..slower }, Bottleneck::StartUp)
        );
        governor.set(Bottleneck::UserLimit, controller.rate);
        assert_eq!(governor.allow(controller), (controller, Bottleneck::UserLimit));
        // A controller that is gentler still stays so.
        governor.set(Bottleneck::UserLimit, Rate::from_gbps(4));
        assert_eq!(governor.allow(CONTROLLER).0.burst, CONTROLLER.burst);
    }

    #[test]
    fn time_is_booked_to_the_bound_that_was_active() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut governor = Governor::new(at(0), false);
        governor.account(at(10), Bottleneck::Network);
        governor.account(at(40), Bottleneck::ReceiverDisk);
        governor.account(at(100), Bottleneck::Network);
        governor.account(at(120), Bottleneck::SenderCpu);
        assert_eq!(governor.time_limited_by(Bottleneck::StartUp), Duration::from_millis(10));
        assert_eq!(governor.time_limited_by(Bottleneck::Network), Duration::from_millis(50));
        assert_eq!(governor.time_limited_by(Bottleneck::ReceiverDisk), Duration::from_millis(60));
        assert_eq!(governor.time_limited_by(Bottleneck::SenderCpu), Duration::ZERO, "until booked");
    }

    #[test]
    fn a_path_has_its_share_of_the_connections_limits() {
        let mut governor = Governor::new(Instant::ZERO, false);
        assert_eq!(governor.connection_limit(), None);
        governor.set(Bottleneck::UserLimit, Rate::from_gbps(2));
        governor.set_share(250_000);
        let (pacing, bound) = governor.allow(CONTROLLER);
        assert_eq!((pacing.rate, bound), (Rate::from_mbps(500), Bottleneck::UserLimit));
        assert_eq!(governor.connection_limit(), Some(Rate::from_gbps(2)), "of all paths");
        let beside = governor.beside(Instant::ZERO, false).allow(CONTROLLER);
        assert_eq!((beside.0.rate, beside.1), (Rate::from_gbps(2), Bottleneck::UserLimit));
    }

    #[test]
    fn what_the_receiver_takes_bounds_who_heeds_it() {
        let at = |ms| Instant::from_nanos(1) + Duration::from_millis(ms);
        let rtt = RttEstimator::new(Duration::from_millis(10));
        let rate = Rate::from_gbps(1);
        let interval = Duration::from_millis(5);
        let feedback = |lost| Feedback {
            acked_packets: 400,
            acked_bytes: 600_000,
            lost: Losses { socket: lost, ..Losses::default() },
            rtt: Some(Duration::from_millis(10)),
            delivery: Some(Delivery {
                rate,
                interval,
                sent_over: interval,
                application_limited: false,
            }),
            ..Feedback::default()
        };
        let allowed = |heeds, lost, takes: Option<Rate>| {
            let mut governor = Governor::new(at(0), heeds);
            let mut estimates = Estimates::new(at(0), 1500);
            for tick in 1..=8 {
                governor.on_sent(4 << 20);
                let classified = estimates.on_feedback(at(tick * 5), &rtt, &feedback(lost));
                let socket_buffer = Some(Bytes::from_mib(1));
                let (cause, until) = (Bottleneck::ReceiverCpu, at(1_000));
                let limit = takes.map(|rate| HostLimit { rate, cause, until });
                let receiver = ReceiverState { socket_buffer, limit, ..Default::default() };
                let reported = (&classified, &receiver);
                governor.on_feedback(at(tick * 5), &rtt, &estimates, reported, CONTROLLER.rate);
            }
            let started = governor.allow(CONTROLLER);
            governor.set_controller_bound(Bottleneck::Network);
            let (pacing, bound) = governor.allow(Pacing { window: None, ..CONTROLLER });
            assert_eq!(started.0.rate, pacing.rate);
            assert_eq!(started.0.window, CONTROLLER.window, "not while the controller starts up");
            (pacing.rate, pacing.window, bound)
        };
        let unbound = (CONTROLLER.rate, None, Bottleneck::Network);
        assert_eq!(allowed(false, 5, Some(rate)), unbound);
        // Two round trips of what arrives, and three eighths of the buffer.
        let window = Some(2 * 1_250_000 + (3 << 17));
        assert_eq!(allowed(true, 0, None), (CONTROLLER.rate, window, Bottleneck::ReceiverBuffer));
        let announced = Rate::from_mbps(700);
        assert_eq!(allowed(true, 0, Some(announced)), (announced, window, Bottleneck::ReceiverCpu));
        let (managed, window_then, bound) = allowed(true, 5, None);
        assert_eq!(bound, Bottleneck::ReceiverCpu);
        assert!(managed >= rate.scale(9, 10) && managed < rate, "{managed}");
        assert!(window_then < window, "a smaller share of the buffer");
    }
}
