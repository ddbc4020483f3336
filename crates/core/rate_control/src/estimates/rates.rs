//! Rates at which the path delivers.

use longhaul_units::{Duration, Instant, Rate};

use super::{Estimates, MAX_PACKET_TIME};
use crate::feedback::Delivery;
use crate::filter::MaxFilter;
use crate::rtt::RttEstimator;

#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// Delivery rate of the last two rounds: what to base the rate on.
    recent: MaxFilter,
    /// Delivery rate of the last quarter of a round.
    newest: MaxFilter,
    /// Delivery rate of the last ten rounds.
    bandwidth: MaxFilter,
    capacity: MaxFilter,
    /// The same, but since the path fell.
    line: MaxFilter,
    /// Mean delivery rate of whole rounds since the path fell.
    sustained: MaxFilter,
    gathered: Gathered,
    /// Rate of the last slice.
    last_slice: Rate,
    skip_slice: bool,
    /// Start-up wants to know soon.
    short_slices: bool,
}

/// Consecutive delivery samples, gathered until they span enough batches to be exact.
#[derive(Clone, Copy, Default, Debug)]
struct Gathered {
    bytes: u64,
    interval: Duration,
    limited: bool,
}

/// Deliveries that were gathered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) rate: Rate,
    interval: Duration,
    /// There was too little to send for part of that time.
    pub(crate) limited: bool,
}

impl Rates {
    pub(super) fn new() -> Self {
        Self {
            recent: MaxFilter::new(),
            newest: MaxFilter::new(),
            bandwidth: MaxFilter::new(),
            capacity: MaxFilter::new(),
            line: MaxFilter::new(),
            sustained: MaxFilter::new(),
            gathered: Gathered::default(),
            last_slice: Rate::ZERO,
            skip_slice: false,
            short_slices: true,
        }
    }

    /// Gathers samples until they span `least`; gives the slice that they make.
    fn gather(&mut self, delivery: Delivery, least: Duration) -> Option<Slice> {
        self.gathered.bytes += delivery.rate.bytes_in(delivery.interval);
        self.gathered.interval += delivery.interval;
        self.gathered.limited |= delivery.application_limited;
        if self.gathered.interval < least {
            return None;
        }
        let Gathered { bytes, interval, limited } = core::mem::take(&mut self.gathered);
        let skipped = core::mem::take(&mut self.skip_slice);
        let rate = Rate::from_bytes_over(bytes, interval);
        (!skipped).then_some(Slice { rate, limited, interval })
    }
}

impl Estimates {
    pub(super) fn update_rate(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        delivery: Delivery,
    ) -> Option<Slice> {
        let short = self.rates.short_slices;
        let least = if short { MIN_SLICE } else { MIN_SLICE.max(rtt.smoothed() / 16) };
        let slice = self.rates.gather(delivery, least)?;
        let Slice { rate, limited, interval } = slice;
        self.round.limited |= limited;
        if !limited {
            let (bytes, time) = self.round.arrived;
            self.round.arrived = (bytes + rate.bytes_in(interval), time + interval);
        }
        // A pause makes one slice slow and the next one fast, which is not what the link carries.
        let before = core::mem::replace(&mut self.rates.last_slice, rate);
        self.learn_capacity(now, rate.min(before.scale(LIKELY_RISE, 4)));
        self.rates.newest.update(now, rate.as_bps(), (rtt.smoothed() / 4).max(MIN_SLICE * 2));
        self.round.delivered = self.round.delivered.max(rate);
        // With too little to send the path shows less than it can; such samples only ever raise.
        if !limited || rate >= self.recent() {
            let round = self.round_time(rtt);
            self.rates.recent.update(now, rate.as_bps(), round * 2);
            self.rates.bandwidth.update(now, rate.as_bps(), round * 10);
        }
        Some(slice)
    }

    /// Best delivery rate of the last two rounds; zero before the first sample.
    pub(crate) fn recent(&self) -> Rate {
        Rate::from_bps(self.rates.recent.get().unwrap_or(0))
    }

    /// The delivery rate to go on from. A path that carries less than before shows a queue or
    /// losses; without either a slow moment was one of the hosts', and the rate of the last ten
    /// rounds still holds.
    pub(crate) fn undisturbed(&self, now: Instant) -> Rate {
        let recent = self.recent();
        let calm = now - self.disturbed > self.last_round.elapsed * CALM_ROUNDS;
        if !calm || self.queue * 4 > self.queue_target(recent) {
            return recent;
        }
        self.bandwidth().map_or(recent, |bandwidth| bandwidth.max(recent))
    }

    /// Returns whether the path carries much less than it did, all at once: much is lost, and far less arrives. What
    /// it delivers now is then what there is to go on from; else the rate would stay for two rounds more.
    pub(crate) fn has_fallen(&mut self, now: Instant) -> bool {
        let newest = Rate::from_bps(self.rates.newest.get().unwrap_or(0));
        let fallen = self.recent_loss_ppm() > FALL_LOSS
            && newest > Rate::ZERO
            && newest < self.recent().scale(3, 4);
        if fallen {
            self.rates.recent.reset(now, newest.as_bps());
            self.rates.bandwidth.reset(now, newest.as_bps());
            self.rates.line.reset(now, newest.as_bps());
            self.rates.sustained.reset(now, newest.as_bps());
        }
        fallen
    }

    /// The most that the path was ever seen to carry, of late.
    pub(crate) fn capacity(&self) -> Rate {
        Rate::from_bps(self.rates.capacity.get().unwrap_or(0))
    }

    /// Returns whether `rate` is about all that the path was seen to carry since it fell.
    pub(super) fn is_whole_path(&self, rate: Rate) -> bool {
        rate > self.line().scale(7, 8)
    }

    /// The most that the path was seen to carry since it fell.
    pub(super) fn line(&self) -> Rate {
        Rate::from_bps(self.rates.line.get().unwrap_or(0))
    }

    /// Parts per thousand of `rate` by which the path was seen to carry more since it fell.
    pub(crate) fn room_below_line(&self, rate: Rate) -> u32 {
        let more = self.line().as_bps().saturating_sub(rate.as_bps()).saturating_mul(1_000);
        more.checked_div(rate.as_bps()).map_or(0, |parts| parts.min(1_000_000) as u32)
    }

    /// Mean rate of the present and the last round.
    fn lately_arrived(&self) -> Option<Rate> {
        let ((bytes, time), (before, took)) = (self.round.arrived, self.last_round.arrived);
        let time = time + took;
        (!time.is_zero()).then(|| Rate::from_bytes_over(bytes + before, time))
    }

    /// Returns whether all that the path was seen to carry since it fell arrived of this flow, of late: then it is
    /// alone, and a queue that overflows is its own. The best slice ever is of a batch that came early; whole rounds
    /// compare well with each other only.
    pub(crate) fn has_whole_path(&self) -> bool {
        self.has_best_round(WHOLE_ROUND)
    }

    /// As [`Estimates::has_whole_path`], but nobody else has as much as a hundredth.
    pub(crate) fn has_path_alone(&self) -> bool {
        self.has_best_round(ROUND_ALONE)
    }

    /// Returns whether so many parts per thousand of the best round since the path fell arrive now.
    fn has_best_round(&self, parts: u32) -> bool {
        let Some(rate) = self.lately_arrived() else { return false };
        self.is_whole_path(rate) && rate >= self.best_round().scale(parts, 1_000)
    }

    /// A round is over, and is the last one now.
    pub(super) fn learn_sustained(&mut self, now: Instant) {
        let (bytes, time) = self.last_round.arrived;
        if time * 2 > self.last_round.elapsed {
            let rate = Rate::from_bytes_over(bytes, time).as_bps();
            self.rates.sustained.update(now, rate, CAPACITY_WINDOW);
        }
    }

    /// Mean delivery rate of the best whole round since the path fell.
    fn best_round(&self) -> Rate {
        Rate::from_bps(self.rates.sustained.get().unwrap_or(0))
    }

    /// `rate`, or the mean of the best round where that is little less: what the best slice has beyond it came
    /// behind a pause, or in one batch.
    pub(crate) fn without_batches(&self, rate: Rate) -> Rate {
        let best = self.best_round();
        if best > rate.scale(7, 8) { rate.min(best) } else { rate }
    }

    /// Takes in what the spread of a train says of the narrowest link.
    pub(crate) fn learn_capacity(&mut self, now: Instant, rate: Rate) {
        self.rates.capacity.update(now, rate.as_bps(), CAPACITY_WINDOW);
        self.rates.line.update(now, rate.as_bps(), CAPACITY_WINDOW);
    }

    /// Start-up has tried the rate that its train showed. If far less arrives and much is lost, the train came in a
    /// batch, and the path never carried as much.
    pub(crate) fn correct_capacity(&mut self, now: Instant) {
        let seen = self.recent();
        if seen < self.capacity().scale(3, 4) && self.recent_loss_ppm() > FALL_LOSS {
            self.rates.capacity.reset(now, seen.as_bps());
            self.rates.line.reset(now, seen.as_bps());
        }
    }

    /// The path's time for a full packet.
    pub(crate) fn packet_time(&self) -> Duration {
        self.line().time_for(self.packet).min(MAX_PACKET_TIME)
    }

    /// Best delivery rate of the last ten rounds.
    pub fn bandwidth(&self) -> Option<Rate> {
        self.rates.bandwidth.get().map(Rate::from_bps)
    }

    /// The rate is known about: from here on slices may be longer, and more exact.
    pub(crate) fn lengthen_slices(&mut self) {
        self.rates.short_slices = false;
    }

    /// The path was silent: the next sample would count the silence.
    pub(crate) fn skip_next_slice(&mut self) {
        self.rates.gathered = Gathered::default();
        self.rates.skip_slice = true;
    }
}

/// Parts per million of two rounds. Flows that fill a queue together lose less of it.
const FALL_LOSS: u32 = 150_000;
/// Parts per thousand of the best round: batches make a difference, and nobody shares the path for so little.
const WHOLE_ROUND: u32 = 985;
/// Parts per thousand of the best round: what batches make of it, and no more.
const ROUND_ALONE: u32 = 994;
/// Quarters of a slice: the link carries no more at once than this beside the slice before.
const LIKELY_RISE: u32 = 5;
const CAPACITY_WINDOW: Duration = Duration::from_secs(300);
/// Eight of the largest batches (250 us).
const MIN_SLICE: Duration = Duration::from_millis(2);
/// Longer than the losses of a policer stay away.
pub(super) const CALM_ROUNDS: u32 = 40;

#[cfg(test)]
mod tests {
    use longhaul_units::Losses;

    use super::*;
    use crate::feedback::Feedback;

    const RTT: Duration = Duration::from_millis(20);
    const STEP: Duration = Duration::from_millis(2);

    /// Estimates that are given what arrives at some rates, each for so many steps.
    struct Fed {
        now: Instant,
        rtt: RttEstimator,
        model: Estimates,
    }

    impl Fed {
        fn new() -> Self {
            let now = Instant::ZERO + Duration::from_secs(1);
            let mut rtt = RttEstimator::new(RTT);
            rtt.update(now, RTT);
            Self { now, rtt, model: Estimates::new(now, 1500) }
        }

        fn feed(&mut self, mbps: u64, steps: u32) {
            self.feed_losing(mbps, steps, 0);
        }

        /// So many of each hundred packets are lost.
        fn feed_losing(&mut self, mbps: u64, steps: u32, percent: u64) {
            for _ in 0..steps {
                self.now += STEP;
                let rate = Rate::from_mbps(mbps);
                let delivery =
                    Delivery { rate, interval: STEP, sent_over: STEP, application_limited: false };
                let feedback = Feedback {
                    rtt: Some(RTT),
                    acked_packets: 100 - percent,
                    lost: Losses { congestion: percent, ..Losses::default() },
                    delivery: Some(delivery),
                    ..Feedback::default()
                };
                self.model.on_feedback(self.now, &self.rtt, &feedback);
            }
        }
    }

    #[test]
    fn a_batch_that_came_early_is_no_room_for_others() {
        let mut fed = Fed::new();
        fed.feed(975, 100);
        fed.feed(1_058, 1);
        fed.feed(975, 40);
        assert!(fed.model.room_below_line(Rate::from_mbps(975)) > 60, "by the best slice");
        assert!(fed.model.has_whole_path());
    }

    #[test]
    fn who_lacks_a_few_percent_of_the_best_rounds_shares_the_path() {
        let mut fed = Fed::new();
        fed.feed(975, 100);
        fed.feed(940, 40);
        assert!(!fed.model.has_whole_path());
        fed.feed(975, 40);
        assert!(fed.model.has_whole_path(), "they have gone");
    }

    #[test]
    fn who_has_a_hundredth_is_somebody_else() {
        let mut fed = Fed::new();
        fed.feed(975, 100);
        fed.feed(965, 40);
        assert!(fed.model.has_whole_path() && !fed.model.has_path_alone());
        fed.feed(973, 40);
        assert!(fed.model.has_path_alone(), "batches make more difference");
    }

    #[test]
    fn what_a_pause_kept_back_and_gave_at_once_is_not_what_the_link_carries() {
        let mut fed = Fed::new();
        fed.feed(975, 100);
        fed.feed(300, 1);
        fed.feed(1_650, 1);
        assert_eq!(fed.model.room_below_line(Rate::from_mbps(975)), 0);
        fed.feed(1_200, 2);
        assert!(fed.model.room_below_line(Rate::from_mbps(975)) > 200, "a link that grew");
    }

    #[test]
    fn a_rate_a_little_above_the_best_round_is_that_of_a_batch() {
        let mut fed = Fed::new();
        fed.feed(975, 100);
        assert_eq!(fed.model.without_batches(Rate::from_mbps(1_058)), Rate::from_mbps(975));
        for mbps in [900, 1_950] {
            let rate = Rate::from_mbps(mbps);
            assert_eq!(fed.model.without_batches(rate), rate, "lower, or a link that grew");
        }
    }

    #[test]
    fn a_train_showed_too_much_where_what_followed_was_lost() {
        for (percent, capacity) in [(0, 2_277), (50, 1_000)] {
            let mut fed = Fed::new();
            fed.model.learn_capacity(fed.now, Rate::from_mbps(2_277));
            fed.feed_losing(1_000, 20, percent);
            fed.model.correct_capacity(fed.now);
            assert_eq!(fed.model.capacity(), Rate::from_mbps(capacity), "{percent} % lost");
        }
    }

    #[test]
    fn a_path_of_which_nothing_arrived_is_not_had() {
        let model = Fed::new().model;
        assert!(!model.has_whole_path() && !model.has_path_alone());
    }
}
