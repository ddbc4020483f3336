//! Why a packet was lost on the path: what its neighbours found there.

use core::cmp::Reverse;

use longhaul_units::{Cause, Duration, Instant};

use super::Estimates;
use super::chance::{Tally, explained};
use crate::filter::MaxFilter;

/// The queue as packets found it that were sent at known times, and what was lost in front of a full
/// one and of any other.
///
/// A queue drops while it is full, chance at any time. Whatever was sent just before and just behind a
/// lost packet, and arrived, tells how full the queue was. Whether it was full for what waited in it
/// nobody knows; but where losses depend on the queue, more are lost in front of the longest queues than of
/// others.
#[derive(Clone, Debug)]
pub(super) struct Causes {
    /// What packets found, by the time they were sent at; a ring, the oldest at `next`.
    found: [Found; FOUND],
    next: usize,
    /// Longest queue of late.
    longest: MaxFilter,
    /// In front of the longest queues, and of others.
    full: Tally,
    other: Tally,
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
            full: Tally::new(),
            other: Tally::new(),
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

    fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.get().unwrap_or(0))
    }

    fn is_long(&self, queue: Duration) -> bool {
        queue * 4 >= self.longest() * 3
    }
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

    /// Why `packets` were lost that were sent at `sent`: what the queue did then.
    pub fn cause(&mut self, sent: Instant, packets: u64) -> Cause {
        let queue = self.causes.around(sent);
        self.judge(queue, packets)
    }

    /// Losses whose packets' times nobody tells: by the queue that was found last.
    pub(super) fn cause_now(&mut self, packets: u64) -> Cause {
        let known = self.queue_peak.get().is_some();
        let queue = known.then_some(self.queue);
        self.judge(queue, packets)
    }

    fn judge(&mut self, queue: Option<Duration>, packets: u64) -> Cause {
        let Some(queue) = queue else { return Cause::Unknown };
        let shows = self.causes.longest() >= self.least_visible();
        let other = &mut self.causes.other;
        if !shows {
            // Too short a queue to be seen: what chance does not explain was one.
            other.add(0, packets, MANY);
            let measured = self.chance.known_ppm();
            let excess = measured.is_some_and(|ppm| other.lost > explained(other.all(), ppm));
            return if excess { Cause::Congestion } else { Cause::Random };
        }
        let chance = self.chance.known_ppm().unwrap_or(0).max(other.most_ppm()).min(MOST_CHANCE);
        if !self.causes.is_long(queue) {
            self.causes.other.add(0, packets, MANY);
            return Cause::Random;
        }
        let full = &mut self.causes.full;
        full.add(0, packets, MANY);
        let excess = full.lost > explained(full.all(), chance);
        if excess { Cause::Congestion } else { Cause::Random }
    }

    /// Packets arrived while the queue was as it is now.
    pub(super) fn count_arrived(&mut self, packets: u64) {
        let long = self.causes.longest() >= self.least_visible() && self.causes.is_long(self.queue);
        let Causes { full, other, .. } = &mut self.causes;
        let tally = if long { full } else { other };
        tally.add(packets, 0, MANY);
    }

    /// Delays below this are those of batches and of hosts.
    pub(super) fn least_visible(&self) -> Duration {
        self.recent().time_for(BATCH * self.packet).clamp(LEAST_VISIBLE, MOST_VISIBLE)
    }
}

/// Packets that are remembered with what they found: reports come some eight to thirty times a round
/// trip, and a loss is found within two.
const FOUND: usize = 64;
/// Packets that are counted before older ones count half.
const MANY: u64 = 1 << 15;
/// Packets that are sent at once, at most.
const BATCH: u64 = 16;
const LEAST_VISIBLE: Duration = Duration::from_micros(200);
const MOST_VISIBLE: Duration = Duration::from_millis(1);
/// Parts per million: more is no chance.
const MOST_CHANCE: u32 = 100_000;
