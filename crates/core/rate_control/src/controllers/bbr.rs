//! Profile `bbr`: bandwidth and round trip as the model of a path.

mod cycle;
mod full_pipe;
mod min_rtt;
mod network;
mod samples;

use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use super::first_train::FirstTrain;
use super::flight::Flight;
use super::paced::{FIRST_RATE, FIRST_WINDOW, MOST_WINDOW, first_flight, known_window, paced};
use super::recovery::long_silence;
use super::rounds::Rounds;
use crate::controller::{
    Context, Controller, ControllerConfig, Known, Metrics, Pacing, Sent, Start,
};
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Unit};

use cycle::{Cycle, Phase};
use full_pipe::FullPipe;
use min_rtt::MinRtt;
use network::Network;
use samples::{RateSample, Samples};

/// BBR version 3 (draft-ietf-ccwg-bbr).
///
/// docs/rate-control.md has the model, and what differs.
#[derive(Clone, Debug)]
pub struct Bbr {
    state: State,
    cycle: Cycle,
    network: Network,
    min_rtt: MinRtt,
    samples: Samples,
    pipe: FullPipe,
    /// The pipe was full once: start-up is over for good.
    filled: bool,
    rounds: Rounds,
    flight: Flight,
    train: FirstTrain,
    /// The first packet behind a time with nothing to send is under way.
    idle: bool,
    /// Bytes.
    window: u64,
    /// The window before round trips were looked for.
    before: u64,
    /// More lost than so many parts per million, and a probe went too far.
    loss_threshold: u64,
    last_feedback: Instant,
    pacing: Pacing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Startup,
    /// For so many rounds.
    Drain(u32),
    /// [`Cycle`] has the phase.
    ProbeBandwidth,
    /// Once little is in flight: until when at least, and whether a round has passed.
    ProbeRtt(Option<(Instant, bool)>),
}

impl Bbr {
    fn new(start: &Start) -> Self {
        let Start { now, packet, .. } = *start;
        let (state, window, pacing) = match &start.known {
            None => {
                let pacing = first_flight(start.parameters.get(FIRST_WINDOW.name), packet);
                (State::Startup, pacing.window.unwrap_or(packet), pacing)
            }
            Some(known) => {
                let product = known_window(known, packet);
                let rate = known.rate.max(Rate::from_bytes_over(2 * packet, known.round_trip));
                let window = (product * 2).min(MOST_WINDOW);
                let pacing = Pacing { rate, burst: 2 * packet, window: Some(window) };
                (State::ProbeBandwidth, window, pacing)
            }
        };
        let known: Option<Known> = start.known;
        Self {
            state,
            cycle: Cycle::new(now, Phase::Cruise, 0),
            network: Network::new(now, known.map_or(Rate::ZERO, |known| known.rate.min(MOST_RATE))),
            min_rtt: MinRtt::new(now, known.map(|known| known.round_trip)),
            samples: Samples::default(),
            pipe: FullPipe::default(),
            filled: known.is_some(),
            rounds: Rounds::default(),
            flight: Flight::default(),
            train: FirstTrain::new(if known.is_some() { 0 } else { window }),
            idle: false,
            window,
            before: window,
            loss_threshold: start.parameters.get(LOSS_THRESHOLD.name),
            last_feedback: now,
            pacing,
        }
    }

    fn round_trip(&self, cx: &Context<'_>) -> Duration {
        self.min_rtt.get(cx.rtt.smoothed())
    }

    /// Bandwidth times round trip.
    fn product(&self, cx: &Context<'_>, bandwidth: Rate) -> u64 {
        bandwidth.bytes_in(self.round_trip(cx)).min(MOST_WINDOW)
    }

    /// As the product, enough for batches: section 5.6.4.2.
    fn fits(&self, cx: &Context<'_>, bandwidth: Rate) -> u64 {
        self.product(cx, bandwidth).max(self.pacing.burst * 3 / 2).max(least(cx))
    }

    fn with_headroom(&self, cx: &Context<'_>) -> u64 {
        self.network.longterm.map_or(u64::MAX, |longterm| {
            let headroom = (longterm / 20 * 3).max(cx.estimates.packet());
            longterm.saturating_sub(headroom).max(least(cx))
        })
    }

    fn target(&self, cx: &Context<'_>) -> u64 {
        self.product(cx, self.network.bandwidth()).min(self.window)
    }

    fn is_limited_by_window(&self) -> bool {
        self.flight.most().saturating_add(self.pacing.burst) >= self.window
    }

    /// Returns whether the packets of the last round, which this one reports, lost too much.
    fn lost_too_much(&self) -> bool {
        let (lost, _) = self.network.lost();
        u128::from(lost) * 1_000_000
            > u128::from(self.flight.last()) * u128::from(self.loss_threshold)
    }

    fn start_round(&mut self, feedback: &Feedback) {
        self.rounds.restart(feedback.in_flight);
    }

    fn go_down(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.network.forget_round();
        self.cycle.down(cx.now, cx.rng.next_u32());
        self.state = State::ProbeBandwidth;
        self.start_round(feedback);
    }

    fn start_up(
        &mut self,
        cx: &mut Context<'_>,
        feedback: &Feedback,
        sample: Option<&RateSample>,
        round: bool,
    ) {
        let mut full = self.pipe.on_sample(sample, round);
        if round && self.lost_too_much() && self.network.lost().1 >= MANY_LOSSES {
            full = true;
            let product = self.product(cx, self.network.bandwidth());
            self.network.longterm = Some(product.max(self.network.delivered()));
        }
        if full {
            self.filled = true;
            self.state = State::Drain(0);
            self.start_round(feedback);
        }
    }

    /// Until the queue of start-up is gone; others may fill it, so not for long (section 5.3.2).
    fn drain(&mut self, cx: &mut Context<'_>, feedback: &Feedback, rounds: u32) {
        let gone = feedback.in_flight <= self.fits(cx, self.network.bandwidth());
        if gone || rounds > MOST_DRAINING {
            self.go_down(cx, feedback);
        } else {
            self.state = State::Drain(rounds);
        }
    }

    fn refill(&mut self, feedback: &Feedback) {
        self.network.forget_short_term();
        self.cycle.refill();
        self.start_round(feedback);
    }

    fn probe_bandwidth(
        &mut self,
        cx: &mut Context<'_>,
        feedback: &Feedback,
        sample: Option<&RateSample>,
        round: bool,
    ) {
        let target = self.target(cx);
        match self.cycle.phase {
            Phase::Down | Phase::Cruise => {
                if self.cycle.is_due(cx.now, target / cx.estimates.packet()) {
                    self.refill(feedback);
                } else if self.cycle.phase == Phase::Down
                    && feedback.in_flight <= self.with_headroom(cx)
                    && feedback.in_flight <= self.fits(cx, self.network.max_bandwidth())
                {
                    self.cycle.phase = Phase::Cruise;
                }
            }
            Phase::Refill if round => {
                self.cycle.up();
                self.pipe = FullPipe::from(sample.map_or(Rate::ZERO, |sample| sample.rate));
                self.start_round(feedback);
            }
            Phase::Refill => {}
            Phase::Up => {
                let longterm = self.network.longterm.unwrap_or(u64::MAX);
                let at_longterm = self.is_limited_by_window() && self.window >= longterm;
                if at_longterm && self.cycle.is_cut_short() {
                    self.go_down(cx, feedback);
                } else if at_longterm {
                    // Not the path holds the rate back, but the bound that is just being raised.
                    self.pipe = FullPipe::from(sample.map_or(Rate::ZERO, |sample| sample.rate));
                } else if self.pipe.on_sample(sample, round) {
                    self.cycle.was_borne();
                    self.go_down(cx, feedback);
                }
            }
        }
    }

    /// Applies what a probe showed of the volume in flight: section 5.5.10.
    fn adapt_longterm(&mut self, cx: &mut Context<'_>, feedback: &Feedback, round: bool) {
        if self.lost_too_much() {
            if self.cycle.is_judged() {
                self.cycle.end_judgement();
                let bound = Cycle::after_loss(self.flight.last(), self.target(cx));
                self.network.longterm = Some(bound.max(least(cx)));
                if self.cycle.phase == Phase::Up && self.state == State::ProbeBandwidth {
                    self.go_down(cx, feedback);
                }
            }
            return;
        }
        let Some(longterm) = self.network.longterm else { return };
        let mut raised = longterm.max(self.flight.last());
        if self.cycle.phase == Phase::Up && self.is_limited_by_window() && self.window >= longterm {
            let packet = cx.estimates.packet();
            let raise = self.cycle.raise(feedback.acked_bytes, self.window, packet, round);
            raised = raised.saturating_add(raise);
        }
        self.network.longterm = Some(raised.min(MOST_WINDOW));
    }

    /// Little in flight for a while, so that the queue of everybody who does so is gone: section
    /// 5.3.4.
    fn probe_rtt(&mut self, cx: &mut Context<'_>, feedback: &Feedback, round: bool) {
        let State::ProbeRtt(progress) = self.state else {
            let idle = core::mem::take(&mut self.idle) && feedback.acked_packets > 0;
            if self.min_rtt.is_expired() && !idle && feedback.rtt.is_some() {
                self.before = self.window;
                self.state = State::ProbeRtt(None);
                self.cycle.interrupt();
                self.start_round(feedback);
            }
            return;
        };
        match progress {
            None if feedback.in_flight <= self.probe_rtt_window(cx) => {
                self.state = State::ProbeRtt(Some((cx.now + PROBE_RTT_TIME, false)));
                self.start_round(feedback);
            }
            None => {}
            Some((until, passed)) if (passed || round) && cx.now > until => {
                self.min_rtt.on_probed(cx.now);
                self.window = self.window.max(self.before);
                self.network.forget_short_term();
                if self.filled {
                    self.go_down(cx, feedback);
                    self.cycle.phase = Phase::Cruise;
                } else {
                    self.state = State::Startup;
                }
            }
            Some((until, passed)) => self.state = State::ProbeRtt(Some((until, passed || round))),
        }
    }

    fn probe_rtt_window(&self, cx: &Context<'_>) -> u64 {
        (self.product(cx, self.network.bandwidth()) / 2).max(least(cx))
    }

    fn set_window(&mut self, cx: &Context<'_>, acked: u64) {
        let up = self.state == State::ProbeBandwidth && self.cycle.phase == Phase::Up;
        let product = self.fits(cx, self.network.bandwidth());
        let (gain, of) = if up { (9, 4) } else { (2, 1) };
        let most = product * gain / of + self.network.extra_acked();
        let most = if up { most + 2 * cx.estimates.packet() } else { most };
        let grown = self.window.saturating_add(acked);
        self.window = match self.filled {
            true => grown.min(most),
            false if self.window < most || self.train.is_under_way() => grown,
            false => self.window,
        };
        let bound = match self.state {
            State::ProbeBandwidth if self.cycle.phase != Phase::Cruise => self.network.longterm,
            State::ProbeBandwidth => Some(self.with_headroom(cx)),
            State::ProbeRtt(_) => Some(self.with_headroom(cx).min(self.probe_rtt_window(cx))),
            State::Startup | State::Drain(_) => None,
        };
        let bound = bound.unwrap_or(u64::MAX).min(self.network.shortterm().unwrap_or(u64::MAX));
        self.window = self.window.min(bound).clamp(least(cx), MOST_WINDOW);
    }

    fn decide(&mut self, cx: &Context<'_>) {
        if self.train.is_under_way() {
            return;
        }
        let percent = match (self.state, self.cycle.phase) {
            (State::Startup, _) => 277,
            (State::Drain(_), _) => 50,
            (State::ProbeBandwidth, Phase::Down) => 90,
            (State::ProbeBandwidth, Phase::Up) => 125,
            (State::ProbeBandwidth | State::ProbeRtt(_), _) => 100,
        };
        let measured = self.network.bandwidth();
        let bandwidth = match measured {
            Rate::ZERO => Rate::from_bytes_over(self.window, cx.rtt.smoothed()),
            _ => measured,
        };
        let mut rate = bandwidth.scale(percent * PACED_PERCENT, 100 * 100);
        if !self.filled && measured > Rate::ZERO && self.pacing.rate < FIRST_RATE {
            rate = rate.max(self.pacing.rate);
        }
        if self.state == State::Startup {
            rate = self.train.bounded(rate, measured);
        }
        self.pacing = paced(rate, self.window, cx.estimates);
    }
}

impl Controller for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn on_sent(&mut self, _cx: &mut Context<'_>, sent: &Sent) {
        self.flight.on_sent(sent.in_flight);
        self.train.on_sent(sent);
        self.idle |= sent.in_flight <= sent.bytes;
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.last_feedback = cx.now;
        self.train.on_feedback(feedback);
        self.min_rtt.update(cx.now, feedback.rtt);
        let round_trip = self.round_trip(cx);
        let sample = feedback.delivery.map(|delivery| self.samples.add(&delivery, round_trip));
        sample.iter().for_each(|sample| self.network.on_sample(sample));
        self.network.on_fate(feedback, cx.estimates.packet());
        let memory = cx.rtt.smoothed() * if self.filled { 10 } else { 1 };
        self.network.on_acked(cx.now, feedback.acked_bytes, self.window, memory);
        let round = self.rounds.on_feedback(feedback);
        if round && self.cycle.on_round() && self.filled {
            self.network.next_cycle();
            if self.state == State::ProbeBandwidth && self.cycle.goes_on() {
                self.refill(feedback);
            }
        }
        if self.filled {
            self.adapt_longterm(cx, feedback, round);
        }
        match self.state {
            State::Startup => self.start_up(cx, feedback, sample.as_ref(), round),
            State::Drain(rounds) => self.drain(cx, feedback, rounds + u32::from(round)),
            State::ProbeBandwidth => self.probe_bandwidth(cx, feedback, sample.as_ref(), round),
            State::ProbeRtt(_) => {}
        }
        self.probe_rtt(cx, feedback, round);
        if round {
            let probing = match self.state {
                State::Startup => true,
                State::ProbeBandwidth => self.cycle.is_probing(),
                State::Drain(_) | State::ProbeRtt(_) => false,
            };
            let most = u32::try_from(self.loss_threshold).unwrap_or(u32::MAX);
            let by_chance = cx.estimates.by_chance(self.network.settled(), most);
            self.network.on_round(probing, by_chance, self.window);
            self.flight.on_round(feedback.in_flight);
        }
        self.set_window(cx, feedback.acked_bytes);
        self.decide(cx);
    }

    /// As a retransmission timeout of TCP (section 5.6.4.4): the window grows again, to where it was.
    fn on_probe_timeout(&mut self, cx: &mut Context<'_>, _in_flight: u64) {
        if cx.now - self.last_feedback >= long_silence(cx.rtt) {
            self.window = least(cx);
            self.train.end();
            self.decide(cx);
        }
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn metrics(&self) -> Metrics {
        let state = match (self.state, self.cycle.phase) {
            (State::Startup, _) => "start-up",
            (State::Drain(_), _) => "drain",
            (State::ProbeBandwidth, Phase::Down) => "down",
            (State::ProbeBandwidth, Phase::Cruise) => "cruise",
            (State::ProbeBandwidth, Phase::Refill) => "refill",
            (State::ProbeBandwidth, Phase::Up) => "up",
            (State::ProbeRtt(_), _) => "probe round trip",
        };
        let bound = if self.filled { Bottleneck::Network } else { Bottleneck::StartUp };
        Metrics { state, bound }
    }
}

/// Four packets: MinPipeCwnd.
fn least(cx: &Context<'_>) -> u64 {
    4 * cx.estimates.packet()
}

/// Makes [`Bbr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BbrConfig;

impl ControllerConfig for BbrConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &[FIRST_WINDOW, LOSS_THRESHOLD]
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Bbr::new(start))
    }
}

const LOSS_THRESHOLD: Parameter = Parameter {
    name: "loss-threshold",
    about: "share lost at which a probe went too far (BBRLossThresh)",
    unit: Unit::Share,
    default: 20_000,
    least: 100,
    most: 500_000,
};

/// Share of the bandwidth that is sent, so that a queue does not stay (BBRPacingMarginPercent).
const PACED_PERCENT: u32 = 99;
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// Rounds: longer than a queue of start-up's own takes.
const MOST_DRAINING: u32 = 3;
/// Of a round of start-up: more is no accident (BBRStartupFullLossCnt).
const MANY_LOSSES: u64 = 6;
const MOST_RATE: Rate = Rate::from_gbps(10_000);
