use longhaul_units::{Bytes, Duration, Instant};

use crate::config::{ConfigError, PathConfig};
use crate::hazards::{Flip, Hazards};
use crate::jitter::JitterClock;
use crate::queue::{Bucket, Departure, Queue, QueueStats};
use crate::schedule::{OutageClock, RebindingClock};
use crate::stats::{DropReason, PathStats};
use longhaul_units::Ecn;

/// One direction of an emulated path: decides what becomes of each packet, and moves none.
///
/// Everything is known when a packet is offered, so a path keeps no packets. The caller acts on
/// each [`Fate`]; that is also the complete log of losses, as nothing is ever lost elsewhere.
///
/// # Contract
/// - `now` does not decrease from call to call. An earlier `now` is treated like the latest one as
///   far as queue, policer and outages go.
/// - Lengths are IP-layer bytes, IP and UDP headers included.
/// - Equal configuration, seed, start and offers give equal fates on every machine. Each random
///   element has its own stream and looks at every packet offered, so switching one element on
///   does not change which packets another one hits.
#[derive(Clone, Debug)]
pub struct Path {
    hazards: Hazards,
    firewall: OutageClock,
    mtu: u32,
    policer: Option<Bucket>,
    queue: Option<Queue>,
    outages: OutageClock,
    delay: Duration,
    jitter: Option<JitterClock>,
    keep_order: bool,
    /// Arrival of the latest packet that was not held back, when order is kept.
    last_arrival: Instant,
    late_by: Duration,
    copy_lag: Duration,
    rebindings: RebindingClock,
    stats: PathStats,
}

/// Fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives.
    Deliver(Arrival),
    /// It does not.
    Drop(DropReason),
}

impl Fate {
    /// The arrival, if there is one.
    pub fn arrival(self) -> Option<Arrival> {
        match self {
            Self::Deliver(arrival) => Some(arrival),
            Self::Drop(_) => None,
        }
    }

    /// Why it does not arrive, if so.
    pub fn drop_reason(self) -> Option<DropReason> {
        match self {
            Self::Deliver(_) => None,
            Self::Drop(reason) => Some(reason),
        }
    }
}

/// When and how a packet arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// The path set Congestion Experienced.
    pub marked: bool,
    /// It was held back and may come after later packets.
    pub reordered: bool,
    /// A bit to flip.
    pub corrupted: Option<Flip>,
    /// When it arrives again, not before [`Arrival::at`].
    pub duplicate: Option<Instant>,
}

impl Path {
    /// A path as `config` describes it. Its schedules begin at `start`.
    ///
    /// # Errors
    /// As [`PathConfig::validate`].
    pub fn new(config: &PathConfig, seed: u64, start: Instant) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            hazards: Hazards::new(config, seed),
            firewall: OutageClock::new(&config.firewall, start),
            mtu: config.mtu.unwrap_or(u32::MAX),
            policer: config.policer.map(|policer| Bucket::new(policer, start)),
            queue: config.bottleneck.as_ref().map(|config| Queue::new(config, seed, start)),
            outages: OutageClock::new(&config.outages, start),
            delay: config.delay,
            jitter: config.jitter.as_ref().map(|jitter| JitterClock::new(jitter, seed)),
            keep_order: config.jitter.is_none_or(|jitter| jitter.keep_order),
            last_arrival: Instant::ZERO,
            late_by: config.reordering.map_or(Duration::ZERO, |late| late.extra),
            copy_lag: config.duplication.map_or(Duration::ZERO, |twice| twice.lag),
            rebindings: RebindingClock::new(&config.rebindings, start),
            stats: PathStats::default(),
        })
    }

    /// Decides about one packet of `wire_len` bytes, a datagram of UDP.
    #[inline]
    #[must_use]
    pub fn offer(&mut self, now: Instant, wire_len: u32, ecn: Ecn) -> Fate {
        self.decide(now, wire_len, ecn, true)
    }

    /// Decides about the packets of a train that were all offered at `now`: a super-packet of
    /// `count` segments, each of `segment_len` bytes on the wire but the last of `last_len`.
    ///
    /// Calls `act` with the index and fate of each segment, in order. For UDP exactly like as many calls
    /// of [`Path::offer`].
    #[inline]
    pub fn offer_train(&mut self, now: Instant, train: Train, mut act: impl FnMut(u32, Fate)) {
        let Some(last) = train.count.checked_sub(1) else { return };
        for index in 0..last {
            act(index, self.decide(now, train.segment_len, train.ecn, train.udp));
        }
        act(last, self.decide(now, train.last_len, train.ecn, train.udp));
    }

    /// The number that the next packet offered will have; the first has 0.
    pub fn next_number(&self) -> u64 {
        self.stats.offered
    }

    /// When the address translation forgets next.
    pub fn next_rebinding(&self) -> Option<Instant> {
        self.rebindings.next()
    }

    /// True if a rebinding is due at `now`; true once for each.
    #[must_use]
    pub fn poll_rebinding(&mut self, now: Instant) -> bool {
        self.rebindings.take(now)
    }

    /// Counters since the start.
    pub fn stats(&self) -> &PathStats {
        &self.stats
    }

    /// Queue figures since the start; all zero without a bottleneck.
    pub fn queue_stats(&self) -> QueueStats {
        self.queue.as_ref().map(Queue::stats).unwrap_or_default()
    }

    /// Bytes in the queue at `now`.
    pub fn queue_backlog(&mut self, now: Instant) -> Bytes {
        self.queue.as_mut().map_or(Bytes::ZERO, |queue| queue.backlog(now))
    }

    /// Time until what is in the queue at `now` has left it.
    pub fn queue_delay(&mut self, now: Instant) -> Duration {
        self.queue.as_mut().map_or(Duration::ZERO, |queue| queue.delay(now))
    }

    #[inline]
    fn decide(&mut self, now: Instant, wire_len: u32, ecn: Ecn, udp: bool) -> Fate {
        let meeting = self.hazards.meet(self.stats.offered);
        self.stats.offered += 1;
        self.stats.offered_bytes += u64::from(wire_len);
        if udp && self.firewall.is_out(now) {
            return self.dropped(DropReason::Firewall);
        }
        let departure = match self.depart(now, wire_len, ecn) {
            Ok(departure) => departure,
            Err(reason) => return self.dropped(reason),
        };
        if let Some(reason) = meeting.lost {
            return self.dropped(reason);
        }

        let mut at = departure.at + self.delay;
        if let Some(jitter) = &mut self.jitter {
            at += jitter.extra(departure.at);
        }
        if self.keep_order {
            at = at.max(self.last_arrival);
            self.last_arrival = at;
        }
        if meeting.late {
            at += self.late_by;
        }
        let duplicate = meeting.twice.then(|| at + self.copy_lag);

        self.stats.delivered += 1;
        self.stats.delivered_bytes += u64::from(wire_len);
        self.stats.marked += u64::from(departure.mark);
        self.stats.reordered += u64::from(meeting.late);
        self.stats.duplicated += u64::from(meeting.twice);
        self.stats.corrupted += u64::from(meeting.flip.is_some());
        Fate::Deliver(Arrival {
            at,
            marked: departure.mark,
            reordered: meeting.late,
            corrupted: meeting.flip,
            duplicate,
        })
    }

    /// Takes a packet to the end of its transmission, as far as it gets.
    #[inline]
    fn depart(&mut self, now: Instant, wire_len: u32, ecn: Ecn) -> Result<Departure, DropReason> {
        if wire_len > self.mtu {
            return Err(DropReason::Mtu);
        }
        if self.policer.as_mut().is_some_and(|policer| !policer.admits(now, wire_len)) {
            return Err(DropReason::Policer);
        }
        let departure = match &mut self.queue {
            None => Departure { at: now, mark: false },
            Some(queue) => {
                queue.offer(now, wire_len, ecn.is_markable()).ok_or(DropReason::Queue)?
            }
        };
        if self.outages.is_out(departure.at) {
            return Err(DropReason::Outage);
        }
        Ok(departure)
    }

    #[cold]
    fn dropped(&mut self, reason: DropReason) -> Fate {
        self.stats.count_drop(reason);
        Fate::Drop(reason)
    }
}

/// Packets that are offered at one instant, as GSO and GRO carry them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Train {
    /// Number of packets.
    pub count: u32,
    /// Wire length of each but the last.
    pub segment_len: u32,
    /// Wire length of the last.
    pub last_len: u32,
    /// ECN field of all.
    pub ecn: Ecn,
    /// They are datagrams of UDP.
    pub udp: bool,
}
