//! Holding our own beside flows that fill every queue.

use longhaul_units::{Duration, Instant, Rate};

use crate::Estimates;
use crate::estimates::Round;

/// A window that grows and shrinks as TCP CUBIC's (RFC 9438), so that it takes what CUBIC would
/// take.
#[derive(Clone, Debug)]
pub(super) struct Compete {
    packet: u64,
    /// Bytes.
    pub(super) window: u64,
    /// Packets, at the last congestion event.
    max: u64,
    epoch: Instant,
    /// Milliseconds from the epoch until the window is back at `max`.
    k: u64,
    /// What Reno would have, in 1/1024 packets.
    friendly: u64,
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
}

/// A round trip at slightly more than the rate before the last cut. If that brings a queue, nobody
/// else had made room, so nobody else was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pulse {
    Pending,
    /// Since when, and the longest queue seen.
    Active(Instant, Duration),
    Done,
}

impl Compete {
    pub(super) fn new(now: Instant, packet: u64, window: u64, sure: bool) -> Self {
        let mut compete = Self {
            packet,
            window: window.max(4 * packet),
            max: 0,
            epoch: now,
            k: 0,
            friendly: 0,
            last_cut: now,
            before_cut: Rate::ZERO,
            pulse: Pulse::Done,
            sure,
            least_queue: Duration::MAX,
            dip: None,
            last_dip: now,
        };
        compete.start_epoch(now, compete.window / packet);
        compete
    }

    fn start_epoch(&mut self, now: Instant, max: u64) {
        let packets = self.window / self.packet;
        self.max = max.max(packets);
        self.epoch = now;
        // K = cbrt((max - window) / 0.4) seconds.
        self.k = cbrt((self.max - packets).saturating_mul(2_500_000_000));
        self.friendly = packets << 10;
    }

    /// Packets were lost or marked because the queue was full.
    pub(super) fn on_congestion(&mut self, now: Instant, model: &Estimates, marked: bool) {
        self.before_cut = model.recent();
        self.pulse = if self.sure { Pulse::Done } else { Pulse::Pending };
        let packets = self.window / self.packet;
        // Fast convergence, RFC 9438 section 4.7.
        let max = if packets < self.max { packets * 17 / 20 } else { packets };
        let percent = if marked { 85 } else { 70 };
        self.window = (self.window * percent / 100).max(4 * self.packet);
        self.last_cut = now;
        self.least_queue = Duration::MAX;
        self.start_epoch(now, max);
    }

    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        round_trip: Duration,
        acked: u64,
        model: &Estimates,
    ) {
        self.least_queue = self.least_queue.min(model.queue);
        if let Pulse::Active(_, queue) = &mut self.pulse {
            *queue = model.queue.max(*queue);
        }
        let packets = self.window / self.packet;
        let acked = acked / self.packet;
        let t = (now - self.epoch + round_trip).as_millis() as i64;
        let offset = i128::from(t - self.k as i64);
        let cubic = i128::from(self.max) + offset * offset * offset * 4 / 10_000_000_000;
        let target = cubic.clamp(i128::from(packets), i128::from(packets) * 3 / 2) as u64;
        // 0.53 packets a round trip, RFC 9438 section 4.3.
        self.friendly += ((acked * 543) << 10) / self.friendly.max(1024);
        let growth = (target - packets) * acked * self.packet / packets.max(1);
        self.window = (self.window + growth).max((self.friendly >> 10) * self.packet);
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
        let k = Duration::from_millis(self.k);
        if now - self.last_cut > k * 2 + Duration::from_secs(2) && round.queue_max < target {
            return true;
        }
        match self.pulse {
            Pulse::Pending if now - self.last_cut > round_trip * 2 => {
                let empty = round.queue_max < target;
                self.pulse = if empty { Pulse::Active(now, Duration::ZERO) } else { Pulse::Done };
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

    /// Whether the rate is raised on purpose, so that losses are our own.
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
        let mut window = self.window;
        if self.dip.is_some() {
            window = (model.product(model.recent()) / 2).clamp(4 * self.packet, window);
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

/// Integer cube root, rounded down.
fn cbrt(value: u64) -> u64 {
    let (mut low, mut high) = (0u64, 2_642_245);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if middle * middle * middle <= value { low = middle } else { high = middle - 1 }
    }
    low
}

const DIP_EVERY: Duration = Duration::from_secs(8);
