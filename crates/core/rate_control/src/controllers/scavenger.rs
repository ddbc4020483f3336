//! Profile `scavenger`: takes what others leave.

mod delay;

use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use super::first_train::FirstTrain;
use super::flight::Flight;
use super::paced::{FIRST_WINDOW, MOST_WINDOW, first_flight, known_window, paced};
use super::recovery::Recovery;
use super::rounds::Rounds;
use crate::controller::{Context, Controller, ControllerConfig, Metrics, Pacing, Sent, Start};
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Unit};

use delay::Delay;

/// LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus).
///
/// docs/rate-control.md has the equations, and what differs.
#[derive(Clone, Debug)]
pub struct Scavenger {
    /// Bytes, and millionths of one.
    window: u64,
    fraction: u64,
    /// Up to here, in bytes, slow start.
    threshold: u64,
    phase: Phase,
    delay: Delay,
    /// The user's.
    target: Duration,
    /// Delay of a queue that overflows, where one was seen to.
    full: Option<Duration>,
    /// Until then the delay may be that of before the last cut.
    unsettled: Instant,
    rounds: Rounds,
    flight: Flight,
    recovery: Recovery,
    train: FirstTrain,
    pacing: Pacing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The first slow start.
    Starting,
    /// Time when the next slowdown is due.
    Avoidance(Instant),
    /// Hardly anything in flight, so that queue and least round trip show: when it began, until when.
    Slowdown(Instant, Instant),
    /// Back to where it was, since when slowed down.
    Returning(Instant),
}

impl Scavenger {
    fn new(start: &Start) -> Self {
        let Start { now, packet, ref parameters, .. } = *start;
        let (window, phase, pacing) = match &start.known {
            None => {
                let pacing = first_flight(parameters.get(FIRST_WINDOW.name), packet);
                (pacing.window.unwrap_or(packet), Phase::Starting, pacing)
            }
            Some(known) => {
                let window = known_window(known, packet);
                let rate = known.rate.max(Rate::from_bytes_over(2 * packet, known.round_trip));
                let pacing = Pacing { rate, burst: 2 * packet, window: Some(window) };
                let due = now + known.round_trip * SLOWDOWN_ROUNDS * SLOWDOWNS_APART;
                (window, Phase::Avoidance(due), pacing)
            }
        };
        Self {
            window,
            fraction: 0,
            threshold: MOST_WINDOW,
            phase,
            delay: Delay::new(),
            target: parameters.time(TARGET.name),
            full: None,
            unsettled: now,
            rounds: Rounds::default(),
            flight: Flight::default(),
            recovery: Recovery::new(now),
            train: FirstTrain::new(if start.known.is_some() { 0 } else { window }),
            pacing,
        }
    }

    /// 1 / GAIN: a flow of a short round trip is slower than TCP by this.
    fn gain_divisor(&self, cx: &Context<'_>) -> u64 {
        let base = self.delay.base(cx.rtt.smoothed()).as_nanos().max(1);
        let ratio = (2 * self.target.as_nanos()).div_ceil(base);
        u64::try_from(ratio).unwrap_or(MOST_GAIN_DIVISOR).clamp(1, MOST_GAIN_DIVISOR)
    }

    /// A third of a queue that would overflow before it is as long as the user's: else it would fill the queue and
    /// lose packets as others do, and none of them would show.
    fn target(&self) -> Duration {
        let third = self.full.map(|full| (full / 3).max(LEAST_TARGET));
        third.map_or(self.target, |third| third.min(self.target))
    }

    /// A longer queue is believed at once, a shorter one little by little.
    fn on_overflow(&mut self) {
        let (queue, before) = (self.delay.queue(), self.full.unwrap_or_default());
        self.full = Some(queue.max(before - before.saturating_sub(queue) / 4));
    }

    fn least(cx: &Context<'_>) -> u64 {
        LEAST_PACKETS * cx.estimates.packet()
    }

    fn in_slow_start(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Returning(_))
    }

    fn is_used(&self) -> bool {
        self.flight.most()
            >= if self.in_slow_start() { self.window / 2 } else { self.window / 8 * 7 }
    }

    fn set(&mut self, cx: &Context<'_>, window: u64) {
        self.window = window.clamp(Self::least(cx), MOST_WINDOW);
    }

    /// Additive increase, and a decrease that grows with the delay.
    fn avoid(&mut self, cx: &Context<'_>, acked: u64) {
        let window = i128::from(self.window.max(1));
        let (queue, target) = (self.delay.queue().as_nanos(), self.target().as_nanos().max(1));
        let over = if cx.now < self.unsettled { 0 } else { queue.saturating_sub(target) };
        let over = i128::try_from(over).unwrap_or(0);
        // Millionths of bytes a round trip.
        let gain = i128::from(cx.estimates.packet() * 1_000_000 / self.gain_divisor(cx));
        let decrease = window * 1_000_000 * over / target as i128;
        let change = (gain - decrease).max(-window * 1_000_000 / 2);
        let acked = i128::from(acked.min(self.window));
        let sum = window * 1_000_000 + i128::from(self.fraction) + change * acked / window;
        let sum = u128::try_from(sum).unwrap_or(0);
        self.fraction = (sum % 1_000_000) as u64;
        let window = u64::try_from(sum / 1_000_000).unwrap_or(MOST_WINDOW);
        // What is not used may shrink only.
        if window <= self.window || self.is_used() {
            self.set(cx, window);
        }
    }

    fn slow_start(&mut self, cx: &Context<'_>, acked: u64) {
        if self.is_used() {
            let round_trip = self.delay.base(cx.rtt.smoothed());
            let careful = self.train.growth(self.window, round_trip, acked);
            let growth = (acked / self.gain_divisor(cx)).min(careful);
            self.set(cx, self.window.saturating_add(growth).min(self.threshold));
        }
        match self.phase {
            Phase::Starting if self.is_full(cx) => self.end_start(cx),
            Phase::Returning(begun) if self.window >= self.threshold => self.returned(cx, begun),
            _ => {}
        }
    }

    /// The first slow start is over.
    fn is_full(&self, cx: &Context<'_>) -> bool {
        let (queue, base) = (self.delay.queue(), self.delay.base(cx.rtt.smoothed()));
        queue > self.target() * 3 / 4 || self.train.is_filled(self.window, base, queue)
    }

    fn end_start(&mut self, cx: &Context<'_>) {
        self.threshold = self.window;
        self.phase = Phase::Avoidance(cx.now + cx.rtt.smoothed() * 2);
    }

    /// A slowdown takes a tenth of the time.
    fn returned(&mut self, cx: &Context<'_>, begun: Instant) {
        self.phase = Phase::Avoidance(cx.now + (cx.now - begun) * SLOWDOWNS_APART);
    }

    /// Half, once a round trip.
    fn cut(&mut self, cx: &Context<'_>) {
        self.unsettled = cx.now + cx.rtt.smoothed() * 2;
        match self.phase {
            Phase::Slowdown(..) => {
                self.threshold = (self.threshold / 2).max(Self::least(cx));
                return;
            }
            Phase::Starting => {
                self.set(cx, self.window / 2);
                self.end_start(cx);
            }
            Phase::Returning(begun) => {
                self.set(cx, self.window / 2);
                self.returned(cx, begun);
            }
            Phase::Avoidance(_) => self.set(cx, self.window / 2),
        }
        self.threshold = self.window;
    }

    fn decide(&mut self, cx: &Context<'_>) {
        if self.train.is_under_way() {
            return;
        }
        let (gain, of) = if self.in_slow_start() { (2, 1) } else { (5, 4) };
        let rate = Rate::from_bytes_over(self.window, cx.rtt.smoothed()).scale(gain, of);
        self.pacing = paced(rate, self.window, cx.estimates);
    }
}

impl Controller for Scavenger {
    fn name(&self) -> &'static str {
        "scavenger"
    }

    fn on_sent(&mut self, _cx: &mut Context<'_>, sent: &Sent) {
        self.flight.on_sent(sent.in_flight);
        self.train.on_sent(sent);
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.recovery.on_feedback(cx);
        self.train.on_feedback(feedback);
        self.delay.on_feedback(cx.now, feedback);
        let round_is_over = self.rounds.on_feedback(feedback);
        let lost = feedback.lost.network() + feedback.marked_packets > 0;
        if feedback.lost.congestion > 0 {
            self.on_overflow();
        }
        if lost && self.recovery.heeds(cx.now) {
            self.cut(cx);
            self.recovery.begin(cx);
        } else {
            match self.phase {
                Phase::Starting | Phase::Returning(_) => self.slow_start(cx, feedback.acked_bytes),
                Phase::Avoidance(due) if cx.now >= due => {
                    self.threshold = self.window;
                    let until = cx.now + cx.rtt.smoothed() * 2;
                    self.phase = Phase::Slowdown(cx.now, until);
                    self.set(cx, 0);
                }
                Phase::Avoidance(_) => self.avoid(cx, feedback.acked_bytes),
                Phase::Slowdown(begun, until) if cx.now >= until => {
                    self.phase = Phase::Returning(begun);
                }
                Phase::Slowdown(..) => {}
            }
        }
        if round_is_over {
            self.flight.on_round(feedback.in_flight);
        }
        self.decide(cx);
    }

    fn on_probe_timeout(&mut self, cx: &mut Context<'_>, _in_flight: u64) {
        if self.recovery.collapses(cx) {
            self.cut(cx);
            self.phase = Phase::Returning(cx.now);
            self.set(cx, 0);
            self.train.end();
            self.decide(cx);
        }
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn metrics(&self) -> Metrics {
        let (state, bound) = match self.phase {
            Phase::Starting => ("slow start", Bottleneck::StartUp),
            Phase::Avoidance(_) => ("avoidance", Bottleneck::Network),
            Phase::Slowdown(..) => ("slowdown", Bottleneck::Network),
            Phase::Returning(_) => ("slow start again", Bottleneck::Network),
        };
        Metrics { state, bound }
    }
}

/// Makes [`Scavenger`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScavengerConfig;

impl ControllerConfig for ScavengerConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &[FIRST_WINDOW, TARGET]
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Scavenger::new(start))
    }
}

const TARGET: Parameter = Parameter {
    name: "target",
    about: "queueing delay above which it makes room; a third of a queue that overflows before that",
    unit: Unit::Time,
    default: 60_000_000,
    least: 1_000_000,
    most: 1_000_000_000,
};

const LEAST_TARGET: Duration = Duration::from_millis(1);
const LEAST_PACKETS: u64 = 2;
const MOST_GAIN_DIVISOR: u64 = 16;
/// Between two slowdowns passes nine times what one takes.
const SLOWDOWNS_APART: u32 = 9;
/// Duration of one, where none was seen yet: two round trips and the way back.
const SLOWDOWN_ROUNDS: u32 = 20;

#[cfg(test)]
mod tests;
