use longhaul_units::{Bytes, Duration, Instant, Rate};

use crate::fluid::Fluid;
use crate::probability::Probability;
use crate::random::{Element, Stream};
use crate::schedule::RateSchedule;

/// The slowest link of a path: a rate, and a first-in first-out queue in front of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bottleneck {
    /// IP-layer bits per second over time.
    pub rate: RateSchedule,
    /// Bytes that may wait or be under way onto the line, up to [`Bottleneck::MAX_QUEUE`]. A packet
    /// that would make it more is dropped (drop-tail), but an idle link takes any packet.
    pub queue: Bytes,
    /// Marks instead of losses for senders that understand them.
    pub ecn: Option<EcnMarking>,
}

impl Bottleneck {
    /// The longest queue that can be modelled, 2 GiB.
    pub const MAX_QUEUE: Bytes = Bytes::from_mib(2_048);
}

/// When a queue sets Congestion Experienced on packets of ECN-capable senders (RFC 3168).
///
/// The instantaneous backlog that a packet finds counts. Packets that are not ECN-capable are
/// never marked, and are dropped only by a full queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EcnMarking {
    /// Up to this backlog nothing is marked.
    pub from: Bytes,
    /// Above this backlog everything is marked.
    pub to: Bytes,
    /// In between, the probability rises in proportion to the backlog, from none to this
    /// (the ramp of RED: Floyd and Jacobson, 1993).
    pub max_probability: Probability,
}

impl EcnMarking {
    /// Marks everything above `threshold` (as DCTCP asks of a switch, RFC 8257).
    pub const fn step(threshold: Bytes) -> Self {
        Self { from: threshold, to: threshold, max_probability: Probability::ONE }
    }

    /// Marks with a probability that rises up to `max_probability` between two backlogs.
    pub const fn ramp(from: Bytes, to: Bytes, max_probability: Probability) -> Self {
        Self { from, to, max_probability }
    }
}

/// A token bucket that drops what exceeds it and delays nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policer {
    /// IP-layer bits per second that pass in the long run.
    pub rate: Rate,
    /// Depth of the bucket, full at the start; a larger packet never passes. At most
    /// [`Bottleneck::MAX_QUEUE`].
    pub burst: Bytes,
}

/// Counts of the queue of a bottleneck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Packets taken.
    pub accepted: u64,
    /// Longest time from a packet's arrival to the end of its transmission.
    pub max_delay: Duration,
    /// Mean of that time.
    pub mean_delay: Duration,
    /// Most bytes ever in the queue.
    pub max_backlog: Bytes,
}

/// The queue as a virtual clock: the time at which a packet leaves is known when it comes.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    fluid: Fluid,
    limit: u64,
    marker: Option<Marker>,
    accepted: u64,
    max_delay: u64,
    total_delay: u128,
    max_level: u64,
}

/// Fate of a packet that the queue takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Departure {
    pub(crate) at: Instant,
    pub(crate) mark: bool,
}

impl Queue {
    pub(crate) fn new(config: &Bottleneck, seed: u64, start: Instant) -> Self {
        Self {
            fluid: Fluid::new(&config.rate, start),
            limit: Fluid::work(config.queue.get()),
            marker: config.ecn.map(|ecn| Marker::new(ecn, seed)),
            accepted: 0,
            max_delay: 0,
            total_delay: 0,
            max_level: 0,
        }
    }

    /// Takes a packet, or answers `None` when there is no room for it.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        bytes: u32,
        ecn_capable: bool,
    ) -> Option<Departure> {
        let found = self.fluid.drain(now);
        let work = Fluid::work(u64::from(bytes));
        if found > 0 && found.saturating_add(work) > self.limit {
            return None;
        }
        self.fluid.add(work);
        let at = self.fluid.empty_at();
        let delay = at.as_nanos().saturating_sub(now.as_nanos());
        self.accepted += 1;
        self.max_delay = self.max_delay.max(delay);
        self.total_delay += u128::from(delay);
        self.max_level = self.max_level.max(found.saturating_add(work));
        let mark = match &mut self.marker {
            Some(marker) if ecn_capable => marker.marks(found),
            _ => false,
        };
        Some(Departure { at, mark })
    }

    /// Bytes in the queue at `now`.
    pub(crate) fn backlog(&mut self, now: Instant) -> Bytes {
        Bytes::new(Fluid::bytes(self.fluid.drain(now)))
    }

    /// Time until all that is in the queue at `now` has left it.
    pub(crate) fn delay(&mut self, now: Instant) -> Duration {
        self.fluid.drain(now);
        self.fluid.empty_at() - now
    }

    pub(crate) fn stats(&self) -> QueueStats {
        let mean = self.total_delay.checked_div(u128::from(self.accepted)).unwrap_or(0);
        QueueStats {
            accepted: self.accepted,
            max_delay: Duration::from_nanos(self.max_delay),
            mean_delay: Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)),
            max_backlog: Bytes::new(Fluid::bytes(self.max_level)),
        }
    }
}

#[derive(Clone, Debug)]
struct Marker {
    from: u64,
    to: u64,
    /// Fraction of 2^64.
    max_probability: u64,
    stream: Stream,
}

impl Marker {
    fn new(config: EcnMarking, seed: u64) -> Self {
        Self {
            from: Fluid::work(config.from.get()),
            to: Fluid::work(config.to.get()),
            max_probability: config.max_probability.as_fixed(),
            stream: Stream::new(seed, Element::EcnRamp),
        }
    }

    #[inline]
    fn marks(&mut self, backlog: u64) -> bool {
        if backlog <= self.from {
            return false;
        }
        if backlog > self.to {
            return true;
        }
        // uniform < max_probability * (backlog - from) / (to - from), without a division.
        let uniform = u128::from(self.stream.next());
        let risen = u128::from(backlog - self.from) * u128::from(self.max_probability);
        uniform * u128::from(self.to - self.from) < risen
    }
}

/// The bucket of a policer, seen as a queue that nobody waits in (GCRA, ITU-T I.371).
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    fluid: Fluid,
    depth: u64,
}

impl Bucket {
    pub(crate) fn new(config: Policer, start: Instant) -> Self {
        let fluid = Fluid::new(&config.rate.into(), start);
        Self { fluid, depth: Fluid::work(config.burst.get()) }
    }

    #[inline]
    pub(crate) fn admits(&mut self, now: Instant, bytes: u32) -> bool {
        let work = Fluid::work(u64::from(bytes));
        let fits = self.fluid.drain(now).saturating_add(work) <= self.depth;
        if fits {
            self.fluid.add(work);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn us(count: u64) -> Instant {
        Instant::from_nanos(count * 1_000)
    }

    fn queue(limit: u64, ecn: Option<EcnMarking>) -> Queue {
        let rate = Rate::from_mbps(8).into();
        Queue::new(&Bottleneck { rate, queue: Bytes::new(limit), ecn }, 1, Instant::ZERO)
    }

    /// 1 byte a microsecond: packets of 1000 B offered every 500 us to a queue of 3000 B.
    #[test]
    fn drop_tail_by_hand() {
        let mut queue = queue(3_000, None);
        let mut leaves = |at| queue.offer(us(at), 1_000, false).map(|departure| departure.at);
        assert_eq!(leaves(0), Some(us(1_000)));
        assert_eq!(leaves(500), Some(us(2_000)));
        assert_eq!(leaves(1_000), Some(us(3_000)));
        assert_eq!(leaves(1_500), Some(us(4_000)));
        // Found 2000 B at 2000 us: exactly full afterwards. At 2500 us 2500 B wait.
        assert_eq!(leaves(2_000), Some(us(5_000)));
        assert_eq!(leaves(2_500), None);
        assert_eq!(leaves(3_000), Some(us(6_000)));
        assert_eq!(
            queue.stats(),
            QueueStats {
                accepted: 6,
                max_delay: Duration::from_micros(3_000),
                mean_delay: Duration::from_nanos(2_166_666),
                max_backlog: Bytes::new(3_000),
            }
        );
        assert_eq!(queue.backlog(us(4_000)), Bytes::new(2_000));
        assert_eq!(queue.delay(us(4_500)), Duration::from_micros(1_500));
        assert_eq!(queue.delay(us(9_000)), Duration::ZERO);
    }

    #[test]
    fn without_a_queue_only_an_idle_link_takes_packets() {
        let mut queue = queue(0, None);
        assert!(queue.offer(us(0), 1_000, false).is_some());
        assert!(queue.offer(us(999), 1_000, false).is_none());
        assert!(queue.offer(us(1_000), 1_000, false).is_some());
    }

    #[test]
    fn step_marks_what_finds_more_than_the_threshold() {
        let mut queue = queue(10_000, Some(EcnMarking::step(Bytes::new(1_500))));
        let marks: Vec<bool> =
            (0..4).map(|_| queue.offer(us(0), 1_000, true).unwrap().mark).collect();
        assert_eq!(marks, [false, false, true, true]);
        assert!(!queue.offer(us(0), 1_000, false).unwrap().mark);
    }

    #[test]
    fn ramp_marks_in_proportion() {
        let ramp =
            EcnMarking::ramp(Bytes::new(1_000), Bytes::new(2_000), Probability::from_percent(40));
        let mut marker = Marker::new(ramp, 7);
        let mut marked =
            |bytes| (0..10_000).filter(|_| marker.marks(Fluid::work(bytes))).count() as f64 / 1e4;
        assert_eq!(marked(1_000), 0.0);
        assert!((marked(1_250) - 0.10).abs() < 0.012);
        assert!((marked(1_500) - 0.20).abs() < 0.016);
        assert!((marked(2_000) - 0.40).abs() < 0.020);
        assert_eq!(marked(2_001), 1.0);
    }

    #[test]
    fn policer_by_hand() {
        let config = Policer { rate: Rate::from_mbps(8), burst: Bytes::new(2_500) };
        let mut bucket = Bucket::new(config, Instant::ZERO);
        assert!(!bucket.admits(us(0), 2_501));
        assert!(bucket.admits(us(0), 1_000));
        assert!(bucket.admits(us(0), 1_000));
        // 500 B of tokens are left; 499 us later one byte is missing.
        assert!(!bucket.admits(us(499), 1_000));
        assert!(bucket.admits(us(500), 1_000));
        assert!(!bucket.admits(us(500), 1));
    }
}
