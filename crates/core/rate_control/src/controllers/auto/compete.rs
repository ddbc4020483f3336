//! Holding our own beside flows that fill every queue.

use longhaul_units::{Duration, Instant, Rate};

use super::super::cubic::CubicWindow;
use crate::estimates::{Estimates, Round, explained};
use crate::feedback::Feedback;

/// A window that grows and shrinks as TCP CUBIC's, so that it takes what CUBIC would take. Where
/// others keep the queue from emptying, who has much of the path gives up more of it: it was there first, its
/// packets are spread and lost less often than bursts, and CUBIC takes minutes to come to equal shares.
#[derive(Clone, Debug)]
pub(super) struct Compete {
    cubic: CubicWindow,
    last_cut: Instant,
    reclaim: Reclaim,
    /// Others are known to be there, and need time to come back.
    sure: bool,
    /// Packets lost since the last cut, and whether they were too many for other flows.
    lost: u64,
    burst: bool,
    /// Least queueing delay since the last cut.
    least_queue: Duration,
    dip: Option<Instant>,
    last_dip: Instant,
    /// Time when it last had some of the path.
    fed: Instant,
}

/// Where a cut emptied the queue, the rate rises round by round into what nobody uses. If that is about all that the
/// path was seen to carry, nobody else is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reclaim {
    Pending,
    /// The present rate.
    Rising(Rate),
    /// Somebody else has the rest, which showed at this time.
    Done(Instant),
}

impl Reclaim {
    /// Begins to rise; a slice that came early is no more than the path carries.
    fn from(model: &Estimates) -> Self {
        Self::Rising(model.recent().min(model.capacity()))
    }
}

impl Compete {
    pub(super) fn new(now: Instant, packet: u64, window: u64, sure: bool) -> Self {
        Self {
            cubic: CubicWindow::new(now, packet, window, LEAST_PACKETS),
            last_cut: now,
            reclaim: Reclaim::Done(Instant::ZERO),
            sure,
            lost: 0,
            burst: false,
            least_queue: Duration::MAX,
            dip: None,
            last_dip: now,
            fed: now,
        }
    }

    /// It has some of the path.
    pub(super) fn on_fed(&mut self, now: Instant) {
        self.fed = now;
    }

    /// Returns whether it has had next to nothing for so long that the law would have given it more, if its
    /// neighbours obeyed it: flows that keep a queue without filling it, as BBR does, make no room.
    pub(super) fn is_starved(&self, now: Instant, round_trip: Duration) -> bool {
        now - self.fed > STARVED_TIME.max(round_trip * STARVED_ROUNDS)
    }

    /// Bytes.
    pub(super) fn window(&self) -> u64 {
        self.cubic.bytes()
    }

    /// The last cut was one for the pause of a host.
    pub(super) fn met_burst(&self) -> bool {
        self.burst
    }

    /// So many packets were lost, or some marked, because the queue was full.
    pub(super) fn on_congestion(&mut self, now: Instant, model: &Estimates, lost: u64) {
        (self.reclaim, self.lost, self.burst) = (Reclaim::Pending, lost, false);
        self.cubic.on_congestion(now, lost == 0);
        // A queue that stood since the last cut is the others'.
        let target = model.queue_target(model.recent());
        if self.least_queue != Duration::MAX && self.least_queue > target {
            self.cubic.give_way(now, given_up(model.recent(), model.capacity()));
        }
        self.last_cut = now;
        self.least_queue = Duration::MAX;
    }

    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        round_trip: Duration,
        feedback: &Feedback,
        model: &Estimates,
    ) {
        self.lost += feedback.lost.network();
        self.cubic.set_packet(model.packet());
        self.least_queue = self.least_queue.min(model.queue);
        self.cubic.on_acked(now, round_trip, feedback.acked_bytes);
    }

    /// Judges a round; true if nobody else fills the queue any more.
    pub(super) fn on_round(
        &mut self,
        now: Instant,
        model: &Estimates,
        round: &Round,
        round_trip: Duration,
    ) -> bool {
        let target = model.queue_target(model.recent());
        if self.reclaims_all(now, model, round, round_trip) {
            return true;
        }
        if let Some(since) = self.dip {
            if round.queue_min.is_some_and(|queue| queue < target) {
                return true;
            }
            if now - since > round_trip * 2 {
                self.dip = None;
                self.last_dip = now;
            }
        } else if now - self.last_dip > DIP_EVERY
            && self.least_queue > target
            && now - self.last_cut > round_trip * 2
        {
            self.dip = Some(now);
        }
        false
    }

    /// Raises the rate into what nobody uses; true if that is the whole path.
    fn reclaims_all(
        &mut self,
        now: Instant,
        model: &Estimates,
        round: &Round,
        round_trip: Duration,
    ) -> bool {
        let target = model.queue_target(model.recent());
        let empty = round.queue_max < target;
        match self.reclaim {
            Reclaim::Pending if now - self.last_cut > round_trip * 2 => {
                // The round may have begun before the queue was empty: the next one shows.
                let draining =
                    round.queue_min < Some(round.queue_max) && now - self.last_cut < round_trip * 4;
                self.burst = model.is_burst(self.lost);
                if empty && (self.burst || !self.sure) {
                    self.reclaim = Reclaim::from(model);
                } else if !draining {
                    self.reclaim = Reclaim::Done(now);
                }
            }
            Reclaim::Rising(rate) => {
                // What is lost without a queue is chance, or too much for a policer: no other flow's doing.
                let all = round.acked_packets + round.lost_packets;
                let policed = empty && round.lost_packets > explained(all, MOST_UNEXPLAINED);
                if policed
                    || model.room_below_line(round.delivered) < ROOM
                    || model.has_whole_path()
                {
                    return true;
                }
                self.reclaim = match empty {
                    true => Reclaim::Rising(rate.scale(RISE, 100).min(model.capacity())),
                    false => Reclaim::Done(now),
                };
            }
            Reclaim::Done(since) if empty => {
                // CUBIC has come back by then.
                let patience = if self.sure { self.cubic.k() * 2 } else { Duration::ZERO };
                if now - since.max(self.last_cut) > patience + RECLAIM_EVERY {
                    self.reclaim = Reclaim::from(model);
                }
            }
            _ => {}
        }
        false
    }

    /// Returns whether losses are those of the last cut, or of a rate that was raised on purpose.
    pub(super) fn in_recovery(&self, now: Instant, round_trip: Duration) -> bool {
        let rose = match self.reclaim {
            Reclaim::Pending => Instant::ZERO,
            Reclaim::Rising(_) => now,
            Reclaim::Done(since) => since,
        };
        now - self.last_cut.max(rose) < round_trip * 4 / 3
    }

    /// Bytes that may be in flight now, and the rate.
    pub(super) fn allowed(&self, round_trip: Duration, model: &Estimates) -> (u64, Rate) {
        let mut window = self.window();
        if self.dip.is_some() {
            window =
                (model.product(model.recent()) / 2).clamp(LEAST_PACKETS * model.packet(), window);
        }
        let rate = Rate::from_bytes_over(window, round_trip).scale(21, 20);
        match self.reclaim {
            Reclaim::Rising(raised) => {
                let rate = rate.max(raised);
                (window.max(rate.bytes_in(round_trip * 2)), rate)
            }
            // Feedback comes later than single acknowledgements would.
            _ => (window + window / 8, rate),
        }
    }
}

/// Of the window, per cent: the square of the share of the path that it has.
fn given_up(rate: Rate, capacity: Rate) -> u64 {
    let share = rate.as_bps().saturating_mul(100) / capacity.as_bps().max(1);
    (share.min(100).pow(2) / 100).min(MOST_GIVEN_UP)
}

/// The rest is what CUBIC leaves of a window, less than half: enough for the queue to empty.
const MOST_GIVEN_UP: u64 = 40;
/// Per cent a round: what it is too much for one round fits into a short queue.
const RISE: u32 = 108;
/// Parts per million.
const MOST_UNEXPLAINED: u32 = 20_000;
/// Parts per thousand of what the path was seen to carry: nobody shares it for so little.
const ROOM: u32 = 60;
const RECLAIM_EVERY: Duration = Duration::from_secs(2);
const DIP_EVERY: Duration = Duration::from_secs(8);
const LEAST_PACKETS: u64 = 4;
const STARVED_TIME: Duration = Duration::from_secs(5);
const STARVED_ROUNDS: u32 = 50;
