//! One network path: the controller, governor, pacer and RTT estimate shared by its lanes.

use alloc::boxed::Box;

use longhaul_rate_control::{
    Bound, Context, Controller, Feedback, Governor, Metrics, Pacer, Pacing, RttEstimator, Sent,
};
use longhaul_units::{Duration, Instant, Rate};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Rate control of one path, for all lanes that use it.
///
/// A driver with lanes on several threads keeps it behind a lock that is taken once a batch and
/// once a feedback, never per packet.
#[derive(Debug)]
pub struct Path {
    controller: Box<dyn Controller>,
    governor: Governor,
    pacer: Pacer,
    rtt: RttEstimator,
    rng: Xoshiro256PlusPlus,
    /// IP-layer bytes sent and not settled, over all lanes.
    in_flight: u64,
    /// What the governor allows now.
    allowed: Pacing,
    bound: Bound,
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
            controller,
            governor,
            in_flight: 0,
            allowed,
            bound,
        }
    }

    /// Smoothed and minimum RTT.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Rate allowed now and the bound that sets it.
    pub fn allowed(&self) -> (Rate, Bound) {
        (self.allowed.rate, self.bound)
    }

    /// IP-layer bytes sent and not settled, over all lanes.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The controller's state, for logs and plots.
    pub fn metrics(&self) -> Metrics {
        self.controller.metrics()
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

    /// How long each bound was active.
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    fn renew(&mut self, now: Instant) {
        self.governor.set_controller_bound(self.controller.metrics().bound);
        let (allowed, bound) = self.governor.allow(self.controller.pacing());
        self.governor.account(now, bound);
        self.pacer.set(now, allowed);
        self.allowed = allowed;
        self.bound = bound;
    }

    /// Bytes that make one batch at the allowed rate: the pacing quantum.
    pub(crate) fn quantum(&self) -> u64 {
        self.allowed.burst
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

    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, application_limited: bool) {
        self.in_flight += bytes;
        self.pacer.on_sent(now, bytes);
        let sent = Sent { bytes, in_flight: self.in_flight, application_limited };
        let mut cx = Context { now, rtt: &self.rtt, rng: &mut self.rng };
        self.controller.on_sent(&mut cx, &sent);
    }

    /// Bytes that are neither on their way nor acknowledged any more.
    pub(crate) fn on_settled(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.in_flight, "settled more than was sent");
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    pub(crate) fn on_rtt(&mut self, now: Instant, sample: Duration) {
        self.rtt.update(now, sample);
    }

    pub(crate) fn on_feedback(&mut self, now: Instant, feedback: &Feedback) {
        let mut cx = Context { now, rtt: &self.rtt, rng: &mut self.rng };
        self.controller.on_feedback(&mut cx, feedback);
        self.renew(now);
    }

    pub(crate) fn on_probe_timeout(&mut self, now: Instant) {
        let mut cx = Context { now, rtt: &self.rtt, rng: &mut self.rng };
        self.controller.on_probe_timeout(&mut cx, self.in_flight);
        self.renew(now);
    }

    /// When the controller wants [`Path::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Instant> {
        self.controller.next_timeout()
    }

    /// Lets an interval controller run.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.controller.next_timeout().is_some_and(|at| at <= now) {
            let mut cx = Context { now, rtt: &self.rtt, rng: &mut self.rng };
            self.controller.on_timeout(&mut cx);
            self.renew(now);
        }
    }
}
