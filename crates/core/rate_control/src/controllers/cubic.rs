//! Profile `cubic`: what TCP does, as a reference.

mod hystart;
mod window;

use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Instant, Rate};

use super::first_train::FirstTrain;
use super::flight::Flight;
use super::paced::{FIRST_WINDOW, first_flight, known_window, paced};
use super::recovery::Recovery;
use super::rounds::Rounds;
use crate::controller::{Context, Controller, ControllerConfig, Metrics, Pacing, Sent, Start};
use crate::feedback::Feedback;
use crate::parameters::Parameter;

use hystart::HyStart;
pub(super) use window::CubicWindow;

/// CUBIC (RFC 9438) with HyStart++ (RFC 9406), paced as Linux paces it.
///
/// docs/rate-control.md has the equations, and what differs.
#[derive(Clone, Debug)]
pub struct Cubic {
    window: CubicWindow,
    /// Below this, in bytes, slow start.
    threshold: u64,
    /// Of the first slow start.
    hystart: Option<HyStart>,
    rounds: Rounds,
    flight: Flight,
    recovery: Recovery,
    train: FirstTrain,
    pacing: Pacing,
}

impl Cubic {
    fn new(start: &Start) -> Self {
        let Start { now, packet, .. } = *start;
        let first = start.parameters.get(FIRST_WINDOW.name);
        let (bytes, pacing) = match &start.known {
            None => {
                let pacing = first_flight(first, packet);
                (first * packet, pacing)
            }
            Some(known) => {
                let bytes = known_window(known, packet);
                let rate = known.rate.max(Rate::from_bytes_over(2 * packet, known.round_trip));
                (bytes, Pacing { rate, burst: 2 * packet, window: Some(bytes) })
            }
        };
        Self {
            window: CubicWindow::new(now, packet, bytes, LEAST_PACKETS),
            threshold: if start.known.is_some() { 0 } else { u64::MAX },
            hystart: start.known.is_none().then(HyStart::new),
            rounds: Rounds::default(),
            flight: Flight::default(),
            recovery: Recovery::new(now),
            train: FirstTrain::new(if start.known.is_some() { 0 } else { bytes }),
            pacing,
        }
    }

    fn in_slow_start(&self) -> bool {
        self.window.bytes() < self.threshold
    }

    /// Returns whether the window bounds the flow: if it does not, arrivals are no reason for a
    /// larger one.
    fn is_used(&self) -> bool {
        let flight = self.flight.most();
        let window = self.window.bytes();
        if self.in_slow_start() { flight >= window / 2 } else { flight >= window - window / 8 }
    }

    fn grow(&mut self, cx: &Context<'_>, feedback: &Feedback, round_is_over: bool) {
        if !self.in_slow_start() {
            self.window.on_acked(cx.now, cx.rtt.smoothed(), feedback.acked_bytes);
            return;
        }
        let mut growth = feedback.acked_bytes;
        if let Some(hystart) = &mut self.hystart {
            feedback.rtt.into_iter().for_each(|sample| hystart.on_sample(sample));
            let round_trip = cx.estimates.min_rtt().unwrap_or(cx.rtt.smoothed());
            let careful = self.train.growth(self.window.bytes(), round_trip, growth);
            growth = hystart.growth(growth).min(careful);
            if round_is_over && hystart.on_round() {
                self.threshold = self.window.bytes();
            }
        }
        let bytes = self.window.bytes().saturating_add(growth);
        self.window.set(bytes.min(self.threshold).max(self.window.bytes()));
        if !self.in_slow_start() {
            self.hystart = None;
            self.window.begin(cx.now);
        }
    }

    fn cut(&mut self, now: Instant, marked: bool) {
        // Of the window, what was used: RFC 9438 section 4.6.
        self.window.set(self.window.bytes().min(self.flight.most()));
        self.window.on_congestion(now, marked);
        self.threshold = self.window.bytes();
        self.hystart = None;
    }

    fn decide(&mut self, cx: &Context<'_>) {
        if self.train.is_under_way() {
            return;
        }
        let window = self.window.bytes();
        let (gain, of) = if self.in_slow_start() { (2, 1) } else { (5, 4) };
        let rate = Rate::from_bytes_over(window, cx.rtt.smoothed()).scale(gain, of);
        self.pacing = paced(rate, window, cx.estimates);
    }
}

impl Controller for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_sent(&mut self, _cx: &mut Context<'_>, sent: &Sent) {
        self.flight.on_sent(sent.in_flight);
        self.train.on_sent(sent);
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        let elapsed = self.recovery.on_feedback(cx);
        self.train.on_feedback(feedback);
        self.window.set_packet(cx.estimates.packet());
        let lost = feedback.lost.network() > 0;
        let round_is_over = self.rounds.on_feedback(feedback);
        if (lost || feedback.marked_packets > 0) && self.recovery.heeds(cx.now) {
            self.cut(cx.now, !lost);
            self.recovery.begin(cx);
        } else if self.is_used() {
            self.grow(cx, feedback, round_is_over);
        } else {
            self.window.hold(elapsed);
        }
        if round_is_over {
            self.flight.on_round(feedback.in_flight);
        }
        self.decide(cx);
    }

    fn on_probe_timeout(&mut self, cx: &mut Context<'_>, _in_flight: u64) {
        if self.recovery.collapses(cx) {
            self.cut(cx.now, false);
            self.window.set(0);
            self.train.end();
            self.decide(cx);
        }
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn metrics(&self) -> Metrics {
        let (state, bound) = match (self.in_slow_start(), self.hystart.is_some()) {
            (true, true) => ("slow start", Bottleneck::StartUp),
            (true, false) => ("slow start again", Bottleneck::Network),
            (false, _) => ("avoidance", Bottleneck::Network),
        };
        Metrics { state, bound }
    }
}

/// Makes [`Cubic`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CubicConfig;

impl ControllerConfig for CubicConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &[FIRST_WINDOW]
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Cubic::new(start))
    }
}

/// RFC 9002 section 7.2.
const LEAST_PACKETS: u64 = 2;

#[cfg(test)]
mod tests;
