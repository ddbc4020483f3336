//! Profile `cubic`: what TCP does, as a reference.

mod hystart;
mod window;

use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use super::paced::{FIRST_WINDOW, first_flight, known_window, paced};
use super::rounds::Rounds;
use crate::{
    Context, Controller, ControllerConfig, Feedback, Metrics, Pacing, Parameter, Sent, Start,
};

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
    /// Most bytes in flight in the last round, and in the present one.
    flight: (u64, u64),
    /// What was lost before this is of a congestion event that was heeded.
    recovery: Instant,
    heard: Instant,
    /// Nothing was heard for so long that the window began anew.
    collapsed: bool,
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
            flight: (0, 0),
            recovery: now,
            heard: now,
            collapsed: false,
            pacing,
        }
    }

    fn in_slow_start(&self) -> bool {
        self.window.bytes() < self.threshold
    }

    /// Whether the window is what bounds the flow: if it is not, what arrives is no reason for a
    /// larger one.
    fn is_used(&self) -> bool {
        let flight = self.flight.0.max(self.flight.1);
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
            growth = hystart.growth(growth);
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
        let used = self.flight.0.max(self.flight.1);
        self.window.set(self.window.bytes().min(used));
        self.window.on_congestion(now, marked);
        self.threshold = self.window.bytes();
        self.hystart = None;
    }

    /// Round trip of what left at the time of a cut, until its fate is known.
    fn recovery_time(cx: &Context<'_>) -> Duration {
        let round_trip = cx.rtt.smoothed().max(cx.rtt.latest());
        round_trip + round_trip / 4 + MIN_DELAY
    }

    fn decide(&mut self, cx: &Context<'_>) {
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
        self.flight.1 = self.flight.1.max(sent.in_flight);
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        let elapsed = cx.now - self.heard;
        self.heard = cx.now;
        self.window.set_packet(cx.estimates.packet());
        if core::mem::take(&mut self.collapsed) {
            self.recovery = cx.now + Self::recovery_time(cx);
        }
        let lost = feedback.lost.network() > 0;
        let round_is_over = self.rounds.on_feedback(feedback);
        if (lost || feedback.marked_packets > 0) && cx.now >= self.recovery {
            self.cut(cx.now, !lost);
            self.recovery = cx.now + Self::recovery_time(cx);
        } else if self.is_used() {
            self.grow(cx, feedback, round_is_over);
        } else {
            self.window.hold(elapsed);
        }
        if round_is_over {
            self.flight = (self.flight.1, feedback.in_flight);
        }
        self.decide(cx);
    }

    /// RFC 9002 section 7.6: a silence of three probe timeouts is persistent congestion.
    fn on_probe_timeout(&mut self, cx: &mut Context<'_>, _in_flight: u64) {
        let silence = (cx.rtt.smoothed() + cx.rtt.variation() * 4).max(LEAST_SILENCE) * 3;
        if self.collapsed || cx.now - self.heard < silence {
            return;
        }
        self.collapsed = true;
        self.cut(cx.now, false);
        self.window.set(0);
        self.decide(cx);
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
/// Shortest time between reports, and as much for what they wait for.
const MIN_DELAY: Duration = Duration::from_millis(1);
/// Shorter ones are those of busy hosts.
const LEAST_SILENCE: Duration = Duration::from_millis(35);

#[cfg(test)]
mod tests;
