//! Start-up with a history of the path (docs/rate-control.md, "History of paths").

use std::cell::RefCell;
use std::rc::Rc;

use longhaul_rate_control::{MemoryUse, Observation, PathMemory, Remembered};

use super::*;

/// A path that carried `mbps`, over a round trip of `rtt`.
fn memory(mbps: u64, rtt: Duration) -> PathMemory {
    let rate = Rate::from_mbps(mbps);
    let age = Duration::from_secs(3_600);
    let (band, best_profile) = ((rate, rate), None);
    PathMemory { band, round_trip: rtt, chance_ppm: 0, packet: PACKET, age, best_profile }
}

/// Largest queueing delay, use of the memory, and what was observed so far.
type Seen = (Duration, Option<MemoryUse>, Option<Observation>);

/// Outcome of a start.
#[derive(Debug)]
struct Begun {
    /// From the first packet at the receiver until 90 % of the link, over 5 ms each.
    full_after: Option<Duration>,
    /// Largest queueing delay until then and half a second on.
    queue: Duration,
    lost: u64,
    /// Goodput of the first two seconds, permille of the link.
    used: u64,
    usage: Option<MemoryUse>,
    /// The observation for transfers to come.
    observed: Option<Observation>,
}

fn begin(mbps: u64, rtt: Duration, queue: u64, loss_ppm: u32, memory: Option<PathMemory>) -> Begun {
    let mut flow = auto(rtt, Offer::Endless, 3);
    flow.memory = memory;
    begin_as(flow, mbps, rtt, queue, loss_ppm)
}

fn begin_as(mut flow: Longhaul, mbps: u64, rtt: Duration, queue: u64, loss_ppm: u32) -> Begun {
    let rate = Rate::from_mbps(mbps);
    let mut world =
        World::new(&path(rate, rtt, rate.bytes_in(rtt) * queue / 100, loss_ppm), rate, 7);
    let seen: Rc<RefCell<Seen>> = Rc::default();
    let shared = seen.clone();
    flow.trace = Some(Box::new(move |_, rated| {
        let mut seen = shared.borrow_mut();
        seen.0 = seen.0.max(rated.estimates().queue());
        seen.1 = rated.memory_use();
        seen.2 = rated.observed();
    }));
    let index = world.add(Duration::ZERO, flow);
    world.run(rtt / 2);
    let (start, mut full_after, step) = (world.now, None, 5 * MS);
    while world.now < start + 2 * SECOND {
        let before = world.now;
        if world.utilisation(step) >= 900 * u64::from(1_000_000 - loss_ppm) / 1_000_000 {
            full_after = full_after.or(Some(before - start));
        }
    }
    let used = world.flow(index).received() * 1_000 / rate.bytes_in(2 * SECOND);
    let (queue, usage, observed) = *seen.borrow();
    Begun { full_after, queue, lost: world.flow(index).sent_and_lost().1, used, usage, observed }
}

#[test]
fn a_known_path_is_filled_a_round_trip_behind_the_first_packet() {
    // Megabits a second, round trip, queue in percent of the product, chance loss.
    for (mbps, rtt_ms, queue, loss_ppm) in [
        (1_000, 100, 100, 0),
        (1_000, 100, 5, 0),
        (1_000, 100, 100, 10_000),
        (1_000, 20, 100, 0),
        (10_000, 300, 100, 0),
    ] {
        let (rtt, name) =
            (MS * rtt_ms, format!("{mbps} Mb/s, {rtt_ms} ms, {queue} %, {loss_ppm} ppm"));
        let cold = begin(mbps, rtt, queue, loss_ppm, None);
        let known = PathMemory { chance_ppm: loss_ppm, ..memory(mbps, rtt) };
        let warm = begin(mbps, rtt, queue, loss_ppm, Some(known));
        assert_eq!(warm.usage, Some(MemoryUse::Confirmed), "{name}");
        assert!(warm.full_after.is_some_and(|after| after <= rtt + 20 * MS), "{name}: {warm:?}");
        assert!(cold.full_after > Some(rtt + 20 * MS), "{name}: nothing to gain: {cold:?}");
        assert!(warm.used > cold.used && warm.queue <= 10 * MS, "{name}: {warm:?}");
        if loss_ppm == 0 {
            assert_eq!(warm.lost, 0, "{name}");
        }
    }
}

/// Losses are no more than what was sent too much: half of the known rate, for a round trip.
#[test]
fn a_path_that_carries_less_than_it_did_is_retreated_to() {
    for (mbps, rtt_ms, times) in [(1_000, 100, 10), (1_000, 100, 4), (1_000, 20, 10), (100, 50, 10)]
    {
        for (queue, loss_ppm) in [(100, 0), (5, 0), (100, 10_000)] {
            let rtt = MS * rtt_ms;
            let name =
                format!("{mbps} Mb/s, {rtt_ms} ms, {times} times, {queue} %, {loss_ppm} ppm");
            let cold = begin(mbps, rtt, queue, loss_ppm, None);
            let known = PathMemory { chance_ppm: loss_ppm, ..memory(mbps * times, rtt) };
            let wrong = begin(mbps, rtt, queue, loss_ppm, Some(known));
            assert_eq!(wrong.usage, Some(MemoryUse::Retreated), "{name}");
            let too_much = Rate::from_mbps(mbps * times).scale(1, 2).bytes_in(rtt) / PACKET;
            assert!(wrong.lost <= cold.lost + too_much * 9 / 8, "{name}: {wrong:?}, {cold:?}");
            // Two seconds: a round trip more of nothing would be five percent.
            assert!(wrong.used + 30 >= cold.used, "{name}: {wrong:?}, {cold:?}");
        }
    }
}

#[test]
fn a_path_of_another_round_trip_is_begun_as_one_of_which_nothing_is_known() {
    let rtt = MS * 100;
    let cold = begin(1_000, rtt, 100, 0, None);
    for other in [MS * 9, MS * 200] {
        let warm = begin(1_000, rtt, 100, 0, Some(memory(10_000, other)));
        assert_eq!(warm.usage, Some(MemoryUse::OtherRoundTrip), "{other:?}");
        assert_eq!((warm.lost, warm.used), (cold.lost, cold.used), "{other:?}");
    }
}

/// Known is what a slow hour left, or half of what was, as memories fade.
#[test]
fn a_path_that_carries_more_than_it_did_is_begun_as_fast_as_without_a_memory() {
    let rtt = MS * 100;
    let cold = begin(1_000, rtt, 100, 0, None);
    for known in [250, 500, 800] {
        let warm = begin(1_000, rtt, 100, 0, Some(memory(known, rtt)));
        assert!(warm.used >= cold.used, "{known} Mb/s: {warm:?}, {cold:?}");
    }
}

#[test]
fn what_one_flow_observes_the_next_builds_on() {
    for (mbps, rtt_ms, loss_ppm) in [(1_000, 100, 0), (1_000, 100, 10_000), (200, 60, 1_000)] {
        let (rate, rtt) = (Rate::from_mbps(mbps), MS * rtt_ms);
        let name = format!("{mbps} Mb/s, {rtt_ms} ms, {loss_ppm} ppm");
        let seen = begin(mbps, rtt, 100, loss_ppm, None).observed.expect("two seconds are enough");
        assert!(seen.by_path && seen.packet == PACKET, "{name}: {seen:?}");
        assert!(seen.round_trip >= rtt && seen.round_trip <= rtt + 5 * MS, "{name}: {seen:?}");
        assert!((rate.scale(9, 10)..=rate.scale(21, 20)).contains(&seen.rate), "{name}: {seen:?}");
        let profile = Some("auto");
        let remembered = Remembered { seen, age: SECOND, hours_apart: SECOND, profile };
        let warm = begin(mbps, rtt, 100, loss_ppm, PathMemory::of(&[remembered]));
        let built = [Some(MemoryUse::Confirmed), Some(MemoryUse::Lower)];
        assert!(built.contains(&warm.usage), "{name}: {warm:?}");
    }
}

/// A copy that `--rate` held back does not show that the path carries no more.
#[test]
fn what_a_limit_of_the_user_bounded_is_not_taken_for_the_path() {
    let rtt = MS * 100;
    let cold = begin(1_000, rtt, 100, 0, None);
    for profile in ["auto", "tsunami", "paptc", "fixed", "udt", "trc"] {
        let limited = played(profile, Some(Rate::from_mbps(60)));
        let seen = begin_as(Longhaul::new(limited, rtt, Offer::Endless, 3), 1_000, rtt, 100, 0);
        let seen = seen.observed.expect("two seconds are enough");
        assert!(!seen.by_path, "{profile}: {seen:?}");
        let remembered =
            Remembered { seen, age: SECOND, hours_apart: SECOND, profile: Some(profile) };
        let warm = begin(1_000, rtt, 100, 0, PathMemory::of(&[remembered]));
        // 30 Mb/s follow the train, and its spread is read a little off.
        assert!(warm.used + 5 >= cold.used, "{profile}: {seen:?}, {warm:?}, {cold:?}");
        assert!(warm.queue <= 10 * MS, "{profile}: {warm:?}");
    }
}

/// Time that a copy takes, the median of five, and what each leaves to those to come.
fn copied(
    path: &PathConfig,
    rtt: Duration,
    memory: Option<PathMemory>,
) -> (Duration, Option<Observation>) {
    let mut copies = [11, 12, 13, 14, 15].map(|seed| {
        let mut world = World::new(path, Rate::from_gbps(1), seed);
        let mut flow = auto(rtt, Offer::Bytes(60_000_000), seed);
        flow.memory = memory;
        // Timers are late.
        flow.stutters = Some((Duration::from_micros(80), Duration::from_micros(70)));
        let observed: Rc<RefCell<Option<Observation>>> = Rc::default();
        let noted = observed.clone();
        flow.trace = Some(Box::new(move |_, rated| *noted.borrow_mut() = rated.observed()));
        let (start, index) = (world.now, world.add(Duration::ZERO, flow));
        world.run_until(start + 600 * SECOND, |world| world.flow(index).done());
        (world.now - start, *observed.borrow())
    });
    copies.sort_by_key(|copy| copy.0);
    copies[2]
}

/// A tenth or four round trips, whatever was remembered; and so the next copy, which knows what that one saw.
#[test]
fn no_memory_makes_a_copy_much_slower_nor_the_next_one() {
    let mut slow = Vec::new();
    for (rtt_ms, queue, loss_ppm) in
        [(10, 64_000, 0), (20, 125_000, 10_000), (50, 640_000, 10_000), (100, 625_000, 0)]
    {
        let rtt = MS * rtt_ms;
        let path = path(Rate::from_gbps(1), rtt, queue, loss_ppm);
        let (cold, _) = copied(&path, rtt, None);
        let most = (cold + cold / 10).max(cold + rtt * 4);
        let right = PathMemory { chance_ppm: loss_ppm, ..memory(1_000, rtt) };
        let month = Duration::from_secs(29 * 24 * 3_600);
        let (tenth, tenfold) = (Rate::from_mbps(100), Rate::from_gbps(10));
        for (history, known) in [
            ("right", right),
            ("right but for the chance", PathMemory { chance_ppm: 0, ..right }),
            ("old", PathMemory { age: month, ..right }),
            ("ten times too low", PathMemory { band: (tenth, tenth), ..right }),
            ("ten times too high", PathMemory { band: (tenfold, tenfold), ..right }),
            ("half too high", memory(1_500, rtt)),
            ("poisoned", PathMemory { band: (tenfold, tenfold), chance_ppm: 100_000, ..right }),
        ] {
            let name = format!("{rtt_ms} ms, {queue} bytes, {loss_ppm} ppm, {history}");
            let (warm, seen) = copied(&path, rtt, Some(known));
            if warm > most {
                slow.push(format!("{name}: {warm:?} with the memory, {cold:?} without"));
            }
            let Some(seen) = seen else { continue };
            let (age, profile) = (SECOND, Some("auto"));
            let next = PathMemory::of(&[Remembered { seen, age, hours_apart: age, profile }]);
            let (next, _) = copied(&path, rtt, next);
            if next > most {
                slow.push(format!("{name}, the next: {next:?} by {seen:?}, {cold:?} without"));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}
