//! What the path looks like from its feedback.

use longhaul_units::{Duration, Instant, Rate};

use crate::filter::{MaxFilter, MinFilter};
use crate::{Delivery, Feedback, RttEstimator};

/// Estimates of rate, queue and loss, and the rounds in which they are judged.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Delivery rate of the last two rounds: what to base the rate on.
    recent: MaxFilter,
    /// Delivery rate of the last ten rounds.
    bandwidth: MaxFilter,
    capacity: MaxFilter,
    gathered: Gathered,
    queue_floor: MinFilter,
    /// Present queueing delay, and the largest of the last rounds.
    pub(super) queue: Duration,
    queue_peak: MaxFilter,
    base: MinFilter,
    /// Round trip without queue.
    pub(super) min_rtt: Duration,
    /// When packets were last lost or marked.
    disturbed: Instant,
    round_start: Instant,
    round: Round,
    last_round: Round,
    /// Packets of drains and of early start-up, and how many of them were lost.
    chance: Tally,
    /// Packets of late, whatever the rate was; of the lost, those that chance explains.
    late: Tally,
    /// The queueing delay at which the path lost or marked packets.
    queue_full: Option<Duration>,
    /// When it last did.
    filled: Option<Instant>,
    skip_slice: bool,
    pub(super) packet: u64,
    /// Start-up wants to know soon.
    pub(super) short_slices: bool,
}

/// What happened in one round, which lasts a round trip, but at least [`MIN_ROUND`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Round {
    pub(super) acked_packets: u64,
    pub(super) acked_bytes: u64,
    pub(super) lost_packets: u64,
    pub(super) marked_packets: u64,
    /// Least and largest queueing delay.
    pub(super) queue_min: Option<Duration>,
    pub(super) queue_max: Duration,
    /// Best delivery rate.
    pub(super) delivered: Rate,
    pub(super) limited: bool,
    pub(super) elapsed: Duration,
}

/// What became of packets; older ones count less and less.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    acked: u64,
    lost: u64,
}

impl Tally {
    /// Adds some, and halves everything once there are more than `most`.
    fn add(&mut self, acked: u64, lost: u64, most: u64) {
        self.acked += acked;
        self.lost += lost;
        if self.all() > most {
            self.acked /= 2;
            self.lost /= 2;
        }
    }

    fn all(&self) -> u64 {
        self.acked + self.lost
    }
}

/// Consecutive delivery samples, gathered until they span enough batches to be exact.
#[derive(Clone, Copy, Default, Debug)]
struct Gathered {
    bytes: u64,
    interval: Duration,
    limited: bool,
}

/// What was gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub rate: Rate,
    /// There was too little to send for part of that time.
    pub limited: bool,
}

impl Model {
    pub(super) fn new(now: Instant, packet: u64) -> Self {
        Self {
            recent: MaxFilter::new(),
            bandwidth: MaxFilter::new(),
            capacity: MaxFilter::new(),
            gathered: Gathered::default(),
            queue_floor: MinFilter::new(),
            queue: Duration::ZERO,
            queue_peak: MaxFilter::new(),
            base: MinFilter::new(),
            min_rtt: Duration::ZERO,
            disturbed: now,
            round_start: now,
            round: Round::default(),
            last_round: Round::default(),
            chance: Tally::default(),
            late: Tally::default(),
            queue_full: None,
            filled: None,
            skip_slice: false,
            packet,
            short_slices: true,
        }
    }

    /// Takes in feedback; gives the slice of delivery and the round that it completes.
    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        feedback: &Feedback,
    ) -> (Option<Slice>, Option<Round>) {
        if let Some(sample) = feedback.rtt {
            self.base.update(now, sample.as_nanos() as u64, BASE_WINDOW);
        }
        self.min_rtt = self.base.get().map_or(rtt.min(), Duration::from_nanos);
        self.update_queue(now, rtt, feedback);
        self.round.acked_packets += feedback.acked_packets;
        self.round.acked_bytes += feedback.acked_bytes;
        self.round.lost_packets += feedback.lost.network;
        self.round.marked_packets += feedback.marked_packets;
        if feedback.lost.network + feedback.marked_packets > 0 {
            self.disturbed = now;
        }
        let slice = feedback.delivery.and_then(|delivery| self.update_rate(now, rtt, delivery));
        // A round without a slice shows no rate.
        let shows = self.round.delivered > Rate::ZERO;
        if !shows || now - self.round_start < self.round_time(rtt) {
            return (slice, None);
        }
        let mut round = core::mem::take(&mut self.round);
        round.elapsed = now - self.round_start;
        self.round_start = now;
        self.last_round = round;
        // What chance does not explain was the queue, and no measure of chance.
        let lost =
            round.lost_packets.min(1 + explained(round.acked_packets, self.random_loss_ppm()));
        self.late.add(round.acked_packets, lost, LATE_PACKETS);
        if let Some(full) = &mut self.queue_full {
            // A queue that grew again is found out slowly.
            let share = round.elapsed.min(FULL_MEMORY).as_micros() as u32;
            *full += *full / FULL_MEMORY.as_micros() as u32 * share;
        }
        (slice, Some(round))
    }

    /// Length of a round: a round trip, but long enough for timers, batches and single packets not
    /// to matter.
    pub(super) fn round_time(&self, rtt: &RttEstimator) -> Duration {
        let packets = self.recent().time_for(ROUND_PACKETS * self.packet).min(MAX_PACKET_TIME);
        rtt.smoothed().max(MIN_ROUND).max(packets)
    }

    /// The queue is what both the one-way delay and the round trip have above their least. The way
    /// back does not disturb the first, a drift between the clocks not the second.
    fn update_queue(&mut self, now: Instant, rtt: &RttEstimator, feedback: &Feedback) {
        let by_rtt = feedback.rtt.map(|sample| sample.saturating_sub(self.min_rtt));
        let one_way = feedback.one_way_delta;
        let one_way = one_way.map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0)));
        let Some(queue) = [by_rtt, one_way].into_iter().flatten().min() else { return };
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

    fn update_rate(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        delivery: Delivery,
    ) -> Option<Slice> {
        self.gathered.bytes += delivery.rate.bytes_in(delivery.interval);
        self.gathered.interval += delivery.interval;
        self.gathered.limited |= delivery.application_limited;
        let least = if self.short_slices { MIN_SLICE } else { MIN_SLICE.max(rtt.smoothed() / 16) };
        if self.gathered.interval < least {
            return None;
        }
        let Gathered { bytes, interval, limited } = core::mem::take(&mut self.gathered);
        if core::mem::take(&mut self.skip_slice) {
            return None;
        }
        let rate = Rate::from_bytes_over(bytes, interval);
        self.round.limited |= limited;
        self.learn_capacity(now, rate);
        self.round.delivered = self.round.delivered.max(rate);
        // With too little to send the path shows less than it can; such samples only ever raise.
        if !limited || rate >= self.recent() {
            let round = self.round_time(rtt);
            self.recent.update(now, rate.as_bps(), round * 2);
            self.bandwidth.update(now, rate.as_bps(), round * 10);
        }
        Some(Slice { rate, limited })
    }

    /// Best delivery rate of the last two rounds; zero before the first sample.
    pub(super) fn recent(&self) -> Rate {
        Rate::from_bps(self.recent.get().unwrap_or(0))
    }

    /// The delivery rate to go on from. A path that carries less than before shows a queue or
    /// losses; without either a slow moment was one of the hosts', and the rate of the last ten
    /// rounds still holds.
    pub(super) fn undisturbed(&self, now: Instant) -> Rate {
        let recent = self.recent();
        let calm = now - self.disturbed > self.last_round.elapsed * CALM_ROUNDS;
        if !calm || self.queue * 4 > self.queue_target(recent) {
            return recent;
        }
        self.bandwidth().map_or(recent, |bandwidth| bandwidth.max(recent))
    }

    /// The most that the path was ever seen to carry, of late.
    pub(super) fn capacity(&self) -> Rate {
        Rate::from_bps(self.capacity.get().unwrap_or(0))
    }

    /// Takes in what the spread of a train says of the narrowest link.
    pub(super) fn learn_capacity(&mut self, now: Instant, rate: Rate) {
        self.capacity.update(now, rate.as_bps(), CAPACITY_WINDOW);
    }

    /// Best delivery rate of the last ten rounds.
    pub(super) fn bandwidth(&self) -> Option<Rate> {
        self.bandwidth.get().map(Rate::from_bps)
    }

    /// The path was silent: the next sample would count the silence.
    pub(super) fn skip_next_slice(&mut self) {
        self.gathered = Gathered::default();
        self.skip_slice = true;
    }

    /// Bytes that fill the path without queue at `rate`.
    pub(super) fn product(&self, rate: Rate) -> u64 {
        rate.bytes_in(self.min_rtt)
    }

    /// Largest queueing delay of the last rounds.
    pub(super) fn queue_peak(&self) -> Duration {
        Duration::from_nanos(self.queue_peak.get().unwrap_or(0))
    }

    pub(super) fn set_queue_full(&mut self, now: Instant, delay: Duration) {
        self.queue_full = Some(delay);
        self.filled = Some(now);
    }

    /// The queueing delay to aim at for a flow of `rate`.
    ///
    /// Long enough to keep the link busy, and falling with the rate, so that of several flows that
    /// see the same queue the slower one gains (as the flow scaling of Swift, SIGCOMM 2020).
    pub(super) fn queue_target(&self, rate: Rate) -> Duration {
        let root = rate.as_bps().isqrt().max(1);
        let target = TARGET_BASE + Duration::from_micros((TARGET_SCALE / root).min(100_000));
        let target = self.queue_full.map_or(target, |full| target.min(full / 2));
        let packet = self.capacity().time_for(self.packet).min(MAX_PACKET_TIME);
        let target = target.min((self.min_rtt / 8).max(TARGET_BASE * 2).max(packet * 2));
        // One packet is no queue.
        target.max(packet)
    }

    /// Time's worth of packets that may leave back to back without filling the queue.
    pub(super) fn burst_time(&self) -> Duration {
        self.queue_full.map_or(TIMER_TIME, |full| TIMER_TIME.min(full / 2))
    }

    /// As [`Model::burst_time`], for a flow that has the path to itself: what was not sent while the
    /// host gave the sender no turn then waits in the queue, and the next such pause leaves the link
    /// busy.
    pub(super) fn burst_time_alone(&self, now: Instant) -> Duration {
        let since = self.filled.map_or(Duration::MAX, |filled| now - filled);
        if since < self.last_round.elapsed * CALM_ROUNDS {
            return self.burst_time();
        }
        let time = (self.min_rtt / 8).clamp(TIMER_TIME, TURN_TIME);
        self.queue_full.map_or(time, |full| time.min(full / 4).max(self.burst_time()))
    }

    /// Whether this feedback tells of marks, or of at least `least` losses more than chance
    /// explains, of which no more than `most_chance` parts per million are put down to it.
    pub(super) fn excess_loss(&self, feedback: &Feedback, least: u64, most_chance: u32) -> bool {
        if feedback.marked_packets > 0 {
            return true;
        }
        if feedback.lost.network == 0 {
            return false;
        }
        let lost = self.round.lost_packets + self.last_round.lost_packets;
        let all = lost + self.round.acked_packets + self.last_round.acked_packets;
        lost >= least + explained(all, self.random_loss_ppm().min(most_chance))
    }

    /// Losses of the present and the last round, parts per million.
    pub(super) fn recent_loss_ppm(&self) -> u32 {
        let lost = self.round.lost_packets + self.last_round.lost_packets;
        let all = lost + self.round.acked_packets + self.last_round.acked_packets;
        (lost * 1_000_000).checked_div(all).unwrap_or(0) as u32
    }

    /// Largest queueing delay of the present and the last round.
    pub(super) fn queue_peak_short(&self) -> Duration {
        self.round.queue_max.max(self.last_round.queue_max)
    }

    /// Takes in what became of packets at a rate that cannot have been too high.
    pub(super) fn learn_chance(&mut self, acked: u64, lost: u64) {
        self.chance.add(acked, lost, MANY_PACKETS);
        self.late.add(acked, lost, LATE_PACKETS);
    }

    /// As [`Model::learn_chance`], where what was learnt before is known to be wrong.
    pub(super) fn relearn_chance(&mut self, acked: u64, lost: u64) {
        (self.chance, self.late) = (Tally::default(), Tally::default());
        self.learn_chance(acked, lost);
    }

    /// Loss that does not depend on the rate, parts per million.
    pub(super) fn random_loss_ppm(&self) -> u32 {
        // Few packets prove little: begin with some that arrived.
        let ppm = self.chance.lost * 1_000_000 / (self.chance.all() + PRIOR_PACKETS);
        ppm.min(self.most_chance()).min(MAX_RANDOM_LOSS) as u32
    }

    /// Chance cannot have taken more than was lost in all, parts per million; two standard
    /// deviations above that. Where others filled the queue while chance was learnt, their losses
    /// were taken for it.
    fn most_chance(&self) -> u64 {
        let lost = self.late.lost + 2 * self.late.lost.isqrt() + PRIOR_LOSSES;
        lost * 1_000_000 / self.late.all().max(1)
    }
}

/// So many of `all` packets may be lost by a chance of so many parts per million: twice the mean and
/// four standard deviations.
fn explained(all: u64, chance: u32) -> u64 {
    let expected = all * u64::from(chance) / 1_000_000;
    2 * expected + 4 * expected.isqrt()
}

const FULL_MEMORY: Duration = Duration::from_secs(30);
const CAPACITY_WINDOW: Duration = Duration::from_secs(300);
/// A standing queue is not taken for the path before neighbours had many chances to drain it.
const BASE_WINDOW: Duration = Duration::from_secs(30);
/// Below this, timers and batches make more difference than the path.
pub(super) const MIN_ROUND: Duration = Duration::from_millis(4);
/// A timer fires up to half a millisecond late; the burst makes up for it.
const TIMER_TIME: Duration = Duration::from_micros(500);
/// Two or three turns of another thread.
const TURN_TIME: Duration = Duration::from_millis(4);
const ROUND_PACKETS: u64 = 16;
const MAX_PACKET_TIME: Duration = Duration::from_millis(50);
/// Eight of the largest batches (250 us).
const MIN_SLICE: Duration = Duration::from_millis(2);
const PEAK_ROUNDS: u32 = 50;
/// Longer than the losses of a policer stay away.
const CALM_ROUNDS: u32 = 40;
const TARGET_BASE: Duration = Duration::from_micros(250);
/// 0.75 ms at 1 Gb/s, in microseconds times the root of bits per second.
const TARGET_SCALE: u64 = 750 * 31_623;
/// More is an outage rather than a property of the path.
const MAX_RANDOM_LOSS: u64 = 100_000;
/// So many are remembered: enough for a loss rate of one in a thousand to be told.
const MANY_PACKETS: u64 = 8_192;
/// So many of late: with fewer, the losses of one overflow would pass for a rate.
const LATE_PACKETS: u64 = 1 << 17;
/// Losses that may have been too few to show.
const PRIOR_LOSSES: u64 = 3;
/// Imagined packets that arrived.
const PRIOR_PACKETS: u64 = 256;
