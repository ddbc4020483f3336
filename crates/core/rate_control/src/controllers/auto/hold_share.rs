//! Holds a share of the path against flows that ignore loss.

use longhaul_units::{Duration, Instant, Rate};

use crate::estimates::Estimates;
use crate::estimates::Round;

/// The rate that is delivered, a round trip above it and one below it in every eight, as BBR
/// version 1 does (Cardwell et al., 2016), which is what such flows are: neither can push the other
/// out. Its window is smaller, though (7/4 products and 10 ms, where BBR has two): feedback comes later than single
/// acknowledgements would, and what was lost is known later.
#[derive(Clone, Debug)]
pub(super) struct HoldShare {
    entered: Instant,
    /// Its window before, in bytes.
    window_before: u64,
    phase: usize,
    phase_start: Instant,
    rounds: u32,
    /// Rounds in a row without a queue.
    quiet: u32,
    /// Rounds in a row with most of the path.
    ahead: u32,
    /// While it grows as BBR's start-up does: the bandwidth that was a quarter more than before, and rounds since then.
    growing: Option<(Rate, u32)>,
    /// Losses since then: parts per million of each round, summed up.
    lost_ppm: u32,
}

/// Consequence of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    GoOn,
    /// The queue is gone: nobody else fills it.
    Alone,
    /// Time to see whether the others have learnt manners.
    TryAgain,
    /// The others have made room.
    MadeRoom,
}

impl HoldShare {
    pub(super) fn new(now: Instant, model: &Estimates, window_before: u64) -> Self {
        let small = model.recent() < model.capacity().scale(1, SMALL_SHARE);
        let growing = small.then_some((Rate::ZERO, 0));
        Self {
            entered: now,
            window_before,
            phase: 0,
            phase_start: now,
            rounds: 0,
            quiet: 0,
            ahead: 0,
            growing,
            lost_ppm: 0,
        }
    }

    /// Bytes.
    pub(super) fn window_before(&self) -> u64 {
        self.window_before
    }

    pub(super) fn on_feedback(&mut self, now: Instant, round_time: Duration) {
        if now - self.phase_start > round_time {
            self.phase = (self.phase + 1) % GAINS.len();
            self.phase_start = now;
        }
    }

    pub(super) fn on_round(&mut self, now: Instant, model: &Estimates, round: &Round) -> Outcome {
        self.rounds += 1;
        if let Some((best, flat)) = self.growing {
            let bandwidth = model.bandwidth().unwrap_or(Rate::ZERO);
            let flat = if bandwidth >= best.scale(5, 4) { 0 } else { flat + 1 };
            let best = if flat == 0 { bandwidth } else { best };
            self.growing = (flat < FLAT_ROUNDS).then_some((best, flat));
        } else {
            let all = round.acked_packets + round.lost_packets;
            let lost_ppm = (round.lost_packets * 1_000_000 / all.max(1)) as u32;
            self.lost_ppm = self.lost_ppm.saturating_add(lost_ppm);
        }
        let target = model.queue_target(model.recent());
        self.quiet = if round.queue_max < target { self.quiet + 1 } else { 0 };
        let ahead = model.recent() > model.capacity().scale(3, 5);
        self.ahead = if ahead { self.ahead + 1 } else { 0 };
        if self.quiet >= QUIET_ROUNDS {
            Outcome::Alone
        } else if self.ahead >= AHEAD_ROUNDS
            && self.lost_ppm < ROOM_MADE + ROOM_MADE_ROUND * self.rounds
            && model.queue_peak() > model.packet_time() * SHORT_QUEUE
        {
            Outcome::MadeRoom
        } else if now - self.entered > MOST_TIME
            || self.ahead >= AHEAD_ROUNDS
            || self.rounds > GRACE_ROUNDS && model.recent_loss_ppm() > MOST_LOSS
        {
            Outcome::TryAgain
        } else {
            Outcome::GoOn
        }
    }

    pub(super) fn allowed(&self, model: &Estimates) -> (u64, Rate) {
        let bandwidth = model.bandwidth().unwrap_or(Rate::ZERO);
        let window = model.product(bandwidth) * 7 / 4 + bandwidth.bytes_in(FEEDBACK_DELAY);
        match self.growing {
            Some(_) => (window * 3 / 2, bandwidth.scale(START_UP, 100)),
            None => (window, bandwidth.scale(GAINS[self.phase], 100)),
        }
    }
}

const GAINS: [u32; 8] = [125, 75, 100, 100, 100, 100, 100, 100];
/// The losses that led here are not counted, nor those of coming back.
const GRACE_ROUNDS: u32 = 40;
const QUIET_ROUNDS: u32 = 16;
/// Start-up as BBR's, 2 / ln 2 times what arrives until three rounds bring no quarter more, where it has less than one
/// part in so many: a small flow among full windows finds the queue full, and each of its cycles brings less.
const START_UP: u32 = 289;
const FLAT_ROUNDS: u32 = 3;
const SMALL_SHARE: u32 = 16;
/// BBR keeps out of the way for 200 ms in ten seconds.
const AHEAD_ROUNDS: u32 = 16;
/// Parts per million, in all and for each round: beside BBR more is lost by then, beside CUBIC less.
const ROOM_MADE: u32 = 2_000_000;
const ROOM_MADE_ROUND: u32 = 10_000;
/// Packets: on so short a queue its own kind makes room and takes it back.
const SHORT_QUEUE: u32 = 8;
/// Parts per million; more, and all flows hold their share.
const MOST_LOSS: u32 = 300_000;
const MOST_TIME: Duration = Duration::from_secs(30);
/// Longest time between feedback frames.
const FEEDBACK_DELAY: Duration = Duration::from_millis(10);
