use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Duration, Ecn, Instant, Rate};

use crate::controller::{
    Context, Controller, ControllerConfig, Known, Metrics, Pacing, Sent, Start,
};
use crate::estimates::Estimates;
use crate::estimates::{Completed, Round, Slice};
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Unit};
use crate::path_memory::PathMemory;
use longhaul_units::MemoryUse;

mod compete;
mod cruise;
mod hold_share;
mod scalable;

use super::paced::least_rate;
use super::startup::Startup;
use super::stepped::INTERVAL;
use compete::Compete;
use cruise::{Cruise, Verdict};
use hold_share::{HoldShare, Outcome};
use scalable::{Scalable, WHOLE};

/// Finds the rate that the path can take, and shares the path.
///
/// The model is described in docs/rate-control.md.
#[derive(Clone, Debug)]
pub struct Auto {
    state: State,
    pacing: Pacing,
    bound: Bottleneck,
    /// Long silences without an answer; each halves the rate.
    silence: u32,
    /// The rate that was delivered before them.
    before_silence: Rate,
    /// Time of the last feedback.
    last_feedback: Instant,
    competitors: CompetitorHistory,
    /// Time when it was last in another state than cruise, and when it last cruised and had for long.
    left_cruise_at: Instant,
    last_steady_cruise_at: Instant,
    /// The path is dedicated: do not yield to other flows.
    dedicated: bool,
    /// Time between two decisions, if it is to be another than a round trip.
    interval: Option<Duration>,
    /// The share of packets that a queue marks which marks early, where there may be one.
    scalable: Option<Scalable>,
    /// Use made of the path history.
    memory_use: Option<MemoryUse>,
}

#[derive(Clone, Debug)]
enum State {
    Startup(Startup),
    Cruise(Cruise),
    Compete(Compete),
    HoldShare(HoldShare),
}

/// Memory of flows that fill the queue.
#[derive(Clone, Copy, Default, Debug)]
struct CompetitorHistory {
    /// Overflows by other flows, as far as is known, and the last.
    overflows: u32,
    last_overflow: Instant,
    /// Cuts that followed each other soon, since when, and the last.
    cuts: u32,
    cutting_since: Instant,
    last_cut: Instant,
    /// Time when they were last found to ignore losses.
    losses_ignored: Option<Instant>,
    /// Time when they last made room for a flow that ignored them.
    made_room: Option<Instant>,
}

impl CompetitorHistory {
    /// Begins to compete, with what is in flight.
    fn meet(&mut self, now: Instant, packet: u64, flight: u64, verdict: Verdict) -> Compete {
        // One packet of many may have been lost by chance.
        if verdict == (Verdict::Overflow { sure: true }) {
            let forgotten = now - self.last_overflow > COMPETITORS_REMEMBERED;
            self.overflows = if forgotten { 1 } else { self.overflows + 1 };
            self.last_overflow = now;
        }
        Compete::new(now, packet, flight, self.overflows >= SURE_OVERFLOWS)
    }

    fn on_cut(&mut self, now: Instant, round_trip: Duration, marked: bool) {
        if marked || now - self.last_cut > round_trip * CUTS_APART {
            self.cuts = 0;
            self.cutting_since = now;
        }
        self.cuts += 1;
        self.last_cut = now;
    }

    /// Returns whether cuts follow each other so soon, and for so long, that nobody else can have made
    /// room, with a window of so many packets, of which this share was lost (parts per million).
    fn ignore_losses(&self, now: Instant, round_trip: Duration, packets: u64, loss: u32) -> bool {
        let elapsed = now - self.cutting_since;
        // Of many flows with small windows somebody overflows the queue again soon.
        let most = u64::from(CUTS_SPACING);
        let spacing = if loss > HEEDED_LOSS { most } else { packets / SMALL_WINDOW };
        let spacing = spacing.clamp(1, most) as u32;
        let lately =
            self.losses_ignored.is_some_and(|losses_ignored| now - losses_ignored < IGNORED_LATELY);
        self.cuts >= if lately { MANY_CUTS_AGAIN } else { MANY_CUTS }
            && elapsed > LONG.max(round_trip * LONG_ROUNDS)
            && elapsed < round_trip * spacing * self.cuts
    }

    /// Returns whether they made room of late for a flow that took no notice of losses: they take notice.
    fn heed_losses(&self, now: Instant) -> bool {
        self.made_room.is_some_and(|made_room| now - made_room < ROOM_REMEMBERED)
    }

    fn on_losses_ignored(&mut self, now: Instant) {
        self.cuts = 0;
        self.losses_ignored = Some(now);
    }

    /// It was no other flow that overflowed the queue last.
    fn take_back(&mut self) {
        self.overflows = self.overflows.saturating_sub(1);
    }

    /// Nobody else is there.
    fn leave(&mut self, compete: &Compete, model: &Estimates) {
        if compete.met_burst() || model.has_path_alone() {
            self.take_back();
        }
    }
}

/// One function for each state: a report leads to the state that it returns, if to another.
impl Auto {
    fn on_startup(
        &mut self,
        cx: &mut Context<'_>,
        feedback: &Feedback,
        slice: Option<Slice>,
    ) -> Option<State> {
        let State::Startup(startup) = &mut self.state else { return None };
        let (now, model) = (cx.now, &mut *cx.estimates);
        let over = startup.on_feedback(now, cx.rtt, model, feedback, slice);
        self.memory_use = startup.memory_use();
        if !over {
            return None;
        }
        model.lengthen_slices();
        if !startup.met_others(model) || self.dedicated {
            model.correct_capacity(now);
            return Some(State::Cruise(Cruise::new(now)));
        }
        let flight = model.recent().bytes_in(cx.rtt.smoothed());
        let compete =
            self.competitors.meet(now, model.packet(), flight, Verdict::Overflow { sure: true });
        Some(State::Compete(compete))
    }

    fn on_cruise(
        &mut self,
        cx: &mut Context<'_>,
        feedback: &Feedback,
        round: Option<&Round>,
        fallen: bool,
    ) -> Option<State> {
        let State::Cruise(cruise) = &mut self.state else { return None };
        let (now, model, random) = (cx.now, &mut *cx.estimates, cx.rng.next_u32());
        // Early marks are no full queue; the scalable response has them.
        let marked_packets = if self.scalable.is_some() { 0 } else { feedback.marked_packets };
        let unmarked = Feedback { marked_packets, ..*feedback };
        if marked_packets < feedback.marked_packets {
            // The queue to aim at is one that is not marked.
            model.set_queue_full(now, model.queue);
        }
        if fallen {
            cruise.unsettle();
        }
        let verdict = cruise.on_feedback(now, cx.rtt, model, &unmarked, round, random);
        if self.dedicated {
            // Somebody is there all the same, and does not make room either.
            let starved = verdict == Verdict::Crowded && Self::is_starved(model, DEDICATED_SHARE);
            return starved.then(|| State::HoldShare(HoldShare::new(now, model, 0)));
        }
        if verdict == Verdict::Fine {
            return None;
        }
        let round_trip = cx.rtt.smoothed();
        let flight = model.recent().bytes_in(round_trip);
        let mut compete = self.competitors.meet(now, model.packet(), flight, verdict);
        if matches!(verdict, Verdict::Overflow { .. }) {
            let lost = feedback.lost.network();
            compete.on_congestion(now, model, lost);
            self.competitors.on_cut(now, round_trip, lost == 0);
        }
        Some(State::Compete(compete))
    }

    fn on_compete(
        &mut self,
        cx: &mut Context<'_>,
        feedback: &Feedback,
        round: Option<&Round>,
    ) -> Option<State> {
        let State::Compete(compete) = &mut self.state else { return None };
        let (now, model, round_trip) = (cx.now, &mut *cx.estimates, cx.rtt.smoothed());
        compete.on_feedback(now, round_trip, feedback, model);
        let high = model.queue_peak() * 13 / 16;
        let full = model.queue >= high.max(model.queue_target(model.recent()));
        let recovering = compete.in_recovery(now, round_trip);
        if full && !recovering && model.excess_loss(feedback, 1, MOST_CHANCE) {
            model.set_queue_full(now, model.queue_peak());
            let lost = feedback.lost.network();
            compete.on_congestion(now, model, lost);
            self.competitors.on_cut(now, round_trip, lost == 0);
        }
        let alone = round.is_some_and(|round| compete.on_round(now, model, round, round_trip));
        if alone {
            self.competitors.leave(compete, model);
            return Some(State::Cruise(Cruise::new(now)));
        }
        if !Self::is_starved(model, STARVING_BELOW) {
            compete.on_fed(now);
        }
        let starved = compete.is_starved(now, round_trip);
        let packets = compete.window() / model.packet();
        let losses_ignored = Self::is_starved(model, STARVED_BELOW)
            && self.competitors.ignore_losses(now, round_trip, packets, model.recent_loss_ppm());
        let heeding = self.competitors.heed_losses(now);
        (!heeding && (starved || losses_ignored)).then(|| {
            self.competitors.on_losses_ignored(now);
            State::HoldShare(HoldShare::new(now, model, compete.window()))
        })
    }

    fn on_hold_share(&mut self, cx: &mut Context<'_>, round: Option<&Round>) -> Option<State> {
        let State::HoldShare(hold) = &mut self.state else { return None };
        let (now, model) = (cx.now, &mut *cx.estimates);
        hold.on_feedback(now, model.round_time(cx.rtt));
        match hold.on_round(now, model, round?) {
            Outcome::Alone => Some(State::Cruise(Cruise::new(now))),
            Outcome::GoOn => None,
            _ if self.dedicated => Some(State::Cruise(Cruise::new(now))),
            Outcome::TryAgain => {
                let window = model.recent().bytes_in(cx.rtt.smoothed());
                Some(State::Compete(Compete::new(now, model.packet(), window, true)))
            }
            Outcome::MadeRoom => {
                self.competitors.made_room = Some(now);
                let window = hold.window_before();
                Some(State::Compete(Compete::new(now, model.packet(), window, true)))
            }
        }
    }
}

impl Controller for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn recall(&mut self, memory: &PathMemory) {
        if let State::Startup(startup) = &mut self.state {
            startup.recall(memory);
            self.memory_use = startup.memory_use();
        }
    }

    fn memory_use(&self) -> Option<MemoryUse> {
        self.memory_use
    }

    fn next_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Startup(startup) => startup.next_timeout(),
            _ => None,
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        if let State::Startup(startup) = &mut self.state {
            startup.on_timeout(cx.now, cx.rtt);
            self.memory_use = startup.memory_use();
            self.decide(cx);
        }
    }

    fn on_sent(&mut self, cx: &mut Context<'_>, sent: &Sent) {
        match &mut self.state {
            State::Startup(startup) => startup.on_sent(cx.now, cx.rtt, sent),
            State::Cruise(cruise) => cruise.on_sent(cx.now, sent),
            _ => {}
        }
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.last_feedback = cx.now;
        cx.estimates.interval = self.interval;
        let Completed { slice, round } = cx.estimates.completed;
        let round_trip = cx.rtt.smoothed();
        let model = &mut *cx.estimates;
        let lost = feedback.lost.network();
        if self.silence > 0 && lost > feedback.acked_packets && self.before_silence > Rate::ZERO {
            // The path was dark, and what was under way is lost: no sign of a queue.
            self.silence = 0;
            model.forget_rounds(cx.now);
            let startup =
                Startup::behind_silence(cx.now, model.packet(), self.before_silence, round_trip);
            self.state = State::Startup(startup);
            return self.decide(cx);
        }
        // Among others, who overflow the queue as well, it is not the path that has changed.
        if !matches!(self.state, State::Cruise(_)) {
            self.left_cruise_at = cx.now;
        } else if cx.now - self.left_cruise_at > LONG.max(round_trip * LONG_ROUNDS) {
            self.last_steady_cruise_at = cx.now;
        }
        let alone = cx.now - self.last_steady_cruise_at < round_trip * 2;
        let fallen = alone && lost > 0 && model.has_fallen(cx.now);
        if let (Some(scalable), Some(round)) = (&mut self.scalable, &round) {
            scalable.on_round(round);
        }
        let next = match self.state {
            State::Startup(_) => self.on_startup(cx, feedback, slice),
            State::Cruise(_) => self.on_cruise(cx, feedback, round.as_ref(), fallen),
            State::Compete(_) if fallen => {
                self.competitors.take_back();
                Some(State::Cruise(Cruise::new(cx.now)))
            }
            State::Compete(_) => self.on_compete(cx, feedback, round.as_ref()),
            State::HoldShare(_) => self.on_hold_share(cx, round.as_ref()),
        };
        if let Some(next) = next {
            self.state = next;
        }
        if feedback.acked_packets > 0 && round.is_some() {
            self.silence /= 2;
        }
        self.decide(cx);
    }

    fn on_probe_timeout(&mut self, cx: &mut Context<'_>, _in_flight: u64) {
        // The window bounds what is sent into a silence; one that is short tells of a busy host.
        if cx.now - self.last_feedback < SILENCE.max(cx.rtt.smoothed() * 2) {
            return;
        }
        if self.silence == 0 {
            let started = !matches!(self.state, State::Startup(_));
            self.before_silence = if started { cx.estimates.recent() } else { Rate::ZERO };
        }
        self.silence = (self.silence + 1).min(10);
        cx.estimates.skip_next_slice();
        self.decide(cx);
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn codepoint(&self) -> Ecn {
        if self.scalable.is_some() { Ecn::Ect1 } else { Ecn::Ect0 }
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            state: match self.state {
                State::Startup(_) => "start-up",
                State::Cruise(_) => "cruise",
                State::Compete(_) => "compete",
                State::HoldShare(_) => "insist",
            },
            bound: self.bound,
        }
    }
}

impl Auto {
    fn new(start: &Start) -> Self {
        let (state, pacing, bound) = match start.known {
            None => {
                let startup = Startup::new(start.now, start.packet);
                let (rate, window) = (startup.rate, startup.window);
                let pacing = Pacing { rate, burst: window, window: Some(window) };
                (State::Startup(startup), pacing, Bottleneck::StartUp)
            }
            Some(Known { rate, round_trip }) => {
                let window = rate.bytes_in(round_trip) * 2 + WINDOW_SLACK;
                let pacing = Pacing { rate, burst: 2 * start.packet, window: Some(window) };
                (State::Cruise(Cruise::new(start.now)), pacing, Bottleneck::Network)
            }
        };
        Self {
            state,
            pacing,
            bound,
            silence: 0,
            before_silence: Rate::ZERO,
            last_feedback: start.now,
            competitors: CompetitorHistory::default(),
            left_cruise_at: start.now,
            last_steady_cruise_at: Instant::ZERO,
            dedicated: start.parameters.get(PATH.name) == 1,
            interval: Some(start.parameters.time(INTERVAL.name)).filter(|time| !time.is_zero()),
            scalable: (start.parameters.get(MARKS.name) == 1).then(Scalable::default),
            memory_use: None,
        }
    }

    /// Returns whether the flow has less than one part in so many of what the path carries.
    fn is_starved(model: &Estimates, parts: u32) -> bool {
        model.recent() < model.capacity().scale(1, parts)
    }

    fn decide(&mut self, cx: &Context<'_>) {
        let (now, rtt, model) = (cx.now, cx.rtt, &*cx.estimates);
        let packet = model.packet();
        let slack = |rate: Rate| rate.bytes_in(FEEDBACK_DELAY) + WINDOW_SLACK;
        let (rate, window, bound) = match &self.state {
            State::Startup(startup) => (startup.rate, startup.window, Bottleneck::StartUp),
            State::Cruise(cruise) => {
                let factor = self.scalable.as_ref().map_or(WHOLE, Scalable::factor);
                let rate = cruise.rate(now, model).scale(factor, WHOLE);
                (rate, model.product(rate) * 2 + slack(rate), Bottleneck::Network)
            }
            State::Compete(compete) => {
                let (window, rate) = compete.allowed(rtt.smoothed(), model);
                (rate, window, Bottleneck::Network)
            }
            State::HoldShare(hold) => {
                let (window, rate) = hold.allowed(model);
                (rate, window, Bottleneck::Network)
            }
        };
        let floor = least_rate(rtt.smoothed(), packet);
        let rate = Rate::from_bps(rate.as_bps() >> self.silence).max(floor);
        let burst = match &self.state {
            State::Cruise(cruise) => {
                model.burst_alone(now, rate).min(MAX_BURST) / cruise.burst_divisor()
            }
            _ => model.burst(rate).min(MAX_BURST),
        };
        let burst = burst.max(model.least_batch(rate).min(MAX_BURST)).max(2 * packet);
        let burst = match &self.state {
            State::Startup(startup) => startup.burst().unwrap_or(burst),
            _ => burst,
        };
        self.pacing = Pacing { rate, burst, window: Some(window.max(4 * packet)) };
        self.bound = bound;
    }
}

/// Makes [`Auto`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AutoConfig {}

impl ControllerConfig for AutoConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &[PATH, MARKS, INTERVAL]
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Auto::new(start))
    }
}

const PATH: Parameter = Parameter {
    name: "path",
    about: "whether room is made for others on the path (shared), or none are there (dedicated)",
    unit: Unit::Choice(&["shared", "dedicated"]),
    default: 0,
    least: 0,
    most: 1,
};

const MARKS: Parameter = Parameter {
    name: "marks",
    about: "how congestion marks are asked for and answered: ECT(0) and as losses, but milder (classic, RFC 8511), or \
            ECT(1) and by their share (l4s, RFC 9331)",
    unit: Unit::Choice(&["classic", "l4s"]),
    default: 0,
    least: 0,
    most: 1,
};

/// Longest time between feedback frames.
const FEEDBACK_DELAY: Duration = Duration::from_millis(10);
const MAX_BURST: u64 = 512 << 10;
const WINDOW_SLACK: u64 = 256 << 10;
const SILENCE: Duration = Duration::from_millis(100);
const COMPETITORS_REMEMBERED: Duration = Duration::from_secs(30);
const SURE_OVERFLOWS: u32 = 2;
/// Parts per million. Where more is lost by chance, flows that fill queues cannot live, and none is
/// there.
const MOST_CHANCE: u32 = 5_000;
/// Round trips after which a cut has nothing to do with the one before.
const CUTS_APART: u32 = 16;
/// Round trips between cuts on average: CUBIC and Reno need more to come back.
const CUTS_SPACING: u32 = 12;
/// CUBIC needs 0.3 / 0.53 round trips for each packet of a small window (RFC 9438, section 4.3); half of
/// that.
const SMALL_WINDOW: u64 = 4;
/// Parts per million: no flow that heeds losses makes so many others lose more.
const HEEDED_LOSS: u32 = 150_000;
const MANY_CUTS: u32 = 6;
/// The same of neighbours that were seen to take no notice this long ago.
const MANY_CUTS_AGAIN: u32 = 4;
const ROOM_REMEMBERED: Duration = Duration::from_secs(120);
const IGNORED_LATELY: Duration = Duration::from_secs(60);
/// Start-ups of neighbours are over by then.
const LONG: Duration = Duration::from_secs(1);
/// A flow with at least 1/8 of the path is not being starved: nine CUBIC flows leave one about that.
const STARVED_BELOW: u32 = 8;
/// With less than 1/12 for long it is, whether or not anything is lost.
const STARVING_BELOW: u32 = 12;
/// On a dedicated path, nor is one with at least half of it.
const DEDICATED_SHARE: u32 = 2;
const LONG_ROUNDS: u32 = 10;
