//! Paths whose answers can be computed by hand, and frequencies within binomial bounds.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use longhaul_pathsim::{
    DropReason, Ecn, Fate, GilbertElliott, Jitter, Path, PathConfig, Preset, Probability,
    RateSchedule, Train,
};
use longhaul_units::{Bytes, Duration, Instant, Rate};

const PACKETS: u64 = 1_000_000;

fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

fn at(count: u64) -> Instant {
    Instant::ZERO + us(count)
}

fn path(config: PathConfig) -> Path {
    Path::new(&config, 20, Instant::ZERO).unwrap()
}

fn arrival(fate: Fate) -> Option<Instant> {
    fate.arrival().map(|arrival| arrival.at)
}

/// Within four standard deviations of a binomial distribution.
fn assert_share(hits: u64, trials: u64, probability: f64) {
    let trials = trials as f64;
    let expected = trials * probability;
    let bound = 4.0 * (trials * probability * (1.0 - probability)).sqrt();
    assert!((hits as f64 - expected).abs() <= bound, "{hits} of {trials}, expected {expected}");
}

#[test]
fn an_ideal_path_delivers_at_once() {
    let mut path = path(PathConfig::default());
    assert_eq!(arrival(path.offer(at(5), 1_500, Ecn::NotEct)), Some(at(5)));
    assert_eq!(path.queue_delay(at(5)), Duration::ZERO);
    assert_eq!(path.queue_stats().accepted, 0);
}

#[test]
fn delay_is_queue_plus_transmission_plus_line() {
    // 1500 bytes take 12 us at 1 Gb/s.
    let config = PathConfig::default().delay(us(100)).rate(Rate::from_gbps(1), Bytes::new(4_500));
    let mut path = path(config);
    let mut offer = |now| arrival(path.offer(at(now), 1_500, Ecn::NotEct));
    assert_eq!(offer(0), Some(at(112)));
    assert_eq!(offer(0), Some(at(124)));
    assert_eq!(offer(0), Some(at(136)));
    assert_eq!(offer(0), None);
    assert_eq!(offer(12), Some(at(148)));
    assert_eq!(offer(1_000), Some(at(1_112)));
}

#[test]
fn a_full_link_delivers_its_rate_to_the_byte() {
    let config = PathConfig::default().rate(Rate::from_mbps(800), Bytes::new(100_000));
    let mut path = path(config);
    let second = at(1_000_000);
    let mut bytes = 0;
    for number in 0..150_000u64 {
        let fate = path.offer(Instant::from_nanos(number * 10_000), 1_400, Ecn::NotEct);
        bytes += fate.arrival().filter(|arrival| arrival.at <= second).map_or(0, |_| 1_400);
    }
    // 100 MB in the second, less the packet that is under way at its end.
    assert!((100_000_000 - 1_400..=100_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_circuit_changes_its_rate_on_time() {
    let schedule = RateSchedule::constant(Rate::from_mbps(100))
        .then(us(1_000), Rate::ZERO)
        .then(us(3_000), Rate::from_gbps(1));
    let mut path = path(PathConfig::default().rate(schedule, Bytes::new(50_000)));
    let mut offer = |now, len| arrival(path.offer(at(now), len, Ecn::NotEct));
    // 80 ns a byte, then nothing, then 8 ns a byte.
    assert_eq!(offer(0, 1_250), Some(at(100)));
    assert_eq!(offer(900, 1_250), Some(at(1_000)));
    assert_eq!(offer(950, 1_250), Some(at(3_010)));
    assert_eq!(offer(2_000, 1_250), Some(at(3_020)));
    assert_eq!(offer(3_100, 1_250), Some(at(3_110)));
}

#[test]
fn random_loss_uses_the_bottleneck() {
    let config =
        PathConfig::default().rate(Rate::from_gbps(1), Bytes::new(15_000)).loss(Probability::ONE);
    let mut path = path(config);
    for _ in 0..10 {
        assert_eq!(path.offer(at(0), 1_500, Ecn::NotEct), Fate::Drop(DropReason::Random));
    }
    assert_eq!(path.offer(at(0), 1_500, Ecn::NotEct), Fate::Drop(DropReason::Queue));
}

#[test]
fn each_reason_in_the_order_of_the_path() {
    let all = PathConfig::default()
        .swallowing_udp(us(2_000), Duration::MAX)
        .mtu(1_500)
        .policer(Rate::from_mbps(8), Bytes::new(4_000))
        .rate(Rate::from_mbps(8), Bytes::new(2_000))
        .outage(us(0), us(1_500))
        .scripted_loss([4])
        .loss(Probability::ONE);
    let mut path = path(all);
    let mut offer = |now, len| path.offer(at(now), len, Ecn::NotEct).drop_reason();
    assert_eq!(offer(0, 1_501), Some(DropReason::Mtu));
    assert_eq!(offer(0, 1_000), Some(DropReason::Outage));
    // The second leaves at 2000 us, when the outage is over.
    assert_eq!(offer(0, 1_000), Some(DropReason::Random));
    assert_eq!(offer(0, 1_000), Some(DropReason::Queue));
    assert_eq!(offer(1_000, 1_000), Some(DropReason::Scripted));
    assert_eq!(offer(1_000, 1_000), Some(DropReason::Queue));
    assert_eq!(offer(1_000, 1_000), Some(DropReason::Policer));
    assert_eq!(offer(2_000, 1_501), Some(DropReason::Firewall));
    for (reason, count) in DropReason::ALL.into_iter().zip([1, 1, 1, 2, 1, 1, 0, 1]) {
        assert_eq!(path.stats().dropped(reason), count, "{reason}");
    }
}

#[test]
fn scripted_loss_hits_exactly_its_numbers() {
    let mut path = path(PathConfig::default().scripted_loss([7, 0, 3, 3, 1_000]));
    let lost: Vec<u64> =
        (0..20).filter(|_| path.offer(at(0), 100, Ecn::NotEct).drop_reason().is_some()).collect();
    assert_eq!(lost, [0, 3, 7]);
    assert_eq!(path.stats().dropped(DropReason::Scripted), 3);
}

#[test]
fn a_black_hole_swallows_only_what_is_too_large() {
    let mut path = path(PathConfig::default().mtu(1_400));
    assert_eq!(arrival(path.offer(at(0), 1_400, Ecn::NotEct)), Some(at(0)));
    assert_eq!(path.offer(at(0), 1_401, Ecn::NotEct), Fate::Drop(DropReason::Mtu));
}

#[test]
fn a_firewall_swallows_udp_from_a_time_on_and_nothing_else() {
    let mut path = path(PathConfig::default().swallowing_udp(us(5), Duration::MAX));
    let mut fate = |at, udp| {
        let train = Train { count: 1, segment_len: 100, last_len: 100, ecn: Ecn::NotEct, udp };
        let mut found = None;
        path.offer_train(at, train, |_, fate| found = fate.drop_reason());
        found
    };
    assert_eq!(fate(at(4), true), None);
    for at in [at(5), at(5_000_000)] {
        assert_eq!(fate(at, true), Some(DropReason::Firewall));
        assert_eq!(fate(at, false), None);
    }
}

#[test]
fn frequencies_are_binomial() {
    for ppm in [100, 1_000, 10_000, 200_000] {
        let probability = Probability::from_ppm(ppm);
        let mut path = path(
            PathConfig::default()
                .loss(probability)
                .reordering(probability, us(1))
                .duplication(probability, us(1))
                .corruption(probability),
        );
        for number in 0..PACKETS {
            let _ = path.offer(Instant::from_nanos(number), 1_500, Ecn::NotEct);
        }
        let p = f64::from(ppm) / 1e6;
        let stats = *path.stats();
        assert_share(stats.dropped(DropReason::Random), PACKETS, p);
        assert_share(stats.reordered, stats.delivered, p);
        assert_share(stats.duplicated, stats.delivered, p);
        assert_share(stats.corrupted, stats.delivered, p);
    }
}

#[test]
fn independent_losses_are_independent_and_bursts_are_not() {
    let pairs = |config: PathConfig| {
        let mut path = path(config);
        let lost: Vec<bool> = (0..PACKETS)
            .map(|_| path.offer(at(0), 100, Ecn::NotEct).drop_reason().is_some())
            .collect();
        let pairs = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as u64;
        (lost.iter().filter(|&&lost| lost).count() as u64, pairs)
    };
    let (_, together) = pairs(PathConfig::default().loss(Probability::from_percent(5)));
    assert_share(together, PACKETS - 1, 0.0025);

    let model = GilbertElliott::bursts(Probability::from_ppm(5_000), 10);
    let (lost, together) = pairs(PathConfig::default().burst_loss(model));
    let share = f64::from(model.stationary_loss().as_ppb()) / 1e9;
    assert!((lost as f64 / PACKETS as f64 / share - 1.0).abs() < 0.1, "{lost}");
    // Nine of ten losses are followed by another.
    assert_share(together, lost, 0.9);
}

#[test]
fn held_jitter_does_not_stick_to_its_maximum() {
    let mean_extra = |hold| {
        let jitter = Jitter::uniform(us(1_000)).hold(hold);
        let mut path = path(PathConfig::default().jitter(jitter));
        let extra = |number: u64| {
            let now = at(10 * number);
            arrival(path.offer(now, 1_500, Ecn::NotEct)).unwrap() - now
        };
        let packets = PACKETS;
        ((0..packets).map(extra).sum::<Duration>() / packets as u32).as_micros()
    };
    // The mean of the draws is 500 us; waiting for slower packets adds to it.
    assert!((470..540).contains(&mean_extra(us(10_000))));
    // Each packet waits for the slowest of about the hundred before it.
    assert!(mean_extra(Duration::ZERO) > 850);
}

/// A seed means the same for ever: fails when a dependency or an edit changes a draw.
#[test]
fn the_meaning_of_a_seed_is_fixed() {
    let config = Preset::LossyWifi
        .config()
        .forward
        .loss(Probability::from_percent(1))
        .duplication(Probability::from_percent(1), us(10))
        .corruption(Probability::from_percent(1));
    let mut path = Path::new(&config, 2_026, Instant::ZERO).unwrap();
    // FNV-1a over all that the fates say.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |value: u64| {
        for byte in value.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for number in 0..20_000 {
        match path.offer(at(number * 50), 1_500, Ecn::Ect0) {
            // Firewalls came later, in front of the others.
            Fate::Drop(reason) => add(reason as u64 - 1),
            Fate::Deliver(arrival) => {
                add(arrival.at.as_nanos());
                add(arrival.duplicate.map_or(0, Instant::as_nanos));
                let bit = arrival.corrupted.and_then(|flip| flip.bit(1_472));
                add(bit.map_or(0, |(byte, mask)| (byte as u64) << 8 | u64::from(mask)));
            }
        }
    }
    assert_eq!(hash, 12_256_943_047_781_002_548, "{}", path.stats());
}
