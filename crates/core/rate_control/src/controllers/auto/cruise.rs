//! Keeping a path full with a short queue.

use longhaul_units::{Duration, Instant, Rate};

use crate::controller::Sent;
use crate::estimates::{Estimates, MIN_ROUND, Round};
use crate::feedback::Feedback;
use crate::rtt::RttEstimator;

/// The normal state: the rate that is delivered, corrected towards the queue target.
///
/// While there is no queue the rate rises in growing steps. Every few seconds, and when more is
/// lost than usual, the rate is lowered for a round trip: that empties the queue, which refreshes
/// the least round trip, and shows which losses do not depend on the rate.
#[derive(Clone, Debug)]
pub(super) struct Cruise {
    /// Present step above the delivered rate, parts per thousand.
    step: u32,
    /// The step of the last round, which this one shows.
    shown: u32,
    delivered: Rate,
    /// Less was delivered than the path was seen to carry.
    below_line: bool,
    hold: u32,
    next_hold: u32,
    drain: Option<Drain>,
    last_drain: Instant,
    drain_after: Duration,
    /// Rounds since the state of the path changed so much that losses and queues are our own.
    settled: u32,
    /// Rounds in a row with a queue that is not ours.
    crowded: u32,
    last_queue: Duration,
    /// Time when a burst last made up for a pause of this host.
    caught_up: Instant,
    /// Time when the queue last overflowed by its own doing: what was lost then needs no drain to explain it.
    overflowed: Instant,
}

/// A round trip below the rate of the path, and what was lost of it.
#[derive(Clone, Copy, Debug)]
struct Drain {
    start: Instant,
    length: Duration,
    round_trip: Duration,
    factor: i64,
    acked: u64,
    lost: u64,
    /// More than usual was lost, of this share, at this queueing delay.
    suspicion: Option<(u32, Duration)>,
}

/// Evidence of neighbours in a round or feedback frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Fine,
    /// A queue stands that is not ours.
    Crowded,
    /// A queue that is not ours overflowed; surely, if it cost more than one packet of many.
    Overflow {
        sure: bool,
    },
}

impl Cruise {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            step: 0,
            shown: 0,
            delivered: Rate::ZERO,
            below_line: false,
            hold: 0,
            next_hold: 0,
            drain: None,
            last_drain: now,
            drain_after: DRAIN_EVERY,
            settled: 0,
            crowded: 0,
            last_queue: Duration::ZERO,
            caught_up: Instant::ZERO,
            overflowed: Instant::ZERO,
        }
    }

    pub(super) fn on_sent(&mut self, now: Instant, sent: &Sent) {
        if !sent.late_by.is_zero() {
            self.caught_up = now;
        }
    }

    pub(super) fn rate(&self, now: Instant, model: &Estimates) -> Rate {
        let recent = model.undisturbed(now);
        let recent = model.standing().map_or(recent, |standing| standing.min(recent));
        let target = model.queue_target(recent);
        let recent = if model.queue > target { model.without_batches(recent) } else { recent };
        let target = target.as_nanos() as i64;
        let error = target - model.queue.as_nanos() as i64;
        let factor = match &self.drain {
            Some(drain) if self.is_draining(now) => drain.factor,
            _ => {
                let span = model.min_rtt.max(MIN_ROUND).as_nanos() as i64;
                let correction = (error * GAIN / span).clamp(MIN_CORRECTION, MAX_CORRECTION);
                MILLION + correction + i64::from(self.step) * 1_000
            }
        };
        // What is lost by chance is sent on top, unless there is a queue: then it may not be
        // chance.
        let random = if self.is_draining(now) { 0 } else { i64::from(model.random_loss_ppm()) };
        let random = random * (target + error).clamp(0, target) / target.max(1);
        recent.scale(factor as u32, (MILLION - random) as u32)
    }

    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        model: &mut Estimates,
        feedback: &Feedback,
        round: Option<&Round>,
        random: u32,
    ) -> Verdict {
        self.watch_drain(now, model, feedback);
        let target = model.queue_target(model.recent());
        let packets = model.recent().time_for(3 * model.packet()).min(MAX_PACKETS_TIME);
        let overflow = model.queue >= (target * 13 / 8).max(packets)
            && model.is_long(model.queue)
            && self.settled >= SETTLED_ROUNDS
            && model.lost_by_queue(feedback);
        if overflow && self.is_own(now, rtt, model) {
            // Of late: the longest delay of many rounds may be that of a pause.
            model.set_queue_full(now, model.queue);
            self.overflowed = now;
        } else if overflow {
            model.set_queue_full(now, model.queue_peak());
            return Verdict::Overflow { sure: !model.lost_one_of_many() };
        }
        if self.drain.is_none() {
            let due = now - self.last_drain > self.drain_after;
            let most = model.random_loss_ppm() + MOST_UNEXPLAINED;
            let explained = now - self.overflowed < rtt.smoothed() * 2;
            let suspicious = model.excess_loss(feedback, SUSPICIOUS_LOSSES, u32::MAX)
                && (!model.knows_chance()
                    || !explained && model.is_long(model.queue_peak_short())
                    || model.recent_loss_ppm() > most);
            let suspicion = suspicious.then(|| (model.recent_loss_ppm(), model.queue_peak_short()));
            if due || suspicion.is_some() {
                self.start_drain(now, rtt, model, suspicion, random);
            }
        }
        match round {
            Some(round) => self.on_round(model, round, target),
            None => Verdict::Fine,
        }
    }

    /// The path has changed: for some rounds losses and queues are our own.
    pub(super) fn unsettle(&mut self) {
        self.settled = 0;
        self.step = 0;
    }

    /// Returns whether an overflow that shows now is of its own making: nobody else has any of the path, as far as
    /// a pause of this host, which what arrived lacks, lets that be seen.
    fn is_own(&self, now: Instant, rtt: &RttEstimator, model: &Estimates) -> bool {
        let caught_up = now - self.caught_up < rtt.smoothed() * CAUGHT_UP_ROUNDS;
        let visible = model.queue >= model.packet_time() * VISIBLE_PACKETS;
        caught_up && model.has_whole_path() || visible && model.has_path_alone()
    }

    fn is_draining(&self, now: Instant) -> bool {
        self.drain.is_some_and(|drain| now - drain.start < drain.length)
    }

    /// Divides bursts: they alone can overflow a short queue, and a drain has to show that.
    pub(super) fn burst_divisor(&self) -> u64 {
        if self.drain.is_some_and(|drain| drain.suspicion.is_some()) { 16 } else { 1 }
    }

    fn start_drain(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        model: &Estimates,
        suspicion: Option<(u32, Duration)>,
        random: u32,
    ) {
        let round_trip = rtt.smoothed();
        let mut length = model.round_time(rtt);
        if let Some((loss_ppm, _)) = suspicion {
            // Long enough for the difference to show.
            let packets = 12_000_000 / u64::from(loss_ppm.max(1)) + 1;
            let enough = model.recent().time_for(packets.saturating_mul(model.packet()));
            length = enough.clamp(length, length * 8);
        }
        let excess = model.queue.as_nanos() as i64 * MILLION / length.as_nanos().max(1) as i64;
        let lost = suspicion.map_or(0, |(loss_ppm, _)| i64::from(loss_ppm));
        let factor = (MILLION - excess - lost - DRAIN_MARGIN).max(MILLION / 2);
        self.drain =
            Some(Drain { start: now, length, round_trip, factor, acked: 0, lost: 0, suspicion });
        self.last_drain = now;
        let every = DRAIN_EVERY.max(round_trip * 16);
        self.drain_after = every + every * (random % 256) / 1024;
        self.step = 0;
    }

    /// Counts what became of the packets of a drain, which feedback shows a round trip later.
    fn watch_drain(&mut self, now: Instant, model: &mut Estimates, feedback: &Feedback) {
        let Some(drain) = &mut self.drain else { return };
        let since = now - drain.start;
        // Only an empty queue tells: others may keep it full.
        let packets = model.recent().time_for(2 * model.packet()).min(MAX_PACKETS_TIME);
        let low = match drain.suspicion {
            Some((_, queue)) => queue / 2,
            None => model.queue_target(model.recent()) / 2,
        };
        let low = low.max(packets).max(model.least_queue(model.recent()));
        if since > drain.round_trip * 17 / 16 && model.queue <= low {
            drain.acked += feedback.acked_packets;
            drain.lost += feedback.lost.network();
        }
        if since < drain.length + drain.round_trip {
            return;
        }
        let all = drain.acked + drain.lost;
        match drain.suspicion {
            // At the former share many more would have been lost: the queue had overflowed.
            Some((before, queue)) if u64::from(before) * all > (2 * drain.lost + 8) * 1_000_000 => {
                if model.is_long(queue) {
                    model.set_queue_full(now, queue);
                }
                model.learn_chance(drain.acked, drain.lost);
                self.hold_steps();
            }
            // As many are lost at the lower rate.
            Some((before, _))
                if all >= MANY_PACKETS
                    && u64::from(before) * all < 3 * drain.lost / 2 * 1_000_000 =>
            {
                model.relearn_chance(drain.acked, drain.lost);
            }
            // Nobody else's packets gave way: a queue that stays full.
            Some((_, queue)) if all == 0 => model.set_queue_full(now, queue),
            _ => model.learn_chance(drain.acked, drain.lost),
        }
        self.drain = None;
        // The queue comes back by itself.
        self.hold = self.hold.max(2);
    }

    fn on_round(&mut self, model: &Estimates, round: &Round, target: Duration) -> Verdict {
        let before = core::mem::replace(&mut self.delivered, round.delivered);
        self.settled = if self.step > 0 || self.shown > 0 { 0 } else { self.settled + 1 };
        if !round.limited && round.delivered < before.scale(7, 8) {
            self.settled = 0;
        }
        if self.drain.is_none() {
            self.probe(model, round, before, target);
        }
        if self.is_crowded(model, round, target) { Verdict::Crowded } else { Verdict::Fine }
    }

    /// Returns whether a queue stands that is not ours: far above the target and not falling.
    fn is_crowded(&mut self, model: &Estimates, round: &Round, target: Duration) -> bool {
        let least = round.queue_min.unwrap_or(Duration::ZERO);
        let ours = target * 2 + model.min_rtt / 16;
        if least > ours && least >= self.last_queue * 7 / 8 {
            self.crowded += 1;
        } else {
            self.crowded = 0;
        }
        self.last_queue = least;
        self.crowded >= CROWDED_ROUNDS
    }

    fn probe(&mut self, model: &Estimates, round: &Round, before: Rate, target: Duration) {
        let shown = core::mem::replace(&mut self.shown, self.step);
        // A host that pauses in every round has sent at the full rate in between.
        let idle = round.limited && round.delivered < model.recent().scale(7, 8);
        // Less than any sender may have in flight at first: slow start.
        let few = model.product(round.delivered) < FEW_PACKETS * model.packet();
        let queued = (target / 2).max(model.least_queue(round.delivered) * 5 / 4);
        // A few packets build no queue that is short beside the round trip: that is jitter.
        let queued = if few { queued.max(model.min_rtt / 8) } else { queued };
        if round.queue_max > queued || idle {
            self.step = 0;
            return;
        }
        if self.hold > 0 {
            self.hold -= 1;
            self.step = 0;
            return;
        }
        let follows = round.delivered > before.scale(1_000 + shown / 4, 1_000);
        if shown >= JUDGED_STEP && !follows {
            self.hold_steps();
            return;
        }
        let (first, most) = if few { (MAX_STEP, SLOW_START) } else { (FIRST_STEP, MAX_STEP) };
        // Up to what the path carried before in large steps, beyond that from the first one on.
        let room = model.room_below_line(round.delivered);
        let was_below = core::mem::replace(&mut self.below_line, room > first);
        self.step = match self.below_line {
            true => (self.step * 2).clamp(first, most).min(room),
            false if was_below => first,
            false => (self.step * 2).clamp(first, most),
        };
    }

    fn hold_steps(&mut self) {
        self.next_hold = (self.next_hold * 2).clamp(4, 32);
        self.hold = self.next_hold;
        self.step = 0;
    }
}

const MILLION: i64 = 1_000_000;
/// Share of the queue's error that is worked off per round, parts per million of the rate.
const GAIN: i64 = 300_000;
const MIN_CORRECTION: i64 = -500_000;
const MAX_CORRECTION: i64 = 250_000;
const FIRST_STEP: u32 = 10;
const MAX_STEP: u32 = 250;
const SLOW_START: u32 = 1_000;
const FEW_PACKETS: u64 = 32;
const JUDGED_STEP: u32 = 80;
const CROWDED_ROUNDS: u32 = 5;
const SETTLED_ROUNDS: u32 = 4;
/// Fewer in two rounds are not worth a drain.
const SUSPICIOUS_LOSSES: u64 = 4;
/// Parts per million beyond chance (BBR version 3 bears as much): whatever the queue is like, that is
/// looked into.
const MOST_UNEXPLAINED: u32 = 20_000;
/// Well within the ten seconds for which the least round trip is remembered.
const DRAIN_EVERY: Duration = Duration::from_secs(3);
/// A pause shows in what arrives a round trip later, and for two rounds.
const CAUGHT_UP_ROUNDS: u32 = 4;
/// Where fewer fill the queue, batches alone decide whose are lost.
const VISIBLE_PACKETS: u32 = 16;
const DRAIN_MARGIN: i64 = 30_000;
/// Three packets of a slow flow may come together by chance.
const MAX_PACKETS_TIME: Duration = Duration::from_millis(10);
/// Enough to forget what was believed before.
const MANY_PACKETS: u64 = 200;
