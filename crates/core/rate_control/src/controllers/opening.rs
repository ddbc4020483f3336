//! How controllers begin that adjust a rate in steps.

use longhaul_units::{Duration, Instant, Rate};

use super::startup::Startup;
use crate::{Context, Feedback, Pacing, Sent, Start};

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
}

impl Opening {
    /// The start-up of `auto`.
    pub(super) fn new(start: &Start) -> Self {
        Self { startup: Startup::new(start.now, start.packet), packet: start.packet }
    }

    pub(super) fn on_sent(&mut self, now: Instant, sent: &Sent) {
        self.startup.on_sent(now, sent);
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
        if !self.startup.on_feedback(cx.now, cx.rtt, cx.estimates, feedback, slice) {
            return None;
        }
        cx.estimates.lengthen_slices();
        // What arrived in a lump is no rate: more than was sent cannot have come through.
        Some(Found::at(cx.estimates.recent().min(self.startup.rate), first))
    }

    pub(super) fn pacing(&self) -> Pacing {
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

/// A packet of 1500 bytes in 12 s: there is no slower path.
pub(super) const LEAST: Rate = Rate::from_kbps(1);
/// Far beyond any link, far from overflow.
pub(super) const MOST: Rate = Rate::from_gbps(10_000);
/// A timer of the operating system fires up to half a millisecond late; the burst makes up for it.
pub(super) const BURST_TIME: Duration = Duration::from_micros(500);
pub(super) const MAX_BURST: u64 = 512 << 10;
