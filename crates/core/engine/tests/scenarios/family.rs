//! Results of the profiles beside `auto` on emulated paths: docs/rate-control.md says of each what its
//! source promises.

use super::world::{Longhaul, Offer, Tcp, TcpKind, World, path, played};
use super::{MS, SECOND};
use longhaul_units::{Duration, Rate};

const RATE: Rate = Rate::from_mbps(200);
const RTT: Duration = Duration::from_millis(40);

fn flow(profile: &str, seed: u64) -> Longhaul {
    Longhaul::new(played(profile, None), RTT, Offer::Endless, seed)
}

/// Alone on a path with a queue of one product: permille of the link used, and parts per million lost.
fn alone(profile: &str, loss_ppm: u32) -> (u64, u64) {
    let mut world = World::new(&path(RATE, RTT, RATE.bytes_in(RTT), loss_ppm), RATE, 7);
    let index = world.add(Duration::ZERO, flow(profile, 3));
    world.run(5 * SECOND);
    let (sent, lost) = world.flow(index).sent_and_lost();
    let used = world.utilisation(30 * SECOND);
    let now = world.flow(index).sent_and_lost();
    (used, (now.1 - lost) * 1_000_000 / (now.0 - sent))
}

/// Permille of the link used, six seconds behind an outage of two.
fn behind_an_outage(profile: &str) -> u64 {
    let config = path(RATE, RTT, RATE.bytes_in(RTT), 0).outage(6 * SECOND, 2 * SECOND);
    let mut world = World::new(&config, RATE, 7);
    let index = world.add(Duration::ZERO, flow(profile, 3));
    world.run(7 * SECOND);
    let (sent, _) = world.flow(index).sent_and_lost();
    world.run(900 * MS);
    let packets = world.flow(index).sent_and_lost().0 - sent;
    assert!(packets < 50, "{profile}: {packets} packets into the dark");
    world.run(6 * SECOND);
    world.utilisation(10 * SECOND)
}

#[test]
fn cubic_fills_a_path_before_and_behind_an_outage() {
    let (used, lost) = alone("cubic", 0);
    assert!(used >= 950, "{used} permille");
    assert!(lost <= 2_000, "{lost} ppm lost");
    let used = behind_an_outage("cubic");
    assert!(used >= 900, "{used} permille behind an outage");
}

/// The same law in two implementations.
#[test]
fn cubic_shares_with_the_kernels_cubic() {
    for (first, second) in [(0, 5), (5, 0)] {
        let mut world = World::new(&path(RATE, RTT, RATE.bytes_in(RTT), 0), RATE, 11);
        world.add(SECOND * first, flow("cubic", 3));
        world.add(SECOND * second, Tcp::new(TcpKind::Cubic, RTT, 100));
        world.run(40 * SECOND);
        let rates = world.measure(80 * SECOND);
        let share = rates[0].as_bps() * 200 / (rates[0].as_bps() + rates[1].as_bps());
        assert!((60..=160).contains(&share), "{share} % of the fair share");
    }
}

#[test]
fn bbr_fills_a_path_before_and_behind_an_outage() {
    let (used, lost) = alone("bbr", 0);
    assert!(used >= 900, "{used} permille");
    assert!(lost <= 10_000, "{lost} ppm lost");
    let used = behind_an_outage("bbr");
    assert!(used >= 850, "{used} permille behind an outage");
}

#[test]
fn bbr_bears_one_percent_of_chance() {
    let (used, lost) = alone("bbr", 10_000);
    assert!(used >= 800, "{used} permille");
    assert!(lost <= 20_000, "{lost} ppm lost");
}

#[test]
fn pcc_fills_a_path_before_and_behind_an_outage() {
    let (used, lost) = alone("pcc", 0);
    assert!(used >= 850, "{used} permille");
    assert!(lost <= 10_000, "{lost} ppm lost");
    let used = behind_an_outage("pcc");
    assert!(used >= 850, "{used} permille behind an outage");
}

#[test]
fn scavenger_fills_a_path_before_and_behind_an_outage() {
    let (used, lost) = alone("scavenger", 0);
    assert!(used >= 850, "{used} permille");
    assert!(lost <= 2_000, "{lost} ppm lost");
    // Half of its window, and a third of a packet more each round trip.
    let used = behind_an_outage("scavenger");
    assert!(used >= 600, "{used} permille behind an outage");
}

/// On a queue that holds more than the target, and on those that do not.
#[test]
fn scavenger_leaves_the_path_to_cubic() {
    for (first, second, queue) in
        [(0, 10, RTT * 3), (10, 0, RTT * 3), (0, 10, RTT), (10, 0, RTT / 4)]
    {
        let mut world = World::new(&path(RATE, RTT, RATE.bytes_in(queue), 0), RATE, 11);
        world.add(SECOND * first, flow("scavenger", 3));
        world.add(SECOND * second, Tcp::new(TcpKind::Cubic, RTT, 100));
        world.run(40 * SECOND);
        let rates = world.measure(60 * SECOND);
        let share = rates[1].as_bps() * 100 / (rates[0].as_bps() + rates[1].as_bps());
        assert!(share >= 97, "{share} % for CUBIC, {first} {second} {queue:?}");
    }
}
