//! Profile `pcc`: tries rates, and takes what proves better.

mod monitor;
mod step;
mod utility;

use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Instant, Rate};

use super::first_train::FirstTrain;
use super::paced::{FIRST_WINDOW, first_flight, least_rate, paced};
use super::recovery::long_silence;
use crate::controller::{Context, Controller, ControllerConfig, Metrics, Pacing, Sent, Start};
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Unit};

use monitor::{Interval, Monitor};
use step::Step;
use utility::Utility;

/// PCC Vivace (Dong et al., NSDI 2018).
///
/// docs/rate-control.md has the utility, and what differs.
#[derive(Clone, Debug)]
pub struct Pcc {
    state: State,
    /// Rate that the present state takes for the best.
    rate: Rate,
    monitor: Monitor,
    step: Step,
    utility: Utility,
    /// By which trials differ from the rate, parts per million.
    epsilon: u32,
    train: FirstTrain,
    last_feedback: Instant,
    pacing: Pacing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The first flight is under way.
    First,
    /// Doubles; the last rate and its utility.
    Starting(Option<Outcome>),
    /// Two pairs of trials; the first of each is the higher one, or not.
    Probing([bool; PAIRS]),
    /// Steps on while utility rises; what it stepped from.
    Moving(Outcome),
}

/// A rate and what it was worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Outcome {
    rate: Rate,
    utility: i64,
}

impl Pcc {
    fn new(start: &Start) -> Self {
        let Start { now, packet, ref parameters, .. } = *start;
        let (state, rate, pacing) = match &start.known {
            None => {
                let pacing = first_flight(parameters.get(FIRST_WINDOW.name), packet);
                (State::First, Rate::ZERO, pacing)
            }
            Some(known) => {
                let least = least_rate(known.round_trip, packet);
                let rate = known.rate.clamp(least.min(MOST_RATE), MOST_RATE);
                let window = rate.bytes_in(known.round_trip * 2) + WINDOW_SLACK;
                (
                    State::Probing([true; PAIRS]),
                    rate,
                    Pacing { rate, burst: 2 * packet, window: Some(window) },
                )
            }
        };
        let epsilon = u32::try_from(parameters.get(EPSILON.name)).unwrap_or(50_000);
        let utility =
            Utility { latency: parameters.get(LATENCY.name), loss_ppm: parameters.get(LOSS.name) };
        let (monitor, step) = (Monitor::new(), Step::default());
        let train = FirstTrain::new(match state {
            State::First => pacing.burst,
            _ => 0,
        });
        Self { state, rate, monitor, step, utility, epsilon, train, last_feedback: now, pacing }
    }

    fn least_rate(cx: &Context<'_>) -> Rate {
        least_rate(cx.rtt.smoothed(), cx.estimates.packet()).min(MOST_RATE)
    }

    fn set_rate(&mut self, cx: &Context<'_>, rate: Rate) {
        self.rate = rate.clamp(Self::least_rate(cx), MOST_RATE);
    }

    fn send(&mut self, cx: &Context<'_>, rates: &[Rate]) {
        self.monitor.begin(cx.now, rates, cx.estimates.packet(), cx.rtt.smoothed());
    }

    fn start(&mut self, cx: &Context<'_>, rate: Rate) {
        self.set_rate(cx, rate);
        self.state = State::Starting(None);
        self.send(cx, &[self.rate]);
    }

    fn probe(&mut self, cx: &mut Context<'_>) {
        let random = cx.rng.next_u32();
        let order = [random & 1 == 1, random & 2 == 2];
        let higher = self.rate.scale(1_000_000 + self.epsilon, 1_000_000);
        let lower = self.rate.scale(1_000_000 - self.epsilon, 1_000_000);
        let pair = |first: bool| if first { [higher, lower] } else { [lower, higher] };
        let ([a, b], [c, d]) = (pair(order[0]), pair(order[1]));
        self.state = State::Probing(order);
        self.send(cx, &[a, b, c, d]);
    }

    fn take_step(&mut self, cx: &Context<'_>, from: Outcome, gradient: i64) {
        let next = self.step.next(from.rate, gradient);
        self.set_rate(cx, next);
        self.state = State::Moving(from);
        self.send(cx, &[self.rate]);
    }

    fn judge(&self, interval: &Interval) -> Outcome {
        let rate = interval.rate_sent();
        let gradient = interval.rtt_gradient(NOISE);
        Outcome { rate, utility: self.utility.of(rate, gradient, interval.loss()) }
    }

    fn on_results(&mut self, cx: &mut Context<'_>, results: [Option<Outcome>; 2 * PAIRS]) {
        let Some(first) = results[0] else { return };
        match self.state {
            State::First => {}
            State::Starting(before)
                if before.is_none_or(|before| first.utility > before.utility) =>
            {
                self.set_rate(cx, self.train.bounded(self.rate.scale(2, 1), self.rate));
                self.state = State::Starting(Some(first));
                self.send(cx, &[self.rate]);
            }
            State::Starting(before) => {
                self.set_rate(cx, before.map_or(self.rate, |before| before.rate));
                self.probe(cx);
            }
            State::Probing(order) => {
                let pairs = [(results[0], results[1]), (results[2], results[3])];
                let mut gradients = [0; PAIRS];
                let mut sum = 0;
                for ((gradient, pair), first) in gradients.iter_mut().zip(pairs).zip(order) {
                    let (Some(a), Some(b)) = pair else { return };
                    let (higher, lower) = if first { (a, b) } else { (b, a) };
                    *gradient = slope(lower, higher);
                    sum += (higher.utility / 4) + (lower.utility / 4);
                }
                if gradients.iter().all(|gradient| *gradient > 0)
                    || gradients.iter().all(|gradient| *gradient < 0)
                {
                    let gradient = gradients[0] / 2 + gradients[1] / 2;
                    let from = Outcome { rate: self.rate, utility: sum };
                    self.take_step(cx, from, gradient);
                } else {
                    self.probe(cx);
                }
            }
            State::Moving(before) => {
                let gradient = slope(before, first);
                let goes_on = gradient != 0 && (gradient > 0) == self.step.goes_up();
                if goes_on {
                    self.take_step(cx, Outcome { rate: self.rate, ..first }, gradient);
                } else {
                    if first.utility < before.utility {
                        self.set_rate(cx, before.rate);
                    }
                    self.step.forget();
                    self.probe(cx);
                }
            }
        }
    }

    fn decide(&mut self, cx: &Context<'_>) {
        let rate = self.monitor.rate().unwrap_or(self.rate);
        // Bounds what is sent into a silence.
        let round_trip = cx.rtt.smoothed();
        let window = rate.bytes_in(round_trip * 2) + WINDOW_SLACK;
        self.pacing = paced(rate, window, cx.estimates);
    }

    fn see(&mut self, cx: &Context<'_>) {
        self.monitor.see(cx.now, cx.estimates.packet(), cx.rtt.smoothed());
    }
}

/// Millionths of utility a Mb/s, between two outcomes.
fn slope(a: Outcome, b: Outcome) -> i64 {
    let rates = i128::from(b.rate.as_bps()) - i128::from(a.rate.as_bps());
    let slope = (i128::from(b.utility) - i128::from(a.utility)) * 1_000_000;
    slope.checked_div(rates).unwrap_or(0).clamp(-MOST_SLOPE, MOST_SLOPE) as i64
}

impl Controller for Pcc {
    fn name(&self) -> &'static str {
        "pcc"
    }

    fn on_sent(&mut self, _cx: &mut Context<'_>, sent: &Sent) {
        self.train.on_sent(sent);
        self.monitor.on_sent(sent.bytes, sent.in_flight);
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.last_feedback = cx.now;
        self.train.on_feedback(feedback);
        self.see(cx);
        let results = self.monitor.on_feedback(cx.now, feedback).map(|intervals| {
            let mut all = [None; 2 * PAIRS];
            all.iter_mut().zip(intervals).for_each(|(one, interval)| *one = Some(*interval));
            all
        });
        match (results, self.state) {
            (_, State::First) if !self.train.is_under_way() => {
                let window = self.pacing.window.unwrap_or(0);
                let rate = Rate::from_bytes_over(window, cx.rtt.smoothed());
                self.start(cx, self.train.bounded(rate, Rate::ZERO));
            }
            (Some(results), _) => {
                let outcomes = results.map(|interval| interval.as_ref().map(|i| self.judge(i)));
                self.on_results(cx, outcomes);
            }
            // Behind a takeover.
            (None, State::Probing(_)) if self.monitor.is_idle() => self.probe(cx),
            _ => {}
        }
        if self.state != State::First {
            self.decide(cx);
        }
    }

    /// A long silence: start again from half of the rate, each time.
    fn on_probe_timeout(&mut self, cx: &mut Context<'_>, _in_flight: u64) {
        if self.state == State::First || cx.now - self.last_feedback < long_silence(cx.rtt) {
            return;
        }
        self.step.forget();
        self.start(cx, self.rate.scale(1, 2));
        self.decide(cx);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.monitor.next_change()
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.see(cx);
        if self.state != State::First {
            self.decide(cx);
        }
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn metrics(&self) -> Metrics {
        let (state, bound) = match self.state {
            State::First | State::Starting(_) => ("starting", Bottleneck::StartUp),
            State::Probing(_) => ("probing", Bottleneck::Network),
            State::Moving(_) => ("moving", Bottleneck::Network),
        };
        Metrics { state, bound }
    }
}

/// Makes [`Pcc`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PccConfig;

impl ControllerConfig for PccConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &[FIRST_WINDOW, EPSILON, LATENCY, LOSS]
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Pcc::new(start))
    }
}

const EPSILON: Parameter = Parameter {
    name: "epsilon",
    about: "by how much trial rates differ from the rate",
    unit: Unit::Share,
    default: 50_000,
    least: 1_000,
    most: 200_000,
};
const LATENCY: Parameter = Parameter {
    name: "latency-penalty",
    about: "what a growing round trip costs (b of the utility)",
    unit: Unit::Count,
    default: 900,
    least: 0,
    most: 100_000,
};
const LOSS: Parameter = Parameter {
    name: "loss-penalty",
    about: "what loss costs (c of the utility)",
    unit: Unit::Share,
    default: 11_350_000,
    least: 0,
    most: 1_000_000_000,
};

const PAIRS: usize = 2;
/// Parts per million: a round trip that grows or falls less does neither.
const NOISE: i64 = 10_000;
const MOST_RATE: Rate = Rate::from_gbps(10_000);
const MOST_SLOPE: i128 = 1 << 60;
/// Bytes that reports and batches need.
const WINDOW_SLACK: u64 = 64 << 10;
