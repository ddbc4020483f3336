//! Finding the rate of an unknown path.
use longhaul_units::{Duration, Instant, Rate};

use crate::controller::Sent;
use crate::estimates::{Estimates, Slice};
use crate::feedback::Feedback;
use crate::rtt::RttEstimator;

mod resume;

use resume::Resume;

/// Start-up: one train of packets to learn the order of magnitude, then steps.
///
/// The spread of the first train is the time its bytes needed at the narrowest link. Half of that
/// rate is tried next, then all of it, then more, a step each time that feedback shows the last
/// step delivered without a queue.
#[derive(Clone, Debug)]
pub(super) struct Startup {
    packet: u64,
    pub(super) rate: Rate,
    pub(super) window: u64,
    /// The rate of the first trains.
    hint: Option<Rate>,
    /// True if start-up may end at that rate.
    ends_at_train: bool,
    /// True if the path spread a train: the rate is that of its narrowest link.
    measured: bool,
    followers: Followers,
    /// Time when the present rate was first used; feedback shows it a round trip later.
    since: Instant,
    sustained: Rate,
    train: Train,
    started: bool,
    /// Time when the window was last widened.
    limited: Instant,
    /// Growth of the next step, parts per hundred.
    growth: u32,
    past_train: bool,
    packets: u64,
    lost: u64,
    /// State of a start from the path history.
    resume: Option<Resume>,
}

/// The first train, and what became of it.
#[derive(Clone, Copy, Debug)]
struct Train {
    /// Packets that it has, and those of them that leave at once.
    length: u64,
    piece: u64,
    /// Bytes of it that have left.
    sent_bytes: u64,
    acked_bytes: u64,
    /// Packets of it that the path lost, and those that a host did.
    battered: u64,
    missed: u64,
    /// Bytes of it that arrived more slowly than they were sent, and in what time.
    spread: (u64, Duration),
    /// The best of what was delivered as fast as it was sent.
    unspread: Rate,
}

impl Train {
    fn new(length: u64, piece: u64) -> Self {
        let (spread, unspread) = ((0, Duration::ZERO), Rate::ZERO);
        let (sent_bytes, acked_bytes, battered, missed) = (0, 0, 0, 0);
        Self { length, piece, sent_bytes, acked_bytes, battered, missed, spread, unspread }
    }
}

/// Packets that follow a train slowly, one by one. A short queue drops a train's end, and that is found
/// missing only where something that was sent later arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Followers {
    /// The train has not left.
    Waiting,
    /// They begin then: behind the first reports about the train, whose spread they would hide.
    Due(Instant),
    Leaving,
}

impl Startup {
    pub(super) fn new(now: Instant, packet: u64) -> Self {
        Self {
            packet,
            rate: TRAIN_RATE,
            window: FIRST_WINDOW * packet,
            hint: None,
            ends_at_train: true,
            measured: false,
            followers: Followers::Waiting,
            since: now,
            sustained: Rate::ZERO,
            train: Train::new(FIRST_TRAIN, FIRST_TRAIN),
            started: false,
            limited: now,
            growth: FIRST_GROWTH,
            past_train: false,
            packets: 0,
            lost: 0,
            resume: None,
        }
    }

    /// That of controllers which do not look for more than start-up has found: it goes on until there is
    /// a queue.
    pub(super) fn until_full(now: Instant, packet: u64) -> Self {
        Self { ends_at_train: false, ..Self::new(now, packet) }
    }

    /// A path that was dark for a while, and carried `rate` before: half of it for a round trip, then all,
    /// as behind a train that showed as much.
    pub(super) fn behind_silence(
        now: Instant,
        packet: u64,
        rate: Rate,
        round_trip: Duration,
    ) -> Self {
        let mut startup = Self { started: true, measured: true, ..Self::new(now, packet) };
        startup.first_train(now, rate);
        startup.window = startup.window.max(rate.bytes_in(round_trip) * 2);
        startup
    }

    pub(super) fn burst(&self) -> Option<u64> {
        let leaves = self.followers != Followers::Leaving;
        let train = self.hint.is_none() && leaves && !self.is_resuming();
        train.then_some(self.train.piece * self.packet)
    }

    /// The clock of the first train starts when most of it has left. A train that the application
    /// cuts short is none: its end would be taken for a slow path. Control messages are no part of it.
    pub(super) fn on_sent(&mut self, now: Instant, rtt: &RttEstimator, sent: &Sent) {
        if self.started || sent.control {
            return;
        }
        self.train.sent_bytes =
            if sent.application_limited { 0 } else { self.train.sent_bytes + sent.bytes };
        if self.train.sent_bytes >= self.train.length * self.packet * 3 / 4 {
            self.started = true;
            self.since = now;
            self.followers = Followers::Due(now + rtt.smoothed() * 3 / 16);
            self.resume_behind_train(now);
        }
    }

    /// Returns when [`Startup::on_timeout`] is to be called.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let followers = match self.followers {
            Followers::Due(at) if self.hint.is_none() => Some(at),
            _ => None,
        };
        self.resume_due().or(followers)
    }

    pub(super) fn on_timeout(&mut self, now: Instant, rtt: &RttEstimator) {
        if self.resume_due().is_some() {
            return self.begin_unvalidated(now, rtt);
        }
        if self.is_resuming() {
            self.followers = Followers::Leaving;
        }
        let Followers::Due(_) = self.followers else { return };
        self.followers = Followers::Leaving;
        self.rate = Rate::from_bytes_over(FOLLOWERS * self.packet, rtt.smoothed());
        self.window += FOLLOWERS * self.packet;
    }

    /// Returns whether start-up is over.
    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        model: &mut Estimates,
        feedback: &Feedback,
        slice: Option<Slice>,
    ) -> bool {
        if !self.started {
            // Reports about earlier control messages show nothing of the path's rate.
            return false;
        }
        self.train.acked_bytes += feedback.acked_bytes;
        if let Some(over) = self.resume(now, rtt, model, feedback, slice) {
            return over;
        }
        let round_trip = rtt.smoothed();
        if self.hint.is_none() && !self.measure_train(now, round_trip, model, feedback) {
            return false;
        }
        let seen = now - self.since > round_trip + round_trip / 64;
        let limit = (model.queue_target(self.rate) * 2).max(model.min_rtt / 16);
        // The first train is a burst; behind it, nothing is lost without a queue but by chance.
        if seen && !self.past_train {
            self.past_train = true;
            if !self.found_full() {
                // What the train lost says nothing of the rate that follows it.
                model.forget_rounds(now);
            }
        }
        if self.past_train && model.queue < limit / 4 {
            self.learn_chance(model, feedback.acked_packets, feedback.lost.network());
        }
        if !seen {
            return false;
        }
        if feedback.marked_packets > 0 {
            return true;
        }
        if model.excess_loss(feedback, MANY_LOSSES, u32::MAX) && model.recent_loss_ppm() > MUCH_LOSS
        {
            model.set_queue_full(now, model.queue_peak());
            return true;
        }
        let Some(slice) = slice else { return false };
        self.sustained = self.sustained.max(slice.rate);
        let window = self.sustained.bytes_in(round_trip) * 4;
        if window > self.window + self.window / 4 {
            // The window may have been what limited the rate.
            self.limited = now;
        }
        self.window = self.window.max(window);
        model.queue > limit || self.step_up(now, round_trip, slice)
    }

    /// Feedback on the first train; returns whether it has shown a rate, and that is the path's.
    fn measure_train(
        &mut self,
        now: Instant,
        round_trip: Duration,
        model: &mut Estimates,
        feedback: &Feedback,
    ) -> bool {
        self.train.battered += feedback.lost.network();
        self.train.missed += feedback.lost.socket + feedback.lost.host;
        let Some(rate) = self.train_rate(feedback) else {
            self.await_train(now, round_trip, model);
            return false;
        };
        if self.train.spread.1 >= round_trip / 2 {
            // The path is slow, or shared: grow as slow start does.
            self.grow_slowly(now, rate.scale(1, 2), rate, round_trip);
            return false;
        }
        model.learn_capacity(now, rate);
        self.measured = true;
        self.first_train(now, rate);
        true
    }

    /// Learns what the path loses by chance.
    fn learn_chance(&mut self, model: &mut Estimates, acked: u64, lost: u64) {
        self.packets += acked;
        self.lost += lost;
        // More than one in fifty, this early, is a queue that was full before.
        model.relearn_chance(self.packets, self.lost.min(self.packets / 50));
    }

    /// Raises the rate if the last one was delivered; returns whether there is no more to find.
    fn step_up(&mut self, now: Instant, round_trip: Duration, slice: Slice) -> bool {
        if slice.rate >= self.rate.scale(7, 8) {
            let hint = self.hint.unwrap_or(Rate::ZERO);
            let next = self.rate.scale(2, 1);
            if self.rate < hint.scale(15, 16) {
                self.rate = next.min(hint);
            } else if self.measured && self.ends_at_train {
                return true;
            } else {
                self.rate = self.rate.scale(self.growth, 100);
                self.growth = (self.growth + self.growth - 100).min(200);
            }
            self.since = now;
            return false;
        }
        let patience = match slice.limited {
            false => round_trip * 3 / 2 + SETTLE,
            true => round_trip * 16 + SETTLE,
        };
        // Few packets prove little.
        let patience = patience.max(self.rate.time_for(PROVING_PACKETS * self.packet));
        now - self.since.max(self.limited) > patience
    }

    /// Returns whether a queue was full before anything of ours can have filled it: most of the first train
    /// was lost; a longer one can fill a queue by itself. On short paths it may be one of a few packets instead, which
    /// holds no window that could compete.
    pub(super) fn met_others(&self, model: &Estimates) -> bool {
        self.found_full() && self.train.length <= FIRST_TRAIN && model.min_rtt >= LONG_PATH
    }

    /// True where an eighth of the first train was lost.
    fn was_cut(&self) -> bool {
        self.train.battered >= self.train.length / 8
    }

    fn found_full(&self) -> bool {
        self.train.battered >= self.train.length / 2
    }

    /// The rate at which half of the first train arrived, once it has: of what took longer to arrive
    /// than to leave, whatever kept more from leaving. The rest tells how fast this host sends, pauses
    /// included.
    fn train_rate(&mut self, feedback: &Feedback) -> Option<Rate> {
        let sample = feedback.delivery?;
        if !sample.is_spread() {
            if !sample.application_limited {
                self.train.unspread = self.train.unspread.max(sample.rate);
            }
            return None;
        }
        let (bytes, time) = self.train.spread;
        self.train.spread = (bytes + sample.rate.bytes_in(sample.interval), time + sample.interval);
        self.spread_rate(2)
    }

    /// The same, of one in `part` of the train at least.
    fn spread_rate(&self, part: u64) -> Option<Rate> {
        let (bytes, time) = self.train.spread;
        (bytes >= self.train.length * self.packet / part)
            .then(|| Rate::from_bytes_over(bytes, time))
    }

    /// The rate of a few packets of the train that arrived over half a round trip or more.
    fn slow_rate(&self, round_trip: Duration) -> Option<Rate> {
        let (bytes, time) = self.train.spread;
        (bytes >= PIECE / 2 * self.packet && time >= round_trip / 2)
            .then(|| Rate::from_bytes_over(bytes, time))
    }

    /// Waits, as the first train has shown no rate so far. Packets of it that are neither lost nor acknowledged
    /// show nothing yet: the receiver may be busy.
    fn await_train(&mut self, now: Instant, round_trip: Duration, model: &mut Estimates) {
        if now - self.since <= round_trip * 9 / 8 {
            return;
        }
        let arrived = self.train.acked_bytes >= self.train.length * self.packet * 5 / 8;
        let slow = Rate::from_bytes_over(self.train.acked_bytes, round_trip).scale(4, 1);
        let drops = self.was_cut();
        if let Some(rate) = self.spread_rate(4).filter(|_| drops) {
            // A short queue took the first of them, and passed them on at the rate of the line.
            model.learn_capacity(now, rate);
            model.set_queue_full(now, self.train.spread.1);
            self.train.battered = 0;
            self.measured = true;
            self.first_train(now, rate);
        } else if let Some(rate) = self.slow_rate(round_trip).filter(|_| drops) {
            self.grow_slowly(now, rate.scale(1, 2), rate, round_trip);
        } else if drops && self.train.piece == FIRST_TRAIN {
            // A short queue, and what it took arrived as one super-packet, as it left.
            self.repeat(SHORT_TRAIN, PIECE);
        } else if arrived && self.train.length < LAST_TRAIN {
            self.repeat(self.train.length * 4, self.train.length * 4);
        } else if !arrived && self.train.missed >= self.train.length / 8 {
            self.repeat(self.train.length, self.train.piece);
        } else if arrived && self.train.unspread > slow {
            self.first_train(now, self.train.unspread);
        } else if arrived || drops {
            self.grow_slowly(now, slow, Rate::MAX, round_trip);
        }
    }

    /// The train arrived, but too fast to be measured, or reported as a whole: once more, longer. Or the
    /// receiving host had no room for it.
    fn repeat(&mut self, length: u64, piece: u64) {
        self.train = Train::new(length, piece);
        self.started = false;
        self.rate = TRAIN_RATE;
        self.window = 2 * length * self.packet;
        self.followers = Followers::Waiting;
    }

    /// Doubles from `rate`, but at least from the usual first window (RFC 6928), or from what the line is seen to
    /// carry, if that is less.
    fn grow_slowly(&mut self, now: Instant, rate: Rate, line: Rate, round_trip: Duration) {
        let least = USUAL_WINDOW * self.packet;
        let rate = rate.max(Rate::from_bytes_over(least, round_trip).min(line));
        self.growth = 200;
        self.first_train(now, rate.scale(2, 1));
        self.window = (rate.bytes_in(round_trip) * 2).clamp(least, MAX_FLIGHT);
        self.train.acked_bytes = 0;
    }

    fn first_train(&mut self, now: Instant, rate: Rate) {
        self.hint = Some(rate);
        self.rate = rate.scale(1, 2);
        self.window = SECOND_FLIGHT * self.packet;
        self.since = now;
    }
}

/// As fast as the host can.
const TRAIN_RATE: Rate = Rate::from_gbps(100);
/// Packets a round trip: about what any sender may have in flight at first.
const FOLLOWERS: u64 = 16;
/// Packets: long enough for its spread to be measured up to 15 Gb/s, short enough for slow paths.
const FIRST_TRAIN: u64 = 64;
/// Packets of the longest: its spread shows up to 200 Gb/s.
const LAST_TRAIN: u64 = 1024;
/// Packets of a train that a queue of 30 takes, and of its pieces: the least that a rate is seen of.
const SHORT_TRAIN: u64 = 32;
const PIECE: u64 = 8;
/// Packets that may be in flight at first: a train, and what small objects and messages left.
const FIRST_WINDOW: u64 = 2 * FIRST_TRAIN;
/// Packets that any sender may have in flight at first.
const USUAL_WINDOW: u64 = 10;
/// Packets after which delivery that stays behind is believed.
const PROVING_PACKETS: u64 = 64;
/// Four packets, the least window, fit 5 Mb/s without a queue.
const LONG_PATH: Duration = Duration::from_millis(10);
/// Packets in flight before any rate was seen sustained.
const SECOND_FLIGHT: u64 = 64 * FIRST_TRAIN;
const MAX_FLIGHT: u64 = 8 << 20;
/// Parts per hundred: the first train tells the rate well, or not at all.
const FIRST_GROWTH: u32 = 106;
/// In two rounds: a queue overflows.
const MANY_LOSSES: u64 = 8;
/// Parts per million.
const MUCH_LOSS: u32 = 20_000;
const SETTLE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
