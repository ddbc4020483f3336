//! Causes of losses on the path, from the queues that neighbouring packets found.

use core::cmp::Reverse;

use longhaul_units::{Cause, Duration, Instant, Losses};

use super::Estimates;
use super::chance::{Tally, explained};
use crate::filter::MaxFilter;

/// The queue as packets found it that were sent at known times, and what was lost in front of a full
/// one and of any other.
///
/// A queue drops while it is full, chance at any time. Whatever was sent just before and just behind a
/// lost packet, and arrived, tells how full the queue was. Whether it was full for what waited in it
/// nobody knows; but where losses depend on the queue, more are lost in front of the longest queues than of
/// others. What arrived and what was lost is counted by the length of the queue, since how long the longest
/// will be shows later: a queue that grows is at its longest all the time.
#[derive(Clone, Debug)]
pub(super) struct Causes {
    /// Queues that packets found, by the time they were sent at; a ring, the oldest at `next`.
    found: [Found; FOUND],
    next: usize,
    /// Longest queue of late.
    longest: MaxFilter,
    /// Outcome of packets, by the queue they found: see [`level`].
    levels: [Tally; LEVELS],
    /// Lost packets that are counted, and of whose cause the path shows nothing.
    left_open: u64,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    sent: Instant,
    queue: Duration,
}

impl Causes {
    pub(super) const fn new() -> Self {
        Self {
            found: [Found { sent: Instant::ZERO, queue: Duration::ZERO }; FOUND],
            next: 0,
            longest: MaxFilter::new(),
            levels: [Tally::new(); LEVELS],
            left_open: 0,
        }
    }

    /// A packet that was sent at `sent` found `queue`.
    fn note(&mut self, now: Instant, sent: Instant, queue: Duration, window: Duration) {
        self.found[self.next] = Found { sent, queue };
        self.next = (self.next + 1) % FOUND;
        self.longest.update(now, queue.as_nanos() as u64, window);
    }

    /// The longer of the queues that were found just before and just behind `sent`.
    fn around(&self, sent: Instant) -> Option<Duration> {
        let known = || self.found.iter().filter(|found| found.sent > Instant::ZERO);
        // What is sent at once finds queues that its own first packets are in.
        let before = known().filter(|found| found.sent <= sent);
        let before = before.max_by_key(|found| (found.sent, found.queue));
        let behind = known().filter(|found| found.sent >= sent);
        let behind = behind.min_by_key(|found| (found.sent, Reverse(found.queue)));
        before.into_iter().chain(behind).map(|found| found.queue).max()
    }

    /// The longer of the two that were found last: what arrived in between found that, by the rule
    /// for what was lost in between.
    fn last(&self) -> Option<Duration> {
        let newest = (self.next + FOUND - 1) % FOUND;
        let before = (self.next + FOUND - 2) % FOUND;
        let found = [self.found[newest], self.found[before]].into_iter();
        found.filter(|found| found.sent > Instant::ZERO).map(|found| found.queue).max()
    }

    fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.get().unwrap_or(0))
    }

    /// The queue that half of what was lost beyond chance had found, or a longer one; `None` of few.
    fn overflowing(&self, chance_ppm: u32) -> Option<Duration> {
        let beyond = self.levels.map(|level| {
            level.lost.saturating_sub(level.all() * u64::from(chance_ppm) / 1_000_000)
        });
        let half = beyond.iter().sum::<u64>() / 2;
        let mut shorter = 0;
        let at = beyond.iter().position(|beyond| {
            shorter += beyond;
            shorter > half
        })?;
        (half >= FEW_LOST).then(|| end(at))
    }

    fn count(&mut self, queue: Duration, acked: u64, lost: u64) {
        self.levels[level(queue)].add(acked, lost, MANY);
    }
}

/// Level of a queue: four for each doubling, from [`SHORTEST`] on.
fn level(queue: Duration) -> usize {
    let units = queue.as_nanos() as u64 / (SHORTEST.as_nanos() as u64 / 4);
    // Four units are the first level's least, with two bits below the highest.
    let Some(octave) = units.checked_ilog2().and_then(|log| log.checked_sub(2)) else { return 0 };
    let quarter = (units >> octave) as usize - 4;
    (octave as usize * 4 + quarter).min(LEVELS - 1)
}

/// The length at which a level ends.
fn end(level: usize) -> Duration {
    SHORTEST / 4 * ((level % 4 + 5) << (level / 4)) as u32
}

impl Estimates {
    /// A packet that was sent at `sent` has arrived: after `rtt`, and with a one-way delay so many
    /// microseconds above the least.
    pub fn on_arrived(
        &mut self,
        now: Instant,
        sent: Instant,
        rtt: Option<Duration>,
        one_way_delta: Option<i64>,
    ) {
        let Some(queue) = self.queue_of(rtt, one_way_delta) else { return };
        let window = self.last_round.elapsed.max(super::MIN_ROUND) * super::PEAK_ROUNDS;
        self.causes.note(now, sent, queue, window);
    }

    /// Returns the cause of `packets` losses sent at `sent`: what the queue did then.
    pub fn cause(&mut self, sent: Instant, packets: u64) -> Cause {
        let Some(queue) = self.causes.around(sent) else { return Cause::Unknown };
        let cause = self.judge(queue, packets);
        if cause == Cause::Unknown {
            self.causes.left_open += packets;
        }
        cause
    }

    /// Gives the `unknown` of `lost` a cause, by the queue that was found last: all but those that
    /// [`Estimates::cause`] has left open.
    pub(super) fn judge_unknown(&mut self, mut lost: Losses) -> Losses {
        let left_open = lost.unknown.min(self.causes.left_open);
        self.causes.left_open -= left_open;
        let packets = lost.unknown - left_open;
        if packets > 0 && self.queue_peak.get().is_some() {
            lost.unknown = left_open;
            *lost.count_mut(self.judge(self.queue, packets)) += packets;
        }
        lost
    }

    fn judge(&mut self, queue: Duration, packets: u64) -> Cause {
        self.causes.count(queue, 0, packets);
        let causes = &self.causes;
        // Longer ones than a full one are those of hosts that pause.
        let longest = self.queue_full.unwrap_or(Duration::MAX).min(causes.longest());
        let up_to = |queue: Duration| Tally::sum(&causes.levels[..=level(queue)]);
        let excess = if longest < self.least_visible() {
            // Too short a queue to be seen: what chance does not explain was one. Where nobody measured it
            // on purpose it may well be some percent: where repair is late, no loss was reported yet.
            let all = up_to(longest.max(queue));
            let unmeasured = || Some(self.chance.known_ppm()?.max(UNMEASURED_CHANCE));
            let chance = self.chance.on_purpose_ppm().or_else(unmeasured);
            chance.is_some_and(|ppm| all.lost > explained(all.all(), ppm))
        } else {
            let long = longest * 3 / 4;
            let most = up_to(long).most_ppm();
            let chance = self.chance.known_ppm().unwrap_or(0).max(most).min(MOST_CHANCE);
            let found = causes.levels[level(queue)];
            queue >= long && found.lost > explained(found.all(), chance)
        };
        match excess {
            true => Cause::Congestion,
            false if self.hides_overflows(longest) => Cause::Unknown,
            false => Cause::Random,
        }
    }

    /// A queue that is never longer than `longest` is too short for delays to show which packets it dropped,
    /// and more were lost than chance explains.
    fn hides_overflows(&self, longest: Duration) -> bool {
        let batch = self.batch_time(READ_BATCH);
        let all = Tally::sum(&self.causes.levels);
        let chance = self.chance.on_purpose_ppm();
        longest < batch * SHOWN_BATCHES
            && chance.is_some_and(|ppm| all.lost > explained(all.all(), ppm))
    }

    /// The queue at which the path overflows. `longest` may be the delay of a host's pause: where it is more than
    /// twice what the lost packets found, that counts.
    pub(super) fn overflowing_queue(&self, longest: Duration) -> Duration {
        let chance = self.chance.known_ppm().unwrap_or(0);
        let found = self.causes.overflowing(chance);
        found.filter(|found| longest > *found * 2).unwrap_or(longest)
    }

    /// Packets arrived that were sent between the last two of which a time is known. Their queue is
    /// found as that of lost packets is, or noise would make losses meet long queues more often.
    pub(super) fn count_arrived(&mut self, packets: u64) {
        let queue = self.causes.last().unwrap_or(self.queue);
        self.causes.count(queue, packets, 0);
    }

    /// The time in which a batch arrives, and at least so much.
    fn batch_time(&self, least: Duration) -> Duration {
        self.recent().time_for(BATCH * self.packet).clamp(least, MOST_VISIBLE)
    }

    /// Delays below this are those of batches and of hosts.
    pub(crate) fn least_visible(&self) -> Duration {
        self.batch_time(LEAST_VISIBLE)
    }
}

/// Packets that are remembered with what they found: reports come some eight to thirty times a round
/// trip, and a loss is found within two.
const FOUND: usize = 64;
/// The first level ends a quarter above this; shorter queues are of it.
const SHORTEST: Duration = Duration::from_micros(32);
/// Half a second and more are of the last level.
const LEVELS: usize = 4 * 14;
/// Lost packets, half of them: fewer tell nothing of the queue that they found.
const FEW_LOST: u64 = 16;
/// Packets that are counted at a level before older ones count half.
const MANY: u64 = 1 << 12;
/// Packets that are sent at once, at most.
const BATCH: u64 = 16;
const LEAST_VISIBLE: Duration = Duration::from_micros(200);
const MOST_VISIBLE: Duration = Duration::from_millis(1);
/// Time for which a receiver's network card gathers packets, at most.
const READ_BATCH: Duration = Duration::from_micros(250);
/// Batches that a queue has to be long for the delays of its packets to tell how full it was.
const SHOWN_BATCHES: u32 = 4;
/// Parts per million, of which twice are borne.
const UNMEASURED_CHANCE: u32 = 20_000;
/// Parts per million: more is no chance.
const MOST_CHANCE: u32 = 100_000;

#[cfg(test)]
mod tests;
