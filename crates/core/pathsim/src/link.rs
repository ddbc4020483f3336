use longhaul_units::Instant;

use crate::config::{ConfigError, PathConfig};
use crate::flights::Flights;
use crate::hazards::Flip;
use crate::path::{Arrival, Fate, Path};
use longhaul_units::Ecn;

/// A [`Path`] that also keeps the packets under way, as values of the caller's type: tokens in a
/// simulation, datagrams in a relay.
///
/// # Contract
/// - [`Link::push`] when a packet is sent; then [`Link::poll`] until `None`, and again when
///   [`Link::next_timeout`] has come. A push may make the timeout earlier.
/// - Deliveries come in order of their time, those of equal time in the order pushed.
/// - What is under way is bounded by what the caller pushes within one delay and by the queue of
///   the bottleneck, not by the link.
#[derive(Clone, Debug)]
pub struct Link<T> {
    path: Path,
    flights: Flights<Delivery<T>>,
}

/// A packet that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery<T> {
    /// The packet.
    pub item: T,
    /// When it arrives; not later than the time of the poll.
    pub at: Instant,
    /// ECN field on arrival.
    pub ecn: Ecn,
    /// A bit to flip.
    pub corrupted: Option<Flip>,
    /// True if this is the second copy.
    pub is_copy: bool,
}

impl<T> Link<T> {
    /// A link as `config` describes it. Its schedules begin at `start`.
    ///
    /// # Errors
    /// As [`PathConfig::validate`].
    pub fn new(config: &PathConfig, seed: u64, start: Instant) -> Result<Self, ConfigError> {
        Ok(Self { path: Path::new(config, seed, start)?, flights: Flights::default() })
    }

    /// Sends `item`, which has `wire_len` IP-layer bytes. The link has acted on the fate that it
    /// returns, which is for the caller's log.
    pub fn push(&mut self, now: Instant, wire_len: u32, ecn: Ecn, item: T) -> Fate
    where
        T: Clone,
    {
        let fate = self.path.offer(now, wire_len, ecn);
        let Fate::Deliver(arrival) = fate else { return fate };
        let Arrival { at, marked, reordered, corrupted, duplicate } = arrival;
        let ecn = if marked { Ecn::Ce } else { ecn };
        let first = Delivery { item, at, ecn, corrupted, is_copy: false };
        let copy = duplicate.map(|at| Delivery { at, is_copy: true, ..first.clone() });
        self.flights.push(at, first, reordered);
        if let Some(copy) = copy {
            self.flights.push(copy.at, copy, true);
        }
        fate
    }

    /// Takes the next packet that has arrived by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Delivery<T>> {
        self.flights.pop(now).map(|(_, delivery)| delivery)
    }

    /// When to poll next: the next arrival or rebinding.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.next_arrival().into_iter().chain(self.path.next_rebinding()).min()
    }

    /// True if a rebinding is due at `now`; true once for each.
    #[must_use]
    pub fn poll_rebinding(&mut self, now: Instant) -> bool {
        self.path.poll_rebinding(now)
    }

    /// Packets under way, copies included.
    pub fn in_flight(&self) -> usize {
        self.flights.count()
    }

    /// The path, for its counters.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path, for the present state of its queue.
    pub fn path_mut(&mut self) -> &mut Path {
        &mut self.path
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.flights.next_arrival()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EcnMarking, Jitter, Probability};
    use alloc::vec::Vec;
    use longhaul_units::{Bytes, Duration, Rate};
    use proptest::prelude::*;

    fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    fn drain(link: &mut Link<u64>) -> Vec<Delivery<u64>> {
        let mut out = Vec::new();
        while let Some(at) = link.next_timeout() {
            assert!(link.poll(at.before(Duration::from_nanos(1))).is_none());
            while let Some(delivery) = link.poll(at) {
                assert_eq!(delivery.at, at);
                out.push(delivery);
            }
        }
        out
    }

    #[test]
    fn a_packet_held_back_comes_after_later_ones() {
        let mut config = PathConfig::default().delay(us(100));
        config = config.reordering(Probability::from_percent(10), us(25));
        let mut link = Link::new(&config, 2, Instant::ZERO).unwrap();
        let held: Vec<u64> = (0..100)
            .filter(|&number| {
                let now = Instant::ZERO + us(10 * number);
                let fate = link.push(now, 1_000, Ecn::NotEct, number);
                fate.arrival().unwrap().reordered
            })
            .collect();
        assert!(!held.is_empty());
        let order: Vec<u64> = drain(&mut link).iter().map(|delivery| delivery.item).collect();
        let mut expected: Vec<u64> = (0..100).collect();
        // 25 us late at one packet in 10 us: two or three later ones go first.
        expected.sort_by_key(|&number| 10 * number + if held.contains(&number) { 25 } else { 0 });
        assert_eq!(order, expected);
    }

    #[test]
    fn copies_follow_their_original() {
        let config = PathConfig::default().delay(us(9)).duplication(Probability::ONE, us(5));
        let mut link = Link::new(&config, 1, Instant::ZERO).unwrap();
        let fate = link.push(Instant::ZERO, 100, Ecn::Ect0, 7);
        assert_eq!(fate.arrival().unwrap().duplicate, Some(Instant::ZERO + us(14)));
        let deliveries = drain(&mut link);
        assert_eq!(deliveries.iter().map(|d| d.is_copy).collect::<Vec<_>>(), [false, true]);
        assert!(deliveries.iter().all(|d| d.item == 7 && d.ecn == Ecn::Ect0));
    }

    #[test]
    fn marks_show_on_arrival() {
        let config = PathConfig::default()
            .rate(Rate::from_mbps(8), Bytes::new(10_000))
            .ecn(EcnMarking::step(Bytes::ZERO))
            .unwrap();
        let mut link = Link::new(&config, 1, Instant::ZERO).unwrap();
        for (item, ecn) in [Ecn::Ect1, Ecn::Ect1, Ecn::NotEct, Ecn::Ce].into_iter().enumerate() {
            assert!(link.push(Instant::ZERO, 1_000, ecn, item as u64).arrival().is_some());
        }
        let ecn: Vec<Ecn> = drain(&mut link).iter().map(|delivery| delivery.ecn).collect();
        assert_eq!(ecn, [Ecn::Ect1, Ecn::Ce, Ecn::NotEct, Ecn::Ce]);
        assert_eq!(link.path().stats().marked, 1);
    }

    #[test]
    fn rebindings_wake_the_caller() {
        let config = PathConfig::default().delay(us(50)).rebinding(us(20));
        let mut link = Link::new(&config, 1, Instant::ZERO).unwrap();
        link.push(Instant::ZERO, 100, Ecn::NotEct, 0);
        assert_eq!(link.next_timeout(), Some(Instant::ZERO + us(20)));
        assert!(!link.poll_rebinding(Instant::ZERO + us(19)));
        assert!(link.poll_rebinding(Instant::ZERO + us(20)));
        assert!(!link.poll_rebinding(Instant::ZERO + us(20)));
        assert_eq!(link.next_timeout(), Some(Instant::ZERO + us(50)));
    }

    proptest! {
        #[test]
        fn deliveries_are_in_order_of_time_and_complete(
            seed: u64,
            loss in 0u32..300_000_000,
            late in 0u32..300_000_000,
            twice in 0u32..300_000_000,
            lag in 0u64..40,
            keep_order: bool,
            gaps in prop::collection::vec(0u64..30, 0..200),
        ) {
            let jitter = Jitter { keep_order, ..Jitter::uniform(us(30)).hold(us(7)) };
            let config = PathConfig::default()
                .delay(us(10))
                .jitter(jitter)
                .loss(Probability::from_ppb(loss))
                .reordering(Probability::from_ppb(late), us(lag))
                .duplication(Probability::from_ppb(twice), us(lag));
            let mut link = Link::new(&config, seed, Instant::ZERO).unwrap();
            let mut expected = Vec::new();
            let mut now = Instant::ZERO;
            for (number, gap) in gaps.into_iter().enumerate() {
                now += us(gap);
                if let Some(arrival) = link.push(now, 1_500, Ecn::NotEct, number as u64).arrival() {
                    expected.push((arrival.at, number as u64, false));
                    expected.extend(arrival.duplicate.map(|at| (at, number as u64, true)));
                }
            }
            prop_assert_eq!(link.in_flight(), expected.len());
            expected.sort();
            let out: Vec<_> =
                drain(&mut link).iter().map(|d| (d.at, d.item, d.is_copy)).collect();
            prop_assert_eq!(out, expected);
            prop_assert_eq!(link.in_flight(), 0);
        }
    }
}
