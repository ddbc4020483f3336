//! Holding our own beside flows that take no notice of losses.

use longhaul_units::{Duration, Instant, Rate};

use crate::Estimates;
use crate::estimates::Round;

/// The rate that is delivered, a round trip above it and one below it in every eight, as BBR
/// version 1 does (Cardwell et al., 2016), which is what such flows are: neither can push the other
/// out.
#[derive(Clone, Debug)]
pub(super) struct Insist {
    entered: Instant,
    phase: usize,
    phase_start: Instant,
    rounds: u32,
    /// Rounds in a row without a queue.
    quiet: u32,
}

/// What a round says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    GoOn,
    /// The queue is gone: nobody else fills it.
    Alone,
    /// Time to see whether the others have learnt manners.
    TryAgain,
}

impl Insist {
    pub(super) fn new(now: Instant) -> Self {
        Self { entered: now, phase: 0, phase_start: now, rounds: 0, quiet: 0 }
    }

    pub(super) fn on_feedback(&mut self, now: Instant, round_time: Duration) {
        if now - self.phase_start > round_time {
            self.phase = (self.phase + 1) % GAINS.len();
            self.phase_start = now;
        }
    }

    pub(super) fn on_round(&mut self, now: Instant, model: &Estimates, round: &Round) -> Outcome {
        self.rounds += 1;
        let target = model.queue_target(model.recent());
        self.quiet = if round.queue_max < target { self.quiet + 1 } else { 0 };
        if self.quiet >= QUIET_ROUNDS {
            Outcome::Alone
        } else if now - self.entered > MOST_TIME
            || model.recent() > model.capacity().scale(3, 5)
            || self.rounds > GRACE_ROUNDS && model.recent_loss_ppm() > MOST_LOSS
        {
            Outcome::TryAgain
        } else {
            Outcome::GoOn
        }
    }

    pub(super) fn allowed(&self, model: &Estimates) -> (u64, Rate) {
        let bandwidth = model.bandwidth().unwrap_or(Rate::ZERO);
        let window = model.product(bandwidth) * 2 + bandwidth.bytes_in(FEEDBACK_DELAY);
        (window, bandwidth.scale(GAINS[self.phase], 100))
    }
}

const GAINS: [u32; 8] = [125, 75, 100, 100, 100, 100, 100, 100];
/// The losses that led here are not counted, nor those of coming back.
const GRACE_ROUNDS: u32 = 40;
const QUIET_ROUNDS: u32 = 16;
/// Parts per million; more, and all insist.
const MOST_LOSS: u32 = 300_000;
const MOST_TIME: Duration = Duration::from_secs(30);
/// Longest time between feedback frames.
const FEEDBACK_DELAY: Duration = Duration::from_millis(10);
