use alloc::vec::Vec;

use longhaul_units::{Duration, Instant, Losses, Rate};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::level;
use crate::estimates::Estimates;
use crate::feedback::{Delivery, Feedback};
use crate::rtt::RttEstimator;

const RTT: Duration = Duration::from_millis(40);
const PACKET: u64 = 1_500;
/// 100 Mb/s: a packet each 120 us, a report each 2.4 ms.
const GAP: Duration = Duration::from_micros(120);
const REPORTED: u32 = 20;

/// Reports packets to estimates that `know` something, that find `queue` and are lost where `lost` says so, for ten
/// seconds; counts the causes that they give from the second half on.
fn run(
    know: impl Fn(&mut Estimates),
    queue: impl Fn(&mut Xoshiro256PlusPlus) -> Duration,
    lost: impl Fn(Duration, &mut Xoshiro256PlusPlus) -> bool,
) -> Losses {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let begin = Instant::ZERO + Duration::from_secs(1);
    let (mut estimates, mut rtt) = (Estimates::new(begin, PACKET), RttEstimator::new(RTT));
    know(&mut estimates);
    let (mut classified, mut sent) = (Losses::default(), begin);
    // What is missing is taken for lost a report later.
    let mut missing = Vec::new();
    for report in 0..4_000 {
        let found = queue(&mut rng);
        let mut gone = Vec::new();
        for _ in 0..REPORTED - 1 {
            sent += GAP;
            if lost(found, &mut rng) {
                gone.push(sent);
            }
        }
        sent += GAP;
        let now = sent + RTT + found;
        rtt.update(now, RTT + found);
        let delta = Some(found.as_micros() as i64);
        estimates.on_arrived(now, sent, Some(RTT + found), delta);
        let mut losses = Losses::default();
        for packet in core::mem::replace(&mut missing, gone) {
            *losses.count_mut(estimates.cause(packet, 1)) += 1;
        }
        let arrived = u64::from(REPORTED) - missing.len() as u64;
        let feedback = Feedback {
            acked_packets: arrived,
            acked_bytes: arrived * PACKET,
            lost: losses,
            rtt: Some(RTT + found),
            one_way_delta: delta,
            delivery: Some(Delivery {
                rate: Rate::from_mbps(100),
                interval: GAP * REPORTED,
                sent_over: GAP * REPORTED,
                application_limited: false,
            }),
            ..Feedback::default()
        };
        estimates.on_feedback(now, &rtt, &feedback);
        if report > 2_000 {
            classified = classified.plus(&losses);
        }
    }
    classified
}

fn milliseconds(from: u64, to: u64, rng: &mut Xoshiro256PlusPlus) -> Duration {
    Duration::from_micros(from * 1_000 + rng.next_u64() % ((to - from) * 1_000))
}

fn chance(ppm: u64, rng: &mut Xoshiro256PlusPlus) -> bool {
    rng.next_u64() % 1_000_000 < ppm
}

/// Percent of the losses of the path that the estimates take for chance.
fn random(classified: Losses) -> u64 {
    assert!(classified.network() >= 400, "{classified:?}");
    classified.random * 100 / classified.network()
}

#[test]
fn chance_is_recognised_where_hosts_make_the_queue_look_now_long_now_short() {
    for most in [1, 2, 6, 20] {
        let classified =
            run(|_| (), |rng| milliseconds(0, most, rng), |_, rng| chance(15_000, rng));
        assert!(random(classified) >= 95, "{most} ms: {classified:?}");
    }
}

#[test]
fn what_only_the_longest_queues_lose_is_congestion() {
    let classified = run(
        |_| (),
        |rng| milliseconds(0, 20, rng),
        |queue, rng| queue > Duration::from_millis(18) && chance(200_000, rng),
    );
    assert!(random(classified) <= 5, "{classified:?}");
}

#[test]
fn a_host_that_pauses_does_not_hide_that_the_queue_was_full() {
    let full = Duration::from_millis(8);
    let overflows = |known: bool| {
        run(
            |estimates| {
                if known {
                    estimates.set_queue_full(Instant::ZERO, full);
                }
            },
            |rng| if chance(20_000, rng) { full * 3 } else { milliseconds(0, 8, rng) },
            |queue, rng| queue > full * 7 / 8 && queue < full && chance(200_000, rng),
        )
    };
    assert!(random(overflows(true)) <= 15, "{:?}", overflows(true));
    assert!(random(overflows(false)) >= 90, "{:?}", overflows(false));
}

#[test]
fn what_queues_shorter_than_four_batches_lose_beyond_chance_is_unknown() {
    let losses = |most, lost_ppm| {
        let none_by_chance = |estimates: &mut Estimates| estimates.learn_chance(100_000, 0);
        run(none_by_chance, |rng| milliseconds(0, most, rng), |_, rng| chance(lost_ppm, rng))
    };
    let (short, long) = (losses(3, 20_000), losses(8, 20_000));
    assert!(short.unknown * 10 >= short.network() * 9, "{short:?}");
    assert_eq!(long.unknown, 0, "{long:?}");
}

#[test]
fn a_full_queue_is_not_as_long_as_the_delay_of_a_pause() {
    let ms = Duration::from_millis;
    let mut estimates = Estimates::new(Instant::ZERO, PACKET);
    estimates.set_queue_full(Instant::ZERO, ms(8));
    assert_eq!(estimates.queue_full, Some(ms(8)), "nothing else is known");
    estimates.causes.count(ms(1), 1_000, 100);
    estimates.causes.count(ms(8), 1_000, 30);
    estimates.set_queue_full(Instant::ZERO, ms(8));
    let full = estimates.queue_full.unwrap();
    assert!((ms(1)..=ms(1) * 5 / 4).contains(&full), "{full:?}");
    estimates.set_queue_full(Instant::ZERO, ms(2));
    assert_eq!(estimates.queue_full, Some(ms(2)), "about as long");
}

#[test]
fn levels_are_at_most_a_quarter_wide() {
    let mut last = 0;
    for us in [0, 31, 32, 39, 40, 48, 56, 64, 80, 1_000, 100_000, 400_000, 10_000_000] {
        let at = level(Duration::from_micros(us));
        assert!(at >= last, "{us} us: {at} behind {last}");
        let is_distinct = (32..=400_000).contains(&us);
        assert!(!is_distinct || at < level(Duration::from_micros(us + us / 4 + 1)));
        last = at;
    }
}
