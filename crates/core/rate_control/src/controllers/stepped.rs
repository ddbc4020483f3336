//! A controller that finds a link and then adjusts a rate in steps, whatever decides of the steps.

use alloc::boxed::Box;
use core::fmt::Debug;

use longhaul_units::{Bottleneck, Duration, Rate};

use super::opening::{BURST_TIME, Found, LEAST, MAX_BURST, MOST, Opening};
use super::paced::least_rate;
use crate::controller::{Context, Controller, Metrics, Pacing, Sent, Start};
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Unit};
use crate::spans::{Span, SpanSizes};

/// Decides the steps.
pub(super) trait Steps: Debug + Send {
    /// Name of the algorithm.
    const NAME: &'static str;

    /// Takes the rates of the path; called before all else.
    fn begin(&mut self, found: Found);

    fn spans(&self) -> SpanSizes {
        SpanSizes::default()
    }

    fn on_feedback(&mut self, _cx: &mut Context<'_>, _feedback: &Feedback) {}

    fn on_segment(&mut self, _cx: &mut Context<'_>, _segment: &Span) {}

    fn on_chunk(&mut self, _cx: &mut Context<'_>, _chunk: &Span) {}

    fn rate(&self) -> Rate;

    /// Most bytes in flight that the algorithm itself allows.
    fn window(&self) -> u64 {
        u64::MAX
    }

    /// Time that reports wait beyond the usual.
    fn reports_wait(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns whether nothing but the link keeps the rate down, as far as the algorithm knows.
    fn is_bound_by_link(&self) -> bool {
        false
    }

    fn state(&self) -> &'static str;
}

/// The steps, and the way to the first of them.
#[derive(Debug)]
pub(super) struct Stepped<S> {
    opening: Option<Box<Opening>>,
    /// Parts per million of the link that are used at first.
    first: u32,
    /// The user's rate, which is then taken for the link's.
    by_user: Option<Rate>,
    steps: S,
    pacing: Pacing,
}

impl<S: Steps> Stepped<S> {
    pub(super) fn new(start: &Start, first: u32, mut steps: S) -> Self {
        let by_user = start.rate;
        match Found::at_start(start, first) {
            Some(found) => {
                steps.begin(found);
                let round_trip = start.known.map_or(FIRST_ROUND_TRIP, |known| known.round_trip);
                let pacing = paced(steps.rate(), steps.window(), round_trip, start.packet);
                Self { opening: None, first, by_user, steps, pacing }
            }
            None => {
                let opening = Box::new(Opening::new(start));
                let pacing = opening.pacing();
                Self { opening: Some(opening), first, by_user, steps, pacing }
            }
        }
    }

    fn decide(&mut self, cx: &Context<'_>) {
        self.pacing = match &self.opening {
            Some(opening) => opening.pacing(),
            None => {
                let (round_trip, packet) = (cx.rtt.smoothed(), cx.estimates.packet());
                // A link that was found too small, because of what it lost, must not hold for ever.
                let rate = self.steps.rate().max(least_rate(round_trip, packet));
                paced(rate, self.steps.window(), round_trip + self.steps.reports_wait(), packet)
            }
        };
    }
}

impl<S: Steps> Controller for Stepped<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn on_sent(&mut self, cx: &mut Context<'_>, sent: &Sent) {
        if let Some(opening) = &mut self.opening {
            opening.on_sent(cx.now, cx.rtt, sent);
        }
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        match &mut self.opening {
            None => self.steps.on_feedback(cx, feedback),
            Some(opening) => {
                if let Some(found) = opening.on_feedback(cx, feedback, self.first) {
                    self.steps.begin(found);
                    self.opening = None;
                }
            }
        }
        self.decide(cx);
    }

    fn spans(&self) -> SpanSizes {
        self.steps.spans()
    }

    fn on_segment(&mut self, cx: &mut Context<'_>, segment: &Span) {
        if self.opening.is_none() {
            self.steps.on_segment(cx, segment);
            self.decide(cx);
        }
    }

    fn on_chunk(&mut self, cx: &mut Context<'_>, chunk: &Span) {
        if self.opening.is_none() {
            self.steps.on_chunk(cx, chunk);
            self.decide(cx);
        }
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn metrics(&self) -> Metrics {
        let state = self.steps.state();
        let (state, bound) = match (&self.opening, self.by_user) {
            (Some(_), _) => ("start-up", Bottleneck::StartUp),
            (None, Some(rate)) if self.steps.is_bound_by_link() => {
                let is_there = self.steps.rate() >= rate.scale(63, 64);
                (state, if is_there { Bottleneck::UserLimit } else { Bottleneck::StartUp })
            }
            (None, _) => (state, Bottleneck::Network),
        };
        Metrics { state, bound }
    }
}

/// Returns whether about so much was sent, in full packets of `packet` bytes. If the sender had less to send,
/// or another bound held it, the loss shows nothing of higher rates.
pub(super) fn is_used(rate: Rate, span: &Span, packet: u64) -> bool {
    let packets = span.acked_packets.saturating_add(span.lost.total());
    Rate::from_bytes_over(packets.saturating_mul(packet), span.took) >= rate.scale(7, 8)
}

/// Pacing in bursts for late timers, and no more than two round trips of it without news, nor
/// than `most` bytes, so that nobody sends into silence. What reports wait beyond the usual is part of `round_trip`.
pub(super) fn paced(rate: Rate, most: u64, round_trip: Duration, packet: u64) -> Pacing {
    let rate = rate.clamp(LEAST, MOST);
    let window = rate.bytes_in(round_trip * 2 + FEEDBACK_DELAY) + WINDOW_SLACK;
    Pacing { rate, burst: burst(rate, packet), window: Some(window.min(most).max(4 * packet)) }
}

/// Bytes that may leave back to back at `rate`.
pub(super) fn burst(rate: Rate, packet: u64) -> u64 {
    rate.bytes_in(BURST_TIME).clamp(2 * packet, MAX_BURST)
}

/// The least power of ten that is no less than `value`; where there is none, the greatest.
pub(super) fn power_of_ten(value: u64) -> u64 {
    let mut power = 1u64;
    while power < value {
        let Some(next) = power.checked_mul(10) else { break };
        power = next;
    }
    power
}

/// Time between two decisions, of which [`INTERVAL`] was `chosen`: a round trip is `least` long.
pub(super) fn interval_of(chosen: Duration, least: Duration, cx: &Context<'_>) -> Duration {
    if chosen == Duration::ZERO { cx.rtt.smoothed().max(least) } else { chosen }
}

/// Parameter of controllers that decide by the clock.
pub(super) const INTERVAL: Parameter = Parameter {
    name: "interval",
    about: "time between two decisions; 0s: a round trip",
    unit: Unit::Time,
    default: 0,
    least: 0,
    most: 10_000_000_000,
};
/// A round trip, before the first is measured.
pub(super) const FIRST_ROUND_TRIP: Duration = Duration::from_secs(1);
/// Longest time between feedback frames.
const FEEDBACK_DELAY: Duration = Duration::from_millis(10);
const WINDOW_SLACK: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_round_up_and_end_somewhere() {
        for (value, power) in [(0, 1), (1, 1), (2, 10), (10, 10), (99_999_999, 100_000_000)] {
            assert_eq!(power_of_ten(value), power);
        }
        assert_eq!(power_of_ten(u64::MAX), 10_000_000_000_000_000_000);
    }
}
