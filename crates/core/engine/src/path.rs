//! One network path: the controller, governor, pacer and estimates shared by its lanes.

mod kernel_refusals;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

use longhaul_rate_control::{
    Context, Controller, Delivery, Estimates, Feedback, Governor, HostLimit, Known, MemoryUse,
    Metrics, Observation, Pacer, Pacing, PathMemory, Profile, ReceiverState, RttEstimator, Sent,
    SpanMeter, SpanSizes, useful_burst,
};
use longhaul_units::{Bottleneck, Cause, Dscp, Duration, Ecn, Instant, LaneId, Losses, Rate};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use kernel_refusals::KernelRefusals;

/// Rate control of one path, for all lanes that use it.
///
/// A driver with lanes on several threads keeps it behind a lock that is taken once a batch and
/// once a feedback, never per packet.
#[derive(Debug)]
pub struct Path {
    controller: Box<dyn Controller>,
    /// Packets that the controller judges as a whole.
    spans: Spans,
    estimates: Estimates,
    governor: Governor,
    pacer: Pacer,
    rtt: RttEstimator,
    rng: Xoshiro256PlusPlus,
    /// IP-layer bytes sent and not settled, over all lanes.
    in_flight: u64,
    /// A full window held a batch back since feedback last came.
    held: bool,
    /// When feedback last opened a window that had been full.
    opened: Instant,
    lateness: Lateness,
    /// The rate that the governor allows now.
    allowed: Pacing,
    bound: Bottleneck,
    suspension: Option<Suspension>,
    /// It holds, as far as is booked.
    suspended: bool,
    heeds_marks: bool,
    dscp: Dscp,
    /// IP-layer bytes known to have arrived, over all lanes.
    delivered: u64,
    /// The last delivery of each lane.
    deliveries: Vec<LaneDelivery>,
    /// Size of a full packet of each lane that has feedback, headers included.
    packets: Vec<(LaneId, u64)>,
    refusals: KernelRefusals,
    /// A lane finds out what size passes: the others send nothing large before.
    quiet_until: Instant,
}

/// Part of its allowance that the sender lost lately because it was not there to use it.
#[derive(Clone, Copy, Default, Debug)]
struct Lateness {
    lost: Duration,
    used: Duration,
}

impl Lateness {
    /// A batch that takes `used` of the allowance left after `lost` had passed unused.
    fn add(&mut self, lost: Duration, used: Duration) {
        self.lost = self.lost * 31 / 32 + lost;
        self.used = self.used * 31 / 32 + used;
    }

    /// True if the sender's processor sets the rate, rather than what is allowed: an eighth is
    /// lost. Single batches are late on every busy host, and the burst makes up for most of them.
    fn is_bound(&self) -> bool {
        self.lost * 7 > self.used
    }
}

/// The spans that are being measured.
#[derive(Debug)]
struct Spans {
    segment: Option<SpanMeter>,
    chunk: Option<SpanMeter>,
}

impl Spans {
    fn new(now: Instant, sizes: SpanSizes) -> Self {
        let [segment, chunk] = [sizes.segment, sizes.chunk]
            .map(|size| size.map(|packets| SpanMeter::new(now, packets)));
        Self { segment, chunk }
    }
}

/// SUSPEND (protocol.md 5.11): the receiving host is the same for all lanes of a connection. The greater
/// one holds: that of the later order, and of several with one order the one that ends first, which
/// came by the shortest path. So all paths come to the same one, whatever came first on each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Suspension {
    /// A higher one replaces a lower one.
    pub order: u64,
    /// No object bytes before.
    pub until: Instant,
}

impl Ord for Suspension {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.order, Reverse(self.until)).cmp(&(other.order, Reverse(other.until)))
    }
}

impl PartialOrd for Suspension {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Copy, Debug)]
struct LaneDelivery {
    lane: LaneId,
    rate: Rate,
    /// Until when it counts, if nothing newer comes.
    until: Instant,
}

impl Path {
    /// A path whose RTT is probably `rtt` (that of the control connection), under `controller`.
    pub fn new(
        now: Instant,
        controller: Box<dyn Controller>,
        governor: Governor,
        rtt: Duration,
        seed: u64,
    ) -> Self {
        let (allowed, bound) = governor.allow(controller.pacing());
        Self {
            pacer: Pacer::new(now, allowed),
            rtt: RttEstimator::new(rtt),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            spans: Spans::new(now, controller.spans()),
            estimates: Estimates::new(now, FULL_PACKET),
            controller,
            governor,
            in_flight: 0,
            held: false,
            opened: now,
            lateness: Lateness::default(),
            allowed,
            bound,
            suspension: None,
            suspended: false,
            heeds_marks: false,
            dscp: Dscp::BestEffort,
            delivered: 0,
            deliveries: Vec::new(),
            packets: Vec::new(),
            refusals: KernelRefusals::default(),
            quiet_until: now,
        }
    }

    /// The same, with the IP headers that `profile` wants: packets are ECN-capable where it heeds
    /// marks, and have its codepoint of differentiated services.
    #[must_use]
    pub fn playing(self, profile: &Profile) -> Self {
        Self { heeds_marks: profile.heeds_marks, dscp: profile.dscp, ..self }
    }

    pub(crate) fn heeds_marks(&self) -> bool {
        self.heeds_marks
    }

    /// The codepoint by which its packets ask for marks, if they may.
    pub(crate) fn codepoint(&self) -> Ecn {
        if self.heeds_marks { self.controller.codepoint() } else { Ecn::NotEct }
    }

    pub(crate) fn dscp(&self) -> Dscp {
        self.dscp
    }

    /// Smoothed and minimum RTT.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Rate allowed now and the bound that sets it.
    pub fn allowed(&self) -> (Rate, Bottleneck) {
        (self.allowed.rate, self.bound)
    }

    /// IP-layer bytes sent and not settled, over all lanes.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The rate that is reserved for it now, under a controller that follows a booking.
    pub fn reserved(&self) -> Option<Rate> {
        let is_booked = self.controller.metrics().bound == Bottleneck::Reservation;
        is_booked.then(|| self.controller.pacing().rate)
    }

    /// IP-layer bytes known to have arrived, over all lanes.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The controller's state, for logs and plots.
    pub fn metrics(&self) -> Metrics {
        self.controller.metrics()
    }

    /// Its state, for logs and plots.
    pub fn estimates(&self) -> &Estimates {
        &self.estimates
    }

    /// Losses of what was sent over it, by cause.
    pub fn losses(&self) -> Losses {
        self.estimates.losses()
    }

    /// The controller's name.
    pub fn controller(&self) -> &'static str {
        self.controller.name()
    }

    /// Changes a bound that is not the controller's; takes effect at once.
    pub fn govern(&mut self, now: Instant, change: impl FnOnce(&mut Governor)) {
        change(&mut self.governor);
        self.renew(now);
    }

    /// Goes on under another controller, as when a booking has changed.
    pub fn set_controller(&mut self, now: Instant, controller: Box<dyn Controller>) {
        self.spans = Spans::new(now, controller.spans());
        self.controller = controller;
        self.renew(now);
    }

    /// State for a controller that takes over now and is to go on where this one is.
    pub fn known(&self) -> Known {
        Known { rate: self.allowed.rate, round_trip: self.rtt.smoothed() }
    }

    /// Applies the history of the path; to be called before the first data.
    pub fn recall(&mut self, now: Instant, memory: &PathMemory) {
        self.controller.recall(memory);
        self.renew(now);
    }

    /// Use that the controller made of the history given to [`Path::recall`]; `None` where it does
    /// not build on it.
    pub fn memory_use(&self) -> Option<MemoryUse> {
        self.controller.memory_use()
    }

    /// The profile whose controller is at work, where one that has several chose it.
    pub fn member(&self) -> Option<&'static str> {
        self.controller.member()
    }

    /// This transfer's observation of the path, for those to come; `None` before much was delivered.
    /// The path carries at least the rate that start-up has seen, and any rate that was about as fast as
    /// allowed.
    pub fn observed(&self) -> Option<Observation> {
        let packet = self.estimates.packet();
        let (rate, round_trip) = (self.estimates.bandwidth()?, self.estimates.min_rtt()?);
        if self.delivered < OBSERVED_BYTES.max(rate.bytes_in(round_trip * 4)) {
            return None;
        }
        let started = self.controller.metrics().bound != Bottleneck::StartUp;
        let limited = self.governor.set_limit().is_some_and(|limit| rate >= limit.scale(3, 4));
        let by_path = started && !limited && self.governor.longest() == Bottleneck::Network;
        // Start-up's overflow, seen late, comes in rounds without a queue.
        let (losses, arrived) = (self.losses(), self.delivered / packet.max(1));
        let lost = losses.random + losses.unknown;
        let most = lost * 1_000_000 / (lost + arrived).max(1);
        let chance = self.estimates.chance_ppm().unwrap_or(0);
        let chance_ppm = chance.min(u32::try_from(most).unwrap_or(u32::MAX));
        // What was held up somewhere came faster for a moment.
        let rate = self.governor.connection_limit().map_or(rate, |limit| rate.min(limit));
        Some(Observation { rate, by_path, round_trip, packet, chance_ppm })
    }

    /// Size of a full packet of `lane`, headers included. The largest of all lanes counts: each finds
    /// its path MTU by itself, and what a burst has room for must not change with who reports.
    pub(crate) fn set_packet(&mut self, lane: LaneId, bytes: u64) {
        match self.packets.iter_mut().find(|(other, _)| *other == lane) {
            Some((_, packet)) => *packet = bytes,
            None => self.packets.push((lane, bytes)),
        }
        let largest = self.packets.iter().map(|(_, packet)| *packet).max();
        self.estimates.set_packet(largest.unwrap_or(bytes));
    }

    /// Time for which each bound was active.
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// The controller, and what it may look at.
    fn controlled(&mut self, now: Instant) -> (&mut dyn Controller, Context<'_>) {
        let Self { controller, estimates, rtt, rng, .. } = self;
        (&mut **controller, Context { now, rtt, estimates, rng })
    }

    fn renew(&mut self, now: Instant) {
        self.governor.set_controller_bound(self.controller.metrics().bound);
        let (allowed, mut bound) = self.governor.allow(self.controller.pacing());
        self.suspended = self.suspended_until(now).is_some();
        if self.suspended {
            bound = Bottleneck::ReceiverCpu;
        } else if self.is_sender_bound() {
            bound = Bottleneck::SenderCpu;
        }
        self.governor.account(now, bound);
        self.pacer.set(now, allowed);
        self.allowed = allowed;
        self.bound = bound;
    }

    /// The peer wants no object bytes for a while, whichever lane of whichever path has brought its
    /// wish.
    pub fn suspend(&mut self, now: Instant, suspension: Suspension) {
        if self.suspension < Some(suspension) {
            self.suspension = Some(suspension);
            self.renew(now);
        }
    }

    /// The receiving host takes no more than that for a while, as it has reported over another path.
    pub fn heed(&mut self, now: Instant, limit: HostLimit) {
        self.govern(now, |governor| governor.heed(limit));
    }

    /// The peer's last SUSPEND.
    pub fn suspension(&self) -> Option<Suspension> {
        self.suspension
    }

    /// Until when no object bytes may go, if not now.
    pub(crate) fn suspended_until(&self, now: Instant) -> Option<Instant> {
        self.suspension.map(|suspension| suspension.until).filter(|until| *until > now)
    }

    /// Bytes that make one batch at the allowed rate: the pacing quantum. The other half of the
    /// burst is for catching up after timers that fire late, and all of a deeper one after pauses: a longer
    /// batch would look like a queue to a receiver that takes it as one.
    pub(crate) fn quantum(&self) -> u64 {
        let Pacing { rate, burst, .. } = self.allowed;
        (burst / 2).min(useful_burst(rate, self.estimates().packet()))
    }

    /// A batch has to wait for feedback.
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    /// Time for which the sender has been losing allowance by its own fault: neither pacing nor window nor
    /// the peer held it. Zero while that is too short to show.
    pub(crate) fn sender_late_by(&self, now: Instant) -> Duration {
        let resumed = self.suspension.map_or(Instant::ZERO, |suspension| suspension.until);
        let late = now - self.pacer.full_since().max(self.opened).max(resumed);
        if self.held || late <= LATE { Duration::ZERO } else { late }
    }

    /// True if this host's processor sets the rate: then what arrives says little of the path.
    pub(crate) fn is_sender_bound(&self) -> bool {
        self.lateness.is_bound()
    }

    /// When `bytes` may be sent, `None` for now.
    pub(crate) fn earliest(&self, now: Instant, bytes: u64) -> Option<Instant> {
        self.pacer.earliest(now, bytes)
    }

    /// Bytes that the cap on bytes in flight leaves, `None` without a cap.
    pub(crate) fn window_room(&self) -> Option<u64> {
        self.allowed.window.map(|window| window.saturating_sub(self.in_flight))
    }

    pub(crate) fn window(&self) -> Option<u64> {
        self.allowed.window
    }

    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        bytes: u64,
        application_limited: bool,
        late_by: Duration,
    ) {
        self.lateness.add(late_by, self.allowed.rate.time_for(bytes));
        self.count_sent(now, Sent { bytes, application_limited, late_by, ..Sent::default() });
    }

    /// Control bytes left.
    pub(crate) fn on_control_sent(&mut self, now: Instant, bytes: u64) {
        self.count_sent(now, Sent { bytes, control: true, ..Sent::default() });
    }

    fn count_sent(&mut self, now: Instant, sent: Sent) {
        self.in_flight += sent.bytes;
        self.pacer.on_sent(now, sent.bytes);
        self.governor.on_sent(self.in_flight);
        let sent = Sent { in_flight: self.in_flight, ..sent };
        let (controller, mut cx) = self.controlled(now);
        controller.on_sent(&mut cx, &sent);
    }

    /// Bytes that are no longer in flight, and not acknowledged.
    pub(crate) fn on_settled(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.in_flight, "settled more than was sent");
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// A lane goes elsewhere; its bytes in flight, so many, count no more.
    pub(crate) fn on_left(&mut self, lane: LaneId, bytes: u64) {
        self.on_settled(bytes);
        self.deliveries.retain(|other| other.lane != lane);
        self.packets.retain(|(other, _)| *other != lane);
    }

    /// The local stack did not take these packets: that says nothing of the path, so no controller
    /// hears of it.
    pub(crate) fn on_refused(&mut self, packets: u64, bytes: u64) {
        self.on_settled(bytes);
        self.book(&Losses { sender: packets, ..Losses::default() });
    }

    /// No lane sends objects or messages before.
    pub(crate) fn keep_quiet(&mut self, until: Instant) {
        self.quiet_until = self.quiet_until.max(until);
    }

    /// Until when that holds, if it does.
    pub(crate) fn quiet_until(&self, now: Instant) -> Option<Instant> {
        Some(self.quiet_until).filter(|until| *until > now)
    }

    /// When the local stack, which refuses packets, may be offered one again.
    pub(crate) fn refuses_until(&self) -> Option<Instant> {
        self.refusals.until()
    }

    /// A lane offers it one: the others wait.
    pub(crate) fn claim_offer(&mut self, now: Instant) {
        self.refusals.claim(now);
    }

    /// The stack took nothing of what it was offered.
    pub(crate) fn on_offer_refused(&mut self, now: Instant) {
        self.refusals.on_refused(now);
    }

    /// It took some.
    pub(crate) fn on_offer_taken(&mut self) {
        self.refusals.on_taken();
    }

    /// And the stack is to be offered less.
    pub(crate) fn slow_sender(&mut self, now: Instant) {
        self.governor.on_refused(now, self.rtt.smoothed(), self.allowed.rate);
        self.renew(now);
    }

    /// Losses that no controller hears of.
    pub(crate) fn book(&mut self, lost: &Losses) {
        self.estimates.book(lost);
    }

    pub(crate) fn on_rtt(&mut self, now: Instant, sample: Duration) {
        self.rtt.update(now, sample);
    }

    /// A packet that was sent at `sent` arrived, after so long.
    pub(crate) fn on_arrived(
        &mut self,
        now: Instant,
        sent: Instant,
        rtt: Option<Duration>,
        one_way_delta: Option<i64>,
    ) {
        self.estimates.on_arrived(now, sent, rtt, one_way_delta);
    }

    /// Why `packets` were lost on it that were sent at `sent`.
    pub(crate) fn cause(&mut self, sent: Instant, packets: u64) -> Cause {
        self.estimates.cause(sent, packets)
    }

    /// Adds the recent samples of the other lanes: a lane sees only its share, and the controller would
    /// take the share for the whole.
    pub(crate) fn joined(&mut self, now: Instant, lane: LaneId, sample: Delivery) -> Delivery {
        self.deliveries.retain(|other| other.lane != lane && other.until >= now);
        let others = self.deliveries.iter().fold(Rate::ZERO, |sum, other| sum + other.rate);
        let until = now + sample.interval * 3 / 2;
        self.deliveries.push(LaneDelivery { lane, rate: sample.rate, until });
        // Samples come from every lane, and together they cover the time once.
        let lanes = u32::try_from(self.deliveries.len()).unwrap_or(u32::MAX);
        let (interval, sent_over) = (sample.interval / lanes, sample.sent_over / lanes);
        Delivery { rate: sample.rate + others, interval, sent_over, ..sample }
    }

    pub(crate) fn on_feedback(
        &mut self,
        now: Instant,
        feedback: &Feedback,
        receiver: &ReceiverState,
    ) {
        self.delivered += feedback.acked_bytes;
        let feedback = Feedback { capacity: receiver.capacity, ..*feedback };
        let feedback = self.estimates.on_feedback(now, &self.rtt, &feedback);
        let (controller, mut cx) = self.controlled(now);
        controller.on_feedback(&mut cx, &feedback);
        self.measure_spans(now, &feedback);
        let wanted = self.controller.pacing().rate;
        let Self { governor, estimates, rtt, .. } = self;
        governor.on_feedback(now, rtt, estimates, (&feedback, receiver), wanted);
        if core::mem::take(&mut self.held) {
            self.opened = now;
        }
        self.renew(now);
    }

    fn measure_spans(&mut self, now: Instant, feedback: &Feedback) {
        let [segment, chunk] = [&mut self.spans.segment, &mut self.spans.chunk]
            .map(|meter| meter.as_mut().and_then(|meter| meter.on_feedback(now, feedback)));
        let (controller, mut cx) = self.controlled(now);
        if let Some(segment) = segment {
            controller.on_segment(&mut cx, &segment);
        }
        if let Some(chunk) = chunk {
            controller.on_chunk(&mut cx, &chunk);
        }
    }

    pub(crate) fn on_probe_timeout(&mut self, now: Instant) {
        let in_flight = self.in_flight;
        let (controller, mut cx) = self.controlled(now);
        controller.on_probe_timeout(&mut cx, in_flight);
        self.renew(now);
    }

    /// When [`Path::handle_timeout`] has something to do.
    pub fn next_timeout(&self) -> Option<Instant> {
        let resumes = self.suspension.filter(|_| self.suspended).map(|suspension| suspension.until);
        let due = [self.controller.next_timeout(), self.governor.expires(), resumes];
        due.into_iter().flatten().min()
    }

    /// Lets an interval controller run, and ends what the peer wished for a while.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_over = self.suspended && self.suspended_until(now).is_none();
        if self.governor.expire(now) || is_over {
            self.renew(now);
        }
        if self.controller.next_timeout().is_some_and(|at| at <= now) {
            let (controller, mut cx) = self.controlled(now);
            controller.on_timeout(&mut cx);
            self.renew(now);
        }
    }
}

/// IP-layer bytes of a full packet on most paths.
const FULL_PACKET: u64 = 1500;
/// A thousand packets; fewer tell little of a path.
const OBSERVED_BYTES: u64 = 1_000 * FULL_PACKET;
/// A batch this late shows in the delivery rate.
const LATE: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_rate_control::Profile;

    #[test]
    fn the_controller_sees_what_all_lanes_deliver_together() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let chosen = Profile::wished(Some("auto"), None, []).unwrap();
        let controller = chosen.controller(at(0), 1500, None);
        let rtt = Duration::from_millis(80);
        let mut path = Path::new(at(0), controller, Governor::new(at(0), false), rtt, 1);
        let interval = Duration::from_millis(10);
        let sample = |mbps| Delivery {
            rate: Rate::from_mbps(mbps),
            interval,
            sent_over: interval,
            application_limited: false,
        };
        assert_eq!(path.joined(at(10), LaneId(0), sample(100)), sample(100));
        let both = path.joined(at(12), LaneId(1), sample(50));
        assert_eq!((both.rate, both.interval), (Rate::from_mbps(150), interval / 2));
        let renewed = path.joined(at(20), LaneId(0), sample(80));
        assert_eq!(renewed.rate, Rate::from_mbps(130));
        // Lane 1 has fallen silent.
        assert_eq!(path.joined(at(30), LaneId(0), sample(90)), sample(90));
    }

    #[test]
    fn the_largest_packet_of_all_lanes_counts() {
        let at = Instant::ZERO;
        let chosen = Profile::wished(Some("auto"), None, []).unwrap();
        let controller = chosen.controller(at, 1500, None);
        let mut path = Path::new(at, controller, Governor::new(at, false), Duration::ZERO, 1);
        let mut largest = |lane, bytes| {
            path.set_packet(LaneId(lane), bytes);
            path.estimates.packet()
        };
        assert_eq!([largest(0, 1500), largest(1, 9000), largest(0, 4000)], [1500, 9000, 9000]);
        path.on_left(LaneId(1), 0);
        path.set_packet(LaneId(0), 4000);
        assert_eq!(path.estimates.packet(), 4000);
    }

    #[test]
    fn a_suspend_holds_all_lanes_until_it_is_over_or_lifted() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let chosen = Profile::wished(Some("auto"), None, []).unwrap();
        let controller = chosen.controller(at(0), 1500, None);
        let mut path =
            Path::new(at(0), controller, Governor::new(at(0), false), Duration::from_millis(80), 1);
        assert_eq!(path.suspended_until(at(0)), None);
        path.suspend(at(0), Suspension { order: 2, until: at(300) });
        // Received again on another lane, or older and late.
        path.suspend(at(0), Suspension { order: 2, until: at(310) });
        assert_eq!(path.suspended_until(at(0)), Some(at(300)), "the shorter path");
        path.suspend(at(0), Suspension { order: 1, until: at(900) });
        assert_eq!(path.suspended_until(at(299)), Some(at(300)));
        assert_eq!(path.suspended_until(at(300)), None);
        path.suspend(at(0), Suspension { order: 3, until: at(500) });
        path.suspend(at(0), Suspension { order: 4, until: at(350) });
        assert_eq!(path.suspended_until(at(350)), None, "lifted");
    }

    #[test]
    fn a_sender_behind_what_it_may_send_is_late_unless_the_window_held_it() {
        let at = |us| Instant::ZERO + Duration::from_secs(1) + Duration::from_micros(us);
        let chosen = Profile::wished(Some("fixed"), Some(Rate::from_gbps(1)), []).unwrap();
        let controller = chosen.controller(at(0), 1500, None);
        let rtt = Duration::from_millis(10);
        let mut path = Path::new(at(0), controller, Governor::new(at(0), false), rtt, 1);
        let burst = path.quantum() * 2;
        path.on_sent(at(0), burst, false, Duration::ZERO);
        let full = path.pacer.full_since();
        assert_eq!(path.sender_late_by(full + LATE), Duration::ZERO);
        assert_eq!(path.sender_late_by(full + LATE * 2), LATE * 2);
        path.hold();
        assert_eq!(path.sender_late_by(full + LATE * 2), Duration::ZERO);
        let feedback = full + LATE * 4;
        path.on_feedback(feedback, &Feedback::default(), &ReceiverState::default());
        assert_eq!(path.sender_late_by(feedback + LATE), Duration::ZERO);
        assert_eq!(path.sender_late_by(feedback + LATE * 2), LATE * 2);
    }

    #[test]
    fn a_sender_that_loses_much_of_its_allowance_is_the_bound() {
        let at = |us| Instant::ZERO + Duration::from_secs(1) + Duration::from_micros(us);
        let chosen = Profile::wished(Some("fixed"), Some(Rate::from_mbps(12)), []).unwrap();
        let controller = chosen.controller(at(0), 1500, None);
        let rtt = Duration::from_millis(10);
        let mut path = Path::new(at(0), controller, Governor::new(at(0), false), rtt, 1);
        // A packet takes a millisecond of 12 Mb/s.
        let mut bound_after = |late_by| {
            for _ in 0..100 {
                path.on_sent(at(0), 1500, false, Duration::from_micros(late_by));
            }
            path.on_feedback(at(1), &Feedback::default(), &ReceiverState::default());
            path.allowed().1
        };
        assert_eq!(bound_after(0), Bottleneck::UserLimit);
        assert_eq!(bound_after(100), Bottleneck::UserLimit);
        assert_eq!(bound_after(200), Bottleneck::SenderCpu);
        assert_eq!(bound_after(100), Bottleneck::UserLimit);
    }
}
