//! Targets for the length of a queue, and of a burst.

use longhaul_units::{Duration, Instant, Rate};

use super::Estimates;
use super::MAX_PACKET_TIME;
use super::rates::CALM_ROUNDS;
use crate::burst::{TIMER_TIME, useful_burst};

impl Estimates {
    /// The path lost or marked packets at a queueing delay of `delay`.
    pub(crate) fn set_queue_full(&mut self, now: Instant, delay: Duration) {
        self.queue_full = Some(self.overflowing_queue(delay));
        self.filled = Some(now);
    }

    /// A queue that grew again is found out slowly.
    pub(super) fn forget_queue_full(&mut self, elapsed: Duration) {
        if let Some(full) = &mut self.queue_full {
            let share = elapsed.min(FULL_MEMORY).as_micros() as u32;
            *full += *full / FULL_MEMORY.as_micros() as u32 * share;
        }
    }

    /// Returns whether `lost` packets are more than half of what the queue holds when it is full: what grows, as
    /// other flows do, loses little of a round; a host that pauses sends all of it at once.
    pub(crate) fn is_burst(&self, lost: u64) -> bool {
        self.queue_full.is_some_and(|full| lost * self.packet > self.line().bytes_in(full / 2))
    }

    /// The queueing delay to aim at for a flow of `rate`.
    ///
    /// Long enough to keep the link busy, and falling with the rate, so that of several flows that
    /// see the same queue the slower one gains (as the flow scaling of Swift, SIGCOMM 2020).
    pub(crate) fn queue_target(&self, rate: Rate) -> Duration {
        let root = rate.as_bps().isqrt().max(1);
        let target = TARGET_BASE + Duration::from_micros((TARGET_SCALE / root).min(100_000));
        let target = self.queue_full.map_or(target, |full| target.min(full / 2));
        let target =
            target.min((self.min_rtt / 8).max(TARGET_BASE * 2).max(self.packet_time() * 2));
        target.max(self.least_queue(rate))
    }

    /// The delay that a flow of `rate` makes by itself, whatever it aims at: one packet is no queue, nor is one
    /// batch.
    pub(crate) fn least_queue(&self, rate: Rate) -> Duration {
        self.line().time_for(self.least_batch(rate).max(self.packet)).min(MAX_PACKET_TIME)
    }

    /// Bytes that leave at once of a flow of `rate`, as senders get no turn more often.
    pub(crate) fn least_batch(&self, rate: Rate) -> u64 {
        rate.bytes_in(WAKE_UP)
    }

    /// Bytes that may leave back to back of a flow of `rate` without filling the queue.
    pub(crate) fn burst(&self, rate: Rate) -> u64 {
        let half = self.queue_full.map(|full| self.held_in(full / 2, rate));
        half.unwrap_or(u64::MAX).min(rate.bytes_in(TIMER_TIME))
    }

    /// Bytes that are in the queue when it delays a flow of `rate` by `delay`: what the link takes in that
    /// time, however slow this flow is. A sender that was slow for once would else send ever less at once,
    /// and a busy one that is slow to wake up be the slower for it.
    fn held_in(&self, delay: Duration, rate: Rate) -> u64 {
        self.capacity().clamp(rate, rate.scale(4, 1)).bytes_in(delay)
    }

    /// Bytes that may leave back to back of a flow of `rate` that has the path to itself: what was not
    /// sent while the host gave the sender no turn then waits in the queue, and the next such pause
    /// leaves the link busy. And half of them are worth a wake-up.
    pub(crate) fn burst_alone(&self, now: Instant, rate: Rate) -> u64 {
        let since = self.filled.map_or(Duration::MAX, |filled| now - filled);
        if since < self.last_round.elapsed * CALM_ROUNDS {
            return self.burst(rate);
        }
        let time = (self.min_rtt / 8).clamp(TIMER_TIME, TURN_TIME);
        let burst = rate.bytes_in(time).max(useful_burst(rate, self.packet));
        let most = self.queue_full.map(|full| self.held_in(full / 4, rate).max(self.burst(rate)));
        burst.min(most.unwrap_or(u64::MAX))
    }
}

/// Between two turns of a sender: a timer and a system call.
const WAKE_UP: Duration = Duration::from_micros(100);
const FULL_MEMORY: Duration = Duration::from_secs(30);
/// Two or three turns of another thread.
const TURN_TIME: Duration = Duration::from_millis(4);
const TARGET_BASE: Duration = Duration::from_micros(250);
/// 0.75 ms at 1 Gb/s, in microseconds times the root of bits per second.
const TARGET_SCALE: u64 = 750 * 31_623;
