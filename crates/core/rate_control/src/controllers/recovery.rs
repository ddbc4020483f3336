//! Loss events: losses of one round trip, and silences that count as a loss.

use longhaul_units::{Duration, Instant};

use crate::controller::Context;
use crate::rtt::RttEstimator;

/// State of controllers that cut a window once for all that is lost in a round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// Losses before this time are of an event that was heeded.
    until: Instant,
    last_feedback: Instant,
    /// No feedback came for so long that the window began again.
    collapsed: bool,
}

impl Recovery {
    pub(super) fn new(now: Instant) -> Self {
        Self { until: now, last_feedback: now, collapsed: false }
    }

    /// Feedback has come; called before [`Recovery::heeds`]. Returns the time since the feedback before.
    pub(super) fn on_feedback(&mut self, cx: &Context<'_>) -> Duration {
        let elapsed = cx.now - self.last_feedback;
        self.last_feedback = cx.now;
        if core::mem::take(&mut self.collapsed) {
            self.begin(cx);
        }
        elapsed
    }

    /// Returns whether losses now are of a new event.
    pub(super) fn heeds(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// The window was cut: until the fate of what left before is known, losses are of this event.
    pub(super) fn begin(&mut self, cx: &Context<'_>) {
        let round_trip = cx.rtt.smoothed().max(cx.rtt.latest());
        self.until = cx.now + round_trip + round_trip / 4 + MIN_DELAY;
    }

    /// No feedback came for a probe timeout: returns true once that is persistent congestion.
    pub(super) fn collapses(&mut self, cx: &Context<'_>) -> bool {
        let collapses = !self.collapsed && cx.now - self.last_feedback >= long_silence(cx.rtt);
        self.collapsed |= collapses;
        collapses
    }
}

/// Three probe timeouts: a silence of persistent congestion (RFC 9002 section 7.6).
pub(super) fn long_silence(rtt: &RttEstimator) -> Duration {
    (rtt.smoothed() + rtt.variation() * 4).max(LEAST_SILENCE) * 3
}

/// Shortest time between reports, and as much for what they wait for.
const MIN_DELAY: Duration = Duration::from_millis(1);
/// Shorter ones are those of busy hosts.
const LEAST_SILENCE: Duration = Duration::from_millis(35);
