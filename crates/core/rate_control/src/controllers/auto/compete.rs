//! Holding our own beside flows that fill every queue.

use longhaul_units::{Duration, Instant, Rate};

use super::super::cubic::CubicWindow;
use crate::estimates::Estimates;
use crate::estimates::Round;

/// A window that grows and shrinks as TCP CUBIC's, so that it takes what CUBIC would take. Where
/// others keep the queue from emptying, who has much of the path gives up more of it: it was there first, its
/// packets are spread and lost less often than bursts, and CUBIC takes minutes to come to equal shares.
#[derive(Clone, Debug)]
pub(super) struct Compete {
    cubic: CubicWindow,
    last_cut: Instant,
    /// The delivery rate before the last cut.
    before_cut: Rate,
    pulse: Pulse,
    /// Others are known to be there: no pulse.
    sure: bool,
    /// Least queueing delay since the last cut.
    least_queue: Duration,
    dip: Option<Instant>,
    last_dip: Instant,
    /// Time when it last had some of the path.
    fed: Instant,
}

/// A round trip at slightly more than the rate before the last cut. If that brings a queue, nobody
/// else had made room, so nobody else was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pulse {
    Pending,
    /// Time when it began, and the longest queue seen.
    Active(Instant, Duration),
    Done,
}

impl Compete {
    pub(super) fn new(now: Instant, packet: u64, window: u64, sure: bool) -> Self {
        Self {
            cubic: CubicWindow::new(now, packet, window, LEAST_PACKETS),
            last_cut: now,
            before_cut: Rate::ZERO,
            pulse: Pulse::Done,
            sure,
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

    /// Packets were lost or marked because the queue was full.
    pub(super) fn on_congestion(&mut self, now: Instant, model: &Estimates, marked: bool) {
        self.before_cut = model.recent();
        self.pulse = if self.sure { Pulse::Done } else { Pulse::Pending };
        self.cubic.on_congestion(now, marked);
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
        acked: u64,
        model: &Estimates,
    ) {
        self.cubic.set_packet(model.packet());
        self.least_queue = self.least_queue.min(model.queue);
        if let Pulse::Active(_, queue) = &mut self.pulse {
            *queue = model.queue.max(*queue);
        }
        self.cubic.on_acked(now, round_trip, acked);
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
        if now - self.last_cut > self.cubic.k() * 2 + Duration::from_secs(2)
            && round.queue_max < target
        {
            return true;
        }
        match self.pulse {
            Pulse::Pending if now - self.last_cut > round_trip * 2 => {
                // The round may have begun before the queue was empty: the next one shows.
                let draining = round.queue_min.is_some_and(|queue| queue < target)
                    && now - self.last_cut < round_trip * 4;
                self.pulse = match round.queue_max < target {
                    true => Pulse::Active(now, Duration::ZERO),
                    false if draining => Pulse::Pending,
                    false => Pulse::Done,
                };
            }
            Pulse::Active(since, queue) if now - since > round_trip * 5 / 2 => {
                self.pulse = Pulse::Done;
                if queue > target {
                    return true;
                }
            }
            _ => {}
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

    pub(super) fn in_recovery(&self, now: Instant, round_trip: Duration) -> bool {
        now - self.last_cut < round_trip * 4 / 3
    }

    /// Returns whether the rate is raised on purpose, so that losses are our own.
    pub(super) fn is_pulsing(&self) -> bool {
        matches!(self.pulse, Pulse::Active(..))
    }

    /// Bytes that may be in flight now, and the rate.
    pub(super) fn allowed(
        &self,
        now: Instant,
        round_trip: Duration,
        model: &Estimates,
    ) -> (u64, Rate) {
        let mut window = self.window();
        if self.dip.is_some() {
            window =
                (model.product(model.recent()) / 2).clamp(LEAST_PACKETS * model.packet(), window);
        }
        let rate = Rate::from_bytes_over(window, round_trip).scale(21, 20);
        match self.pulse {
            Pulse::Active(since, _) if now - since < round_trip => {
                let pulse = self.before_cut.scale(21, 20).max(rate);
                (window.max(pulse.bytes_in(round_trip * 2)), pulse)
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
const DIP_EVERY: Duration = Duration::from_secs(8);
const LEAST_PACKETS: u64 = 4;
const STARVED_TIME: Duration = Duration::from_secs(5);
const STARVED_ROUNDS: u32 = 50;
