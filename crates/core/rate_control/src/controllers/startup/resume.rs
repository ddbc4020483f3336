//! Careful Resume (RFC 9959): start-up on a path of which earlier transfers have left a memory.

use longhaul_units::{Duration, Instant, Rate};

use super::{SETTLE, Startup};
use crate::estimates::{Estimates, Slice, explained};
use crate::feedback::Feedback;
use crate::path_memory::PathMemory;
use crate::rtt::RttEstimator;
use longhaul_units::MemoryUse;

/// A memory, and how far start-up has come with it.
///
/// The phases are those of RFC 9959 section 3. What differs: half of the known rate follows the first
/// train at once instead of a round trip later, since that is a round trip in which nothing else is
/// sent, and the RTT is known from the lane's handshake; and the train, whose spread shows what the
/// narrowest link carries, may confirm all of the known rate.
#[derive(Clone, Debug)]
pub(super) struct Resume {
    memory: PathMemory,
    phase: Phase,
    pub(super) usage: MemoryUse,
    /// Packets that arrived since the train left, and those that were lost of what followed it.
    arrived: u64,
    lost: u64,
    /// The rate that the train showed.
    train: Option<Rate>,
    /// The best delivery.
    best: Rate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The first train has not left.
    Reconnaissance,
    /// It has; what follows it waits for the next look at the clock.
    Due(Instant),
    /// Half of the known rate, for a round trip.
    Unvalidated,
    /// All of it, until it was seen delivered.
    Validating,
    /// Half of what was validated, until what was sent before has settled.
    SafeRetreat(Instant),
    Over,
}

impl Startup {
    /// Takes the path history, before the first data.
    pub(in super::super) fn recall(&mut self, memory: &PathMemory) {
        // Where the train takes long to arrive, it tells as much itself.
        let flight = memory.rate().bytes_in(memory.round_trip);
        if flight < FEWEST_TRAINS * self.train.length * self.packet || self.started {
            return;
        }
        self.resume = Some(Resume {
            memory: *memory,
            phase: Phase::Reconnaissance,
            usage: MemoryUse::Waiting,
            arrived: 0,
            lost: 0,
            train: None,
            best: Rate::ZERO,
        });
    }

    /// Returns how the history was used.
    pub(in super::super) fn memory_use(&self) -> Option<MemoryUse> {
        self.resume.as_ref().map(|resume| resume.usage)
    }

    /// Returns when half of the known rate is to follow the train.
    pub(super) fn resume_due(&self) -> Option<Instant> {
        match self.resume.as_ref()?.phase {
            Phase::Due(at) => Some(at),
            _ => None,
        }
    }

    /// The train left.
    pub(super) fn resume_behind_train(&mut self, now: Instant) {
        if let Some(resume) = &mut self.resume
            && resume.phase == Phase::Reconnaissance
        {
            resume.phase = Phase::Due(now);
        }
    }

    /// The train has left: half of the known rate follows it for a round trip, paced, if the path is
    /// the one that is remembered.
    pub(super) fn begin_unvalidated(&mut self, now: Instant, rtt: &RttEstimator) {
        let Some(resume) = &mut self.resume else { return };
        let Phase::Due(_) = resume.phase else { return };
        if !rtt.has_sample() || !resume.memory.fits(rtt.min()) {
            resume.phase = Phase::Over;
            resume.usage = MemoryUse::OtherRoundTrip;
            return;
        }
        resume.phase = Phase::Unvalidated;
        resume.usage = MemoryUse::Unvalidated;
        self.rate = resume.memory.rate().scale(1, 2);
        let flight = self.rate.bytes_in(rtt.smoothed());
        self.window = self.window.max(self.train.length * self.packet + flight + flight / 8);
        self.since = now;
    }

    /// Returns whether packets follow the train at a known rate.
    pub(super) fn is_resuming(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| {
            matches!(resume.phase, Phase::Unvalidated | Phase::Validating | Phase::SafeRetreat(_))
        })
    }

    /// Feedback on the way to the known rate, or back from it; whether start-up is over. Nothing where
    /// it goes on as without a memory.
    pub(super) fn resume(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        model: &mut Estimates,
        feedback: &Feedback,
        slice: Option<Slice>,
    ) -> Option<bool> {
        let round_trip = rtt.smoothed();
        // The newest packet that is reported was sent behind that time.
        let seen = |since: Instant| feedback.rtt.is_some_and(|rtt| now - since > rtt + rtt / 64);
        if !self.is_resuming() {
            return None;
        }
        let phase = self.resume.as_ref()?.phase;
        let is_of_train = phase == Phase::Unvalidated && !seen(self.since + round_trip / 2);
        let lost = self.lost_behind_train(feedback.lost.network(), is_of_train);
        let resume = self.resume.as_mut()?;
        resume.count(feedback, lost, slice);
        let crowded = resume.is_congested() || feedback.marked_packets > 0;
        let known = resume.memory.rate();
        if self.hint.is_none() {
            self.read_train(now, model, feedback);
        }
        if let Phase::SafeRetreat(since) = phase {
            if !seen(since + round_trip / 8) {
                return Some(false);
            }
            self.begin_again(now);
            return None;
        }
        // More than the path carries was sent behind the train.
        let slow = self.hint.is_some_and(|hint| hint < known.scale(15, 32));
        let limit = (model.queue_target(self.rate) * 2).max(model.min_rtt / 16);
        // The train is a queue of its own, which half of the known rate lets drain.
        let drained = round_trip + known.time_for(self.train.length * self.packet) * 3;
        let queued = model.queue > limit && now - self.since > drained;
        if crowded || slow || queued {
            self.learn_overflow(now, model, crowded);
            self.retreat(now, round_trip, model);
            return Some(false);
        }
        // Of a train whose end left late, its beginning tells enough for that.
        let train = self.hint.or_else(|| self.spread_rate(4).filter(|_| seen(self.since)));
        // Half of what the train shows may be no less than all that is known.
        if let Some(rate) = train.filter(|rate| rate.scale(1, 2) >= known) {
            self.resume_ends(MemoryUse::Ignored);
            self.measured = true;
            self.first_train(now, rate);
            return None;
        }
        if !seen(self.since) {
            return Some(false);
        }
        if model.queue < limit / 4 {
            self.past_train = true;
            self.learn_chance(model, feedback.acked_packets, lost);
        }
        let Some(slice) = slice else { return Some(false) };
        let newest = feedback.one_way_delta.map(|us| Duration::from_micros(us.max(0) as u64));
        if slice.rate < self.rate.scale(7, 8) || newest.is_some_and(|queue| queue > limit) {
            let tried = now - self.since > round_trip * 3 / 2 + SETTLE;
            if tried {
                self.resume_ends(MemoryUse::Untested);
            }
            return Some(tried);
        }
        Some(self.step(now, round_trip, model))
    }

    /// Of packets lost, those that were sent behind the train: a queue that the train alone overflows says
    /// nothing of the rate that follows it.
    fn lost_behind_train(&mut self, lost: u64, is_of_train: bool) -> u64 {
        let of_train =
            if is_of_train { self.train.length.saturating_sub(self.train.battered) } else { 0 };
        let of_train = lost.min(of_train);
        self.train.battered += of_train;
        lost - of_train
    }

    /// Learns of a queue that was too long; a full one that did not show was not measured.
    fn learn_overflow(&mut self, now: Instant, model: &mut Estimates, crowded: bool) {
        match crowded && model.queue_peak() >= model.least_visible() {
            true => model.set_queue_full(now, model.queue_peak()),
            false => self.learn_queue(now, model),
        }
    }

    fn resume_ends(&mut self, usage: MemoryUse) {
        if let Some(resume) = &mut self.resume {
            (resume.phase, resume.usage) = (Phase::Over, usage);
        }
    }

    /// Takes what the train shows by itself.
    fn read_train(&mut self, now: Instant, model: &mut Estimates, feedback: &Feedback) {
        let Some(rate) = self.train_rate(feedback) else { return };
        model.learn_capacity(now, rate);
        let Some(resume) = &mut self.resume else { return };
        resume.train = Some(rate);
        let known = resume.memory.rate();
        let alike = known.scale(7, 8)..=known.scale(9, 8);
        self.hint = Some(if alike.contains(&rate) { known } else { rate });
    }

    /// Raises the rate, as the last one was delivered without a queue; returns true if there is no more to find.
    fn step(&mut self, now: Instant, round_trip: Duration, model: &mut Estimates) -> bool {
        self.learn_queue(now, model);
        let Some(resume) = &mut self.resume else { return false };
        let known = resume.memory.rate();
        let hint = *self.hint.get_or_insert(known);
        self.since = now;
        self.window = self.window.max(hint.bytes_in(round_trip) * 2);
        if resume.phase == Phase::Unvalidated {
            resume.phase = Phase::Validating;
            // The train's losses are no part of what the next rate is judged by.
            model.forget_rounds(now);
            // Half of what a train shows would be tried without a memory.
            self.rate = known.min(hint).max(hint.scale(1, 2));
            return false;
        }
        resume.phase = Phase::Over;
        resume.usage = if hint < known { MemoryUse::Lower } else { MemoryUse::Confirmed };
        // The path carried more at other times: more is tried, as without a memory.
        let more = resume.memory.band.1.min(self.rate.scale(self.growth, 100));
        let next = if hint > self.rate { hint.min(self.rate.scale(2, 1)) } else { more };
        let is_more = next > self.rate.scale(17, 16);
        self.rate = if is_more { next } else { self.rate };
        !is_more
    }

    /// Half of what was validated, until what was sent at the known rate has settled.
    fn retreat(&mut self, now: Instant, round_trip: Duration, model: &Estimates) {
        let Some(resume) = &mut self.resume else { return };
        let seen = if resume.best > Rate::ZERO { resume.best } else { model.recent() };
        let validated =
            self.hint.map_or(seen, |hint| if seen > Rate::ZERO { hint.min(seen) } else { hint });
        let least = Rate::from_bytes_over(super::USUAL_WINDOW * self.packet, round_trip);
        self.rate = validated.scale(1, 2).clamp(least.min(self.rate), self.rate.scale(1, 2));
        resume.phase = Phase::SafeRetreat(now);
        resume.usage = MemoryUse::Retreated;
    }

    /// The retreat is over: from here on as behind a first train without a memory, at the rate that it
    /// showed, or else at what was validated.
    fn begin_again(&mut self, now: Instant) {
        let shown = self.spread_rate(4).filter(|_| self.was_cut());
        let validated = self.rate.scale(2, 1);
        let Some(resume) = &mut self.resume else { return };
        resume.phase = Phase::Over;
        let shown = resume.train.or(shown);
        self.measured = shown.is_some();
        if self.measured {
            self.train.battered = 0;
        }
        self.past_train = false;
        self.first_train(now, shown.unwrap_or(validated));
    }

    /// The first packets of a train whose end a short queue dropped are as many as that holds.
    fn learn_queue(&self, now: Instant, model: &mut Estimates) {
        if self.was_cut() && self.spread_rate(4).is_some() {
            model.set_queue_full(now, self.train.spread.1);
        }
    }
}

impl Resume {
    /// Counts what a report shows behind the train.
    fn count(&mut self, feedback: &Feedback, lost: u64, slice: Option<Slice>) {
        self.arrived += feedback.acked_packets;
        self.lost += lost;
        self.best = self.best.max(slice.map_or(Rate::ZERO, |slice| slice.rate));
    }

    /// Returns whether more was lost than the path was known to lose by chance.
    fn is_congested(&self) -> bool {
        let all = self.arrived + self.lost;
        // One lost packet is no evidence on a path that loses some.
        let chance = match self.memory.chance_ppm {
            0 => 0,
            ppm => explained(all, ppm).max(FEW_LOSSES),
        };
        self.lost > chance
    }
}

/// Of the first train, in flight at the known rate: it then arrives in a small part of a round trip.
const FEWEST_TRAINS: u64 = 4;
/// Packets of a train that a path which loses one in a hundred may lose.
const FEW_LOSSES: u64 = 6;

#[cfg(test)]
mod tests;
