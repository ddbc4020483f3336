use alloc::vec::Vec;

use longhaul_units::{Duration, Instant, Rate};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::*;
use crate::estimates::Estimates;
use crate::pacer::Pacer;
use crate::rtt::RttEstimator;

const PACKET: u64 = 1500;

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

/// Ranges with and without gaps between them, from a second on.
fn vector() -> impl Strategy<Value = Vector> {
    let range = (prop_oneof![Just(0u64), 0u64..300_000], 1u64..400_000, 1u64..2_000);
    prop::collection::vec(range, 1..12).prop_map(|parts| {
        let mut start = 1_000_000;
        let ranges: Vec<TimeRange> = parts
            .into_iter()
            .map(|(gap, length, mbps)| {
                let from = start + gap;
                start = from + length;
                TimeRange { start: at(from), end: at(start), rate: Rate::from_mbps(mbps) }
            })
            .collect();
        Vector::new(ranges).unwrap()
    })
}

/// Sends as a lane does, waking up to `late` behind time; gives times and sizes of the batches.
fn follow(vector: &Vector, late: &[u64]) -> Vec<(Instant, u64)> {
    let mut now = at(900_000);
    let mut controller = Trc::new(now, vector.clone(), PACKET);
    let mut pacer = Pacer::new(now, controller.pacing());
    let rtt = RttEstimator::new(Duration::from_millis(50));
    let mut estimates = Estimates::new(now, PACKET);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut sent = Vec::new();
    let mut late = late.iter().cycle();
    loop {
        if controller.next_timeout().is_some_and(|next| next <= now) {
            controller.on_timeout(&mut Context {
                now,
                rtt: &rtt,
                estimates: &mut estimates,
                rng: &mut rng,
            });
            pacer.set(now, controller.pacing());
        }
        let batch = (controller.pacing().burst / 2 / PACKET).max(1) * PACKET;
        let next = match pacer.earliest(now, batch) {
            None => {
                pacer.on_sent(now, batch);
                sent.push((now, batch));
                continue;
            }
            Some(next) => next,
        };
        let Some(wake) = controller.next_timeout().map(|change| change.min(next)) else {
            return sent;
        };
        now = wake.max(now) + Duration::from_micros(*late.next().unwrap_or(&0));
    }
}

#[test]
fn ranges_out_of_order_are_no_vector() {
    let rate = Rate::from_mbps(1);
    let range = |from, to| TimeRange { start: at(from), end: at(to), rate };
    assert!(Vector::new(vec![range(1, 3), range(3, 4), range(6, 7)]).is_ok());
    assert_eq!(Vector::new(vec![range(1, 3), range(2, 4)]), Err(VectorError { range: 1 }));
    assert_eq!(Vector::new(vec![range(3, 3)]), Err(VectorError { range: 0 }));
    let empty = Vector::default();
    assert_eq!((empty.rate_at(at(0)), empty.next_change(at(0))), (Rate::ZERO, None));
    assert_eq!(empty.guarded(Duration::from_millis(1)), empty);
}

#[test]
fn a_guard_delays_rises_and_hastens_falls() {
    let range =
        |from, to, mbps| TimeRange { start: at(from), end: at(to), rate: Rate::from_mbps(mbps) };
    let vector =
        vec![range(100, 200, 100), range(200, 300, 400), range(300, 400, 200), range(500, 510, 9)];
    let safe = Vector::new(vector).unwrap().guarded(Duration::from_micros(10));
    let expected = [range(110, 210, 100), range(210, 290, 400), range(290, 390, 200)];
    assert_eq!(safe.ranges(), expected);
}

#[test]
fn a_stretch_of_one_rate_idles_once_at_its_start() {
    let range =
        |from, to, mbps| TimeRange { start: at(from), end: at(to), rate: Rate::from_mbps(mbps) };
    let vector = vec![
        range(100, 200, 100),
        range(200, 300, 100),
        range(300, 305, 400),
        range(305, 400, 200),
        range(500, 600, 200),
    ];
    let left = Vector::new(vector).unwrap().idle_first(Duration::from_micros(5));
    assert_eq!(left.ranges(), [range(105, 300, 100), range(310, 400, 200), range(505, 600, 200)]);
}

#[test]
fn states_say_what_it_waits_for() {
    let vector = vec![TimeRange { start: at(10), end: at(20), rate: Rate::from_mbps(8) }];
    let mut trc = Trc::new(at(0), Vector::new(vector).unwrap(), PACKET);
    let mut seen = Vec::new();
    for now in [0, 9, 10, 19, 20] {
        trc.see(at(now));
        seen.push((trc.metrics().state, trc.pacing().rate.as_bps()));
    }
    let (waiting, following) = (("waiting", 0), ("following", 7_960_000));
    assert_eq!(seen, [waiting, waiting, following, following, ("over", 0)]);
}

proptest! {
    /// Nothing leaves outside the ranges, and within them no stretch carries more than its area,
    /// one burst and one batch.
    #[test]
    fn never_above_the_vector(
        vector in vector(),
        late in prop::collection::vec(0u64..3_000, 1..20),
    ) {
        let sent = follow(&vector, &late);
        for (now, _) in &sent {
            prop_assert!(vector.rate_at(*now) > Rate::ZERO);
        }
        for first in (0..sent.len()).step_by(sent.len() / 50 + 1) {
            let mut bytes = 0;
            for (now, batch) in &sent[first..] {
                bytes += batch;
                let area = vector.bytes_within(sent[first].0, *now + Duration::from_micros(1));
                prop_assert!(bytes <= area + 2 * BURST_MAX.max(LARGE_BURST_MAX / 4));
            }
        }
    }

    /// On time, everything but half a percent and a burst a range is used.
    #[test]
    fn what_is_booked_is_used(vector in vector()) {
        let sent: u64 = follow(&vector, &[0]).iter().map(|(_, bytes)| bytes).sum();
        let booked = vector.bytes_within(at(0), Instant::FAR_FUTURE);
        let spare = vector.ranges().len() as u64 * (BURST_MAX + 4 * PACKET);
        prop_assert!(sent + spare + booked / 200 >= booked, "{sent} of {booked}");
    }

    /// A guarded vector is the least rate within the guard, everywhere.
    #[test]
    fn guarded_is_the_least_within_the_guard(
        vector in vector(),
        guard in 0u64..50_000,
        times in prop::collection::vec(900_000u64..4_000_000, 20),
    ) {
        let safe = vector.guarded(Duration::from_micros(guard));
        prop_assert!(Vector::new(safe.ranges().to_vec()).is_ok());
        for time in times {
            let within = [time - guard, time, time + guard];
            let inner = vector.ranges().iter().flat_map(|range| [range.start, range.end]);
            let inner = inner.filter(|b| *b > at(time - guard) && *b <= at(time + guard));
            let rates = within.map(at).into_iter().chain(inner).map(|at| vector.rate_at(at));
            // At the very ends of the window the half-open sides may differ by a nanosecond.
            let before = Duration::from_nanos(1);
            let loosely = vector.rate_at(at(time + guard).before(before));
            let least = rates.clone().min().unwrap();
            let rate = safe.rate_at(at(time));
            prop_assert!(rate == least || rate <= loosely && rate >= least, "{rate} {least}");
        }
    }
}
