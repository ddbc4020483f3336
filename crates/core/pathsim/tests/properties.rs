//! Properties of every path, for every seed and every order of offering packets.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use longhaul_pathsim::{
    DropReason, Ecn, EcnMarking, Fate, GilbertElliott, Jitter, Path, PathConfig, PeriodicOutage,
    Probability, RateSchedule, Train,
};
use longhaul_units::{Bytes, Duration, Instant, Rate};
use proptest::prelude::*;

const PPB: u128 = 1_000_000_000;

fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// Offers: microseconds since the one before, length, ECN bits.
fn offers() -> impl Strategy<Value = Vec<(u64, u32, u8)>> {
    prop::collection::vec((0u64..40, 40u32..9_100, 0u8..4), 0..150)
}

fn probability() -> impl Strategy<Value = Probability> {
    prop_oneof![
        3 => Just(Probability::ZERO),
        3 => (0u32..200_000_000).prop_map(Probability::from_ppb),
        1 => Just(Probability::ONE),
    ]
}

fn schedule() -> impl Strategy<Value = RateSchedule> {
    let rate = prop_oneof![1 => Just(0), 6 => 1_000u64..20_000_000_000];
    let steps = prop::collection::vec((1u64..400, rate), 0..4);
    (steps, 1_000_000u64..20_000_000_000).prop_map(|(steps, last)| {
        let mut rates: Vec<u64> = steps.iter().map(|&(_, bps)| bps).collect();
        rates.push(last);
        let mut schedule = RateSchedule::constant(Rate::from_bps(rates[0]));
        let mut at = Duration::ZERO;
        for (&(wait, _), &bps) in steps.iter().zip(&rates[1..]) {
            at += us(wait);
            schedule = schedule.then(at, Rate::from_bps(bps));
        }
        schedule
    })
}

fn rated() -> impl Strategy<Value = PathConfig> {
    (0u64..500, schedule(), 0u64..60_000).prop_map(|(delay, schedule, queue)| {
        PathConfig::default().delay(us(delay)).rate(schedule, Bytes::new(queue))
    })
}

fn any_config() -> impl Strategy<Value = PathConfig> {
    let line = (probability(), [probability(), probability(), probability(), probability()]);
    let spread = ([probability(), probability(), probability()], 0u64..200, 0u64..100);
    let jitter = prop::option::of((0u64..100, 0u64..50, any::<bool>(), any::<bool>()));
    let gates = (
        prop::option::of((1_000_000u64..10_000_000_000, 0u64..40_000)),
        prop::option::of(500u32..9_500),
        prop::option::of((0u64..20_000, 0u64..20_000, probability())),
        prop::collection::vec((0u64..2_000, 0u64..300), 0..3),
        prop::option::of((0u64..500, 1u64..100, 1u64..300)),
        prop::collection::vec(0u64..200, 0..10),
    );
    (prop_oneof![Just(PathConfig::default()), rated()], line, spread, jitter, gates).prop_map(
        |(base, (loss, chain), (rare, late, lag), jitter, gates)| {
            let (policer, mtu, ecn, outages, periodic, scripted) = gates;
            let [enter_bad, leave_bad, loss_good, loss_bad] = chain;
            let mut config = base
                .loss(loss)
                .burst_loss(GilbertElliott { enter_bad, leave_bad, loss_good, loss_bad })
                .reordering(rare[0], us(late))
                .duplication(rare[1], us(lag))
                .corruption(rare[2])
                .scripted_loss(scripted);
            config.mtu = mtu;
            if let Some((spread, hold, bell, keep_order)) = jitter {
                let shape = if bell { Jitter::bell } else { Jitter::uniform };
                let jitter = shape(us(spread)).hold(us(hold));
                config = config.jitter(Jitter { keep_order, ..jitter });
            }
            if let Some((bps, burst)) = policer {
                config = config.policer(Rate::from_bps(bps), Bytes::new(burst));
            }
            for (at, length) in outages {
                config = config.outage(us(at), us(length));
            }
            if let Some((first, length, rest)) = periodic {
                let every = us(length + rest);
                let outage = PeriodicOutage { first: us(first), every, length: us(length) };
                config = config.periodic_outage(outage);
            }
            match (ecn, config.bottleneck.is_some()) {
                (Some((from, width, probability)), true) => {
                    let to = Bytes::new(from + width);
                    config.ecn(EcnMarking::ramp(Bytes::new(from), to, probability)).unwrap()
                }
                _ => config,
            }
        },
    )
}

fn fates(config: &PathConfig, seed: u64, offers: &[(u64, u32, u8)]) -> (Path, Vec<Fate>) {
    let mut path = Path::new(config, seed, Instant::ZERO).unwrap();
    let mut now = Instant::ZERO;
    let mut fates = Vec::new();
    for &(gap, len, ecn) in offers {
        now += us(gap);
        fates.push(path.offer(now, len, Ecn::from_bits(ecn)));
    }
    (path, fates)
}

/// Billionths of a bit that the schedule lets through from the start until `until`.
fn capacity(schedule: &RateSchedule, until: Duration) -> u128 {
    let mut sum = 0;
    let mut from = Duration::ZERO;
    let mut rate = schedule.initial;
    for &(at, next) in schedule.changes.iter().filter(|change| change.0 <= until) {
        sum += (at - from).as_nanos() * u128::from(rate.as_bps());
        (from, rate) = (at, next);
    }
    sum + (until - from).as_nanos() * u128::from(rate.as_bps())
}

proptest! {
    #[test]
    fn every_packet_is_accounted(config in any_config(), seed: u64, offers in offers()) {
        let (path, fates) = fates(&config, seed, &offers);
        let stats = path.stats();
        prop_assert_eq!(stats.offered, offers.len() as u64);
        prop_assert_eq!(stats.offered, stats.delivered + stats.total_dropped());
        for reason in DropReason::ALL {
            let seen = fates.iter().filter(|fate| fate.drop_reason() == Some(reason)).count();
            prop_assert_eq!(stats.dropped(reason), seen as u64);
        }
        let arrivals: Vec<_> = fates.iter().filter_map(|fate| fate.arrival()).collect();
        let bytes = |kept: bool| -> u64 {
            let all = offers.iter().zip(&fates);
            let chosen = all.filter(|(_, fate)| !kept || fate.arrival().is_some());
            chosen.map(|(offer, _)| u64::from(offer.1)).sum()
        };
        prop_assert_eq!(stats.offered_bytes, bytes(false));
        prop_assert_eq!(stats.delivered_bytes, bytes(true));
        let count = |test: fn(&longhaul_pathsim::Arrival) -> bool| {
            arrivals.iter().filter(|arrival| test(arrival)).count() as u64
        };
        prop_assert_eq!(stats.delivered, count(|_| true));
        prop_assert_eq!(stats.marked, count(|arrival| arrival.marked));
        prop_assert_eq!(stats.reordered, count(|arrival| arrival.reordered));
        prop_assert_eq!(stats.corrupted, count(|arrival| arrival.corrupted.is_some()));
        prop_assert_eq!(stats.duplicated, count(|arrival| arrival.duplicate.is_some()));
        prop_assert_eq!(path.next_number(), stats.offered);
    }

    #[test]
    fn equal_seeds_give_equal_fates(config in any_config(), seed: u64, offers in offers()) {
        prop_assert_eq!(fates(&config, seed, &offers).1, fates(&config, seed, &offers).1);
    }

    #[test]
    fn fates_do_not_depend_on_where_the_clock_starts(
        config in any_config(), seed: u64, offers in offers(), origin in 0u64..1 << 60,
    ) {
        let start = Instant::from_nanos(origin);
        let shift = start - Instant::ZERO;
        let mut later = Path::new(&config, seed, start).unwrap();
        let mut now = start;
        for (&(gap, len, ecn), fate) in offers.iter().zip(fates(&config, seed, &offers).1) {
            now += us(gap);
            let shifted = match fate {
                Fate::Deliver(mut arrival) => {
                    arrival.at += shift;
                    arrival.duplicate = arrival.duplicate.map(|at| at + shift);
                    Fate::Deliver(arrival)
                }
                Fate::Drop(reason) => Fate::Drop(reason),
            };
            prop_assert_eq!(later.offer(now, len, Ecn::from_bits(ecn)), shifted);
        }
    }

    #[test]
    fn a_train_is_that_many_packets(
        config in any_config(),
        seed: u64,
        trains in prop::collection::vec((0u64..400, 0u32..70, 40u32..9_100, 40u32..9_100), 0..8),
    ) {
        let mut whole = Path::new(&config, seed, Instant::ZERO).unwrap();
        let mut single = whole.clone();
        let mut now = Instant::ZERO;
        for (gap, count, segment_len, last_len) in trains {
            now += us(gap);
            let train = Train { count, segment_len, last_len, ecn: Ecn::Ect0, udp: true };
            let mut seen = Vec::new();
            whole.offer_train(now, train, |index, fate| seen.push((index, fate)));
            let expected: Vec<_> = (0..count)
                .map(|index| {
                    let len = if index + 1 == count { last_len } else { segment_len };
                    (index, single.offer(now, len, Ecn::Ect0))
                })
                .collect();
            prop_assert_eq!(seen, expected);
        }
        prop_assert_eq!(whole.stats(), single.stats());
        prop_assert_eq!(whole.queue_stats(), single.queue_stats());
    }

    #[test]
    fn nothing_is_early_and_order_is_kept(
        config in any_config(), seed: u64, offers in offers(),
    ) {
        let keeps_order = config.jitter.is_none_or(|jitter| jitter.keep_order);
        let mut now = Instant::ZERO;
        let mut latest = Instant::ZERO;
        for (offer, fate) in offers.iter().zip(fates(&config, seed, &offers).1) {
            now += us(offer.0);
            let Some(arrival) = fate.arrival() else { continue };
            prop_assert!(arrival.at >= now + config.delay);
            prop_assert!(arrival.duplicate.is_none_or(|copy| copy >= arrival.at));
            if keeps_order && !arrival.reordered {
                prop_assert!(arrival.at >= latest);
                latest = arrival.at;
            }
            prop_assert!(!arrival.marked || Ecn::from_bits(offer.2).is_markable());
        }
    }

    #[test]
    fn no_interval_carries_more_than_the_rate(config in rated(), offers in offers()) {
        let schedule = &config.bottleneck.as_ref().unwrap().rate;
        let departures: Vec<(Duration, u128)> = offers
            .iter()
            .zip(fates(&config, 0, &offers).1)
            .filter_map(|(offer, fate)| {
                let at = fate.arrival()?.at - (Instant::ZERO + config.delay);
                Some((at, u128::from(offer.1) * 8 * PPB))
            })
            .collect();
        for (first, &(from, _)) in departures.iter().enumerate() {
            let mut work = 0;
            for &(until, packet) in &departures[first + 1..] {
                work += packet;
                // Departures are rounded up to a nanosecond, so the interval may be one shorter.
                let from = from.saturating_sub(Duration::from_nanos(1));
                let room = capacity(schedule, until) - capacity(schedule, from);
                prop_assert!(work <= room, "{work} in room for {room}");
            }
        }
    }

    /// A packet is dropped exactly when it does not fit, and one that is taken leaves when the
    /// bytes before it and its own have passed at the rate.
    #[test]
    fn the_queue_is_a_bounded_fifo(config in rated(), offers in offers()) {
        let bottleneck = config.bottleneck.as_ref().unwrap();
        let limit = bottleneck.queue.get();
        let mut path = Path::new(&config, 0, Instant::ZERO).unwrap();
        let mut now = Instant::ZERO;
        let mut most = 0;
        for (gap, len, _) in offers {
            now += us(gap);
            let found = path.queue_backlog(now).get();
            let fits = found == 0 || found + u64::from(len) <= limit;
            let fate = path.offer(now, len, Ecn::NotEct);
            prop_assert_eq!(fate.drop_reason(), (!fits).then_some(DropReason::Queue));
            let backlog = path.queue_backlog(now).get();
            prop_assert!(backlog <= limit.max(found).max(u64::from(len)));
            most = most.max(backlog);
            if let Some(arrival) = fate.arrival() {
                prop_assert_eq!(arrival.at, now + path.queue_delay(now) + config.delay);
                let wait = path.queue_delay(now);
                let since_start = now - Instant::ZERO;
                let passed = capacity(&bottleneck.rate, since_start + wait)
                    - capacity(&bottleneck.rate, since_start);
                prop_assert!(passed.div_ceil(8 * PPB) >= u128::from(backlog));
            }
        }
        prop_assert_eq!(path.queue_stats().max_backlog, Bytes::new(most));
    }

    #[test]
    fn a_policer_never_passes_more_than_its_bucket(
        bps in 1_000u64..10_000_000_000, burst in 0u64..40_000, offers in offers(),
    ) {
        let config = PathConfig::default().policer(Rate::from_bps(bps), Bytes::new(burst));
        let passed: Vec<(u128, u128)> = offers
            .iter()
            .zip(fates(&config, 0, &offers).1)
            .filter_map(|(offer, fate)| {
                let at = fate.arrival()?.at.as_nanos();
                Some((u128::from(at), u128::from(offer.1) * 8 * PPB))
            })
            .collect();
        for (first, &(from, _)) in passed.iter().enumerate() {
            let mut work = 0;
            for &(until, packet) in &passed[first..] {
                work += packet;
                let room = u128::from(burst) * 8 * PPB + u128::from(bps) * (until - from);
                prop_assert!(work <= room);
            }
        }
    }

    /// Switching other elements on does not change which packets one element hits.
    #[test]
    fn elements_do_not_disturb_each_other(config in any_config(), seed: u64, offers in offers()) {
        let alone = PathConfig::default().loss(config.loss);
        let lost: Vec<bool> = fates(&alone, seed, &offers)
            .1
            .iter()
            .map(|fate| fate.drop_reason().is_some())
            .collect();
        let alone = PathConfig::default().corruption(config.corruption);
        let corrupted: Vec<_> = fates(&alone, seed, &offers)
            .1
            .iter()
            .map(|fate| fate.arrival().and_then(|arrival| arrival.corrupted))
            .collect();
        let together = fates(&config, seed, &offers).1;
        for ((fate, lost), corrupted) in together.iter().zip(lost).zip(corrupted) {
            match fate {
                Fate::Deliver(arrival) => {
                    prop_assert!(!lost);
                    prop_assert_eq!(arrival.corrupted, corrupted);
                }
                Fate::Drop(DropReason::Random) => prop_assert!(lost),
                Fate::Drop(_) => {}
            }
        }
    }

    #[test]
    fn extreme_arguments_do_not_panic(
        config in any_config(),
        offers in prop::collection::vec((any::<u64>(), any::<u32>()), 0..40),
        start: u64,
        late: u64,
    ) {
        let config = PathConfig { delay: Duration::from_nanos(late), ..config };
        let mut path = Path::new(&config, 1, Instant::from_nanos(start)).unwrap();
        for (now, len) in offers {
            let now = Instant::from_nanos(now);
            let _ = path.offer(now, len, Ecn::Ect1);
            path.queue_delay(now);
        }
        let stats = path.stats();
        prop_assert_eq!(stats.offered, stats.delivered + stats.total_dropped());
    }
}
