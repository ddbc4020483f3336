//! Model of the path from its feedback: for every controller, and for the account of losses.

mod causes;
mod chance;
mod plausible;
mod rates;
mod target;

use longhaul_units::{Duration, Instant, Losses, Rate};

use crate::feedback::Feedback;
use crate::filter::{MaxFilter, MinFilter};
use crate::losses::LossAccount;
use crate::rtt::RttEstimator;
use causes::Causes;
use chance::Chance;
use plausible::plausible;
use rates::Rates;

pub(crate) use chance::explained;
pub(crate) use rates::Slice;

/// Estimates of rate, queue and chance loss of one path, the rounds in which they are judged, and
/// the account of its losses.
///
/// Kept beside the controller, whichever it is: a controller's driver gives each feedback to
/// [`Estimates::on_feedback`] first, and what that returns to the controller.
#[derive(Clone, Debug)]
pub struct Estimates {
    rates: Rates,
    queue_floor: MinFilter,
    /// Present queueing delay, and the largest of the last rounds.
    pub(crate) queue: Duration,
    queue_peak: MaxFilter,
    base: MinFilter,
    /// Round trip without queue.
    pub(crate) min_rtt: Duration,
    /// Time when packets were last lost or marked.
    disturbed: Instant,
    round_start: Instant,
    round: Round,
    last_round: Round,
    chance: Chance,
    causes: Causes,
    account: LossAccount,
    /// The queueing delay at which the path lost or marked packets.
    queue_full: Option<Duration>,
    /// Time when it last did.
    filled: Option<Instant>,
    packet: u64,
    /// Length of a round, if it is to be another than a round trip.
    pub(crate) interval: Option<Duration>,
    /// Slice and round that the last feedback completed.
    pub(crate) completed: Completed,
}

/// The slice of delivery and the round that a feedback completed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Completed {
    pub(crate) slice: Option<Slice>,
    pub(crate) round: Option<Round>,
}

/// Events of one round, which lasts a round trip, but at least [`MIN_ROUND`].
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Round {
    pub(crate) acked_packets: u64,
    pub(crate) acked_bytes: u64,
    pub(crate) lost_packets: u64,
    pub(crate) marked_packets: u64,
    /// Least and largest queueing delay.
    pub(crate) queue_min: Option<Duration>,
    pub(crate) queue_max: Duration,
    /// Best delivery rate.
    pub(crate) delivered: Rate,
    /// Bytes that arrived, and in which time, while there was enough to send.
    pub(crate) arrived: (u64, Duration),
    pub(crate) limited: bool,
    pub(crate) elapsed: Duration,
}

impl Estimates {
    /// Estimates of a path of which nothing is known, for full packets of `packet` bytes.
    pub fn new(now: Instant, packet: u64) -> Self {
        Self {
            rates: Rates::new(),
            queue_floor: MinFilter::new(),
            queue: Duration::ZERO,
            queue_peak: MaxFilter::new(),
            base: MinFilter::new(),
            min_rtt: Duration::ZERO,
            disturbed: now,
            round_start: now,
            round: Round::default(),
            last_round: Round::default(),
            chance: Chance::default(),
            causes: Causes::new(),
            account: LossAccount::default(),
            queue_full: None,
            interval: None,
            filled: None,
            packet,
            completed: Completed::default(),
        }
    }

    /// Size of a full packet, headers included; follows the path MTU.
    pub fn packet(&self) -> u64 {
        self.packet
    }

    /// The path MTU was found, or has changed.
    pub fn set_packet(&mut self, packet: u64) {
        self.packet = packet;
    }

    /// Takes in feedback. Returns the feedback for the controller, cut to what can be, with a cause for each
    /// loss. Those that [`Estimates::cause`] was not asked about are classified by the queue now.
    pub fn on_feedback(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        feedback: &Feedback,
    ) -> Feedback {
        let feedback = plausible(*feedback);
        self.completed = self.measure(now, rtt, &feedback);
        self.count_arrived(feedback.acked_packets);
        let lost = self.judge_unknown(feedback.lost);
        self.account.book(&lost);
        self.account.take_back(feedback.spurious_packets);
        Feedback { lost, ..feedback }
    }

    fn measure(&mut self, now: Instant, rtt: &RttEstimator, feedback: &Feedback) -> Completed {
        if let Some(sample) = feedback.rtt {
            self.base.update(now, sample.as_nanos() as u64, BASE_WINDOW);
        }
        self.min_rtt = self.base.get().map_or(rtt.min(), Duration::from_nanos);
        self.update_queue(now, rtt, feedback);
        let lost = feedback.lost.network();
        self.round.acked_packets += feedback.acked_packets;
        self.round.acked_bytes += feedback.acked_bytes;
        self.round.lost_packets += lost;
        self.round.marked_packets += feedback.marked_packets;
        if lost + feedback.marked_packets > 0 {
            self.disturbed = now;
        }
        let slice = feedback.delivery.and_then(|delivery| self.update_rate(now, rtt, delivery));
        // A round without a slice shows no rate.
        let shows = self.round.delivered > Rate::ZERO;
        if !shows || now - self.round_start < self.round_time(rtt) {
            return Completed { slice, round: None };
        }
        let mut round = core::mem::take(&mut self.round);
        round.elapsed = now - self.round_start;
        self.round_start = now;
        self.last_round = round;
        self.learn_sustained(now);
        let quiet = self.is_quiet(&round);
        self.chance.on_round(round.acked_packets, round.lost_packets, quiet);
        self.forget_queue_full(round.elapsed);
        Completed { slice, round: Some(round) }
    }

    /// Mean rate of the last round, where a queue stood in all of it and this flow has the path to itself. It
    /// is the link's: batches make the best slice of a round too high, and that keeps a queue standing.
    pub(crate) fn standing(&self) -> Option<Rate> {
        let Round { queue_min, arrived: (bytes, time), .. } = self.last_round;
        let stood = queue_min? > self.queue_target(self.recent());
        if !stood || bytes <= STANDING_PACKETS * self.packet {
            return None;
        }
        let rate = Rate::from_bytes_over(bytes, time);
        self.is_whole_path(rate).then_some(rate)
    }

    /// Begins a round now; what came before it is no part of the last one.
    pub(crate) fn forget_rounds(&mut self, now: Instant) {
        (self.round, self.last_round, self.round_start) = (Round::default(), Round::default(), now);
    }

    /// Returns whether there was no queue to speak of in a round: then nothing of ours can have overflowed
    /// one.
    fn is_quiet(&self, round: &Round) -> bool {
        round.queue_min.is_some() && round.queue_max < self.queue_target(self.recent()) * 2
    }

    /// Length of a round: a round trip, but long enough for timers, batches and single packets not
    /// to matter.
    pub(crate) fn round_time(&self, rtt: &RttEstimator) -> Duration {
        let packets = self.recent().time_for(ROUND_PACKETS * self.packet).min(MAX_PACKET_TIME);
        self.interval.unwrap_or(rtt.smoothed()).max(MIN_ROUND).max(packets)
    }

    /// The queue is what both the one-way delay and the round trip have above their least. The way
    /// back does not disturb the first, a drift between the clocks not the second.
    fn update_queue(&mut self, now: Instant, rtt: &RttEstimator, feedback: &Feedback) {
        let Some(queue) = self.queue_of(feedback.rtt, feedback.one_way_delta) else { return };
        let nanos = queue.as_nanos() as u64;
        self.queue_floor.update(now, nanos, rtt.smoothed() / 8);
        self.queue = Duration::from_nanos(self.queue_floor.get().unwrap_or(nanos));
        self.queue_peak.update(
            now,
            self.queue.as_nanos() as u64,
            self.round_time(rtt) * PEAK_ROUNDS,
        );
        let least = self.round.queue_min.unwrap_or(Duration::MAX).min(self.queue);
        self.round.queue_min = Some(least);
        self.round.queue_max = self.round.queue_max.max(self.queue);
    }

    fn queue_of(&self, rtt: Option<Duration>, one_way_delta: Option<i64>) -> Option<Duration> {
        let by_rtt = rtt.map(|sample| sample.saturating_sub(self.min_rtt));
        let one_way = one_way_delta.map(|us| u64::try_from(us).unwrap_or(0));
        [by_rtt, one_way.map(Duration::from_micros)].into_iter().flatten().min()
    }

    /// Bytes that fill the path without queue at `rate`.
    pub(crate) fn product(&self, rate: Rate) -> u64 {
        rate.bytes_in(self.min_rtt)
    }

    /// Largest queueing delay of the last rounds.
    pub(crate) fn queue_peak(&self) -> Duration {
        Duration::from_nanos(self.queue_peak.get().unwrap_or(0))
    }

    /// Returns whether a queue of that delay can have overflowed: none does while it is shorter than it was of
    /// late, unless all of them are too short to be distinguished from the pauses of hosts.
    pub(crate) fn is_long(&self, queue: Duration) -> bool {
        let longest = self.queue_peak();
        longest < self.least_visible() || queue * 4 >= longest * 3
    }

    /// Packets of the present and the last round: those that were lost, and all.
    fn lately(&self) -> (u64, u64) {
        let lost = self.round.lost_packets + self.last_round.lost_packets;
        (lost, lost + self.round.acked_packets + self.last_round.acked_packets)
    }

    /// Returns whether this feedback reports marks, or of at least `least` losses more than chance
    /// explains, of which no more than `most_chance` parts per million are put down to it.
    pub(crate) fn excess_loss(&self, feedback: &Feedback, least: u64, most_chance: u32) -> bool {
        if feedback.marked_packets > 0 {
            return true;
        }
        if feedback.lost.network() == 0 {
            return false;
        }
        let (lost, all) = self.lately();
        lost >= least + chance::explained(all, self.random_loss_ppm().min(most_chance))
    }

    /// Returns whether this feedback reports marks, or losses that chance does not explain, be it as high as the
    /// evidence leaves it (three standard deviations: one in a thousand).
    pub(crate) fn lost_by_queue(&self, feedback: &Feedback) -> bool {
        let (lost, all) = self.lately();
        let most = all * u64::from(self.chance.most_ppm()) / 1_000_000;
        self.excess_loss(feedback, 1, u32::MAX)
            && (feedback.marked_packets > 0 || lost > most + 3 * most.isqrt())
    }

    /// So many of `all` packets may have been lost by chance, by the best evidence there is; no more
    /// than `most_chance` parts per million are put down to it.
    pub(crate) fn by_chance(&self, all: u64, most_chance: u32) -> u64 {
        chance::explained(all, self.chance_ppm().unwrap_or(0).min(most_chance))
    }

    /// Returns whether one packet was lost of many in the present and the last round.
    pub(crate) fn lost_one_of_many(&self) -> bool {
        let (lost, all) = self.lately();
        lost == 1 && all > MANY_PACKETS
    }

    /// Losses of the present and the last round, parts per million.
    pub(crate) fn recent_loss_ppm(&self) -> u32 {
        let (lost, all) = self.lately();
        (lost * 1_000_000).checked_div(all).unwrap_or(0) as u32
    }

    /// Largest queueing delay of the present and the last round.
    pub(crate) fn queue_peak_short(&self) -> Duration {
        self.round.queue_max.max(self.last_round.queue_max)
    }

    /// Estimate of the round trip without queues.
    pub fn min_rtt(&self) -> Option<Duration> {
        (!self.min_rtt.is_zero()).then_some(self.min_rtt)
    }

    /// Estimate of the present queueing delay.
    pub fn queue(&self) -> Duration {
        self.queue
    }

    /// The path's losses so far, by cause.
    pub fn losses(&self) -> Losses {
        self.account.losses()
    }

    /// Books losses whose cause is known, or that nothing will be known of: no controller gets
    /// them.
    pub fn book(&mut self, lost: &Losses) {
        self.account.book(lost);
    }
}

/// A standing queue is not taken for the path before neighbours had many chances to drain it.
const BASE_WINDOW: Duration = Duration::from_secs(30);
/// Below this, timers and batches make more difference than the path.
pub(crate) const MIN_ROUND: Duration = Duration::from_millis(4);
/// Of fewer the mean of a round is no better than its best slice.
const STANDING_PACKETS: u64 = 64;
const ROUND_PACKETS: u64 = 16;
const MANY_PACKETS: u64 = 128;
const MAX_PACKET_TIME: Duration = Duration::from_millis(50);
const PEAK_ROUNDS: u32 = 50;
