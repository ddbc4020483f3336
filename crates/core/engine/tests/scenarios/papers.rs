//! Results of the profiles that come from papers on the paths that the papers speak of.

use longhaul_rate_control::{ChosenProfile, ChunkSizes, Repair};
use longhaul_units::{Duration, Rate};

use super::world::{Batches, Host, Longhaul, Offer, Tcp, TcpKind, World, path, played};
use super::{MS, SECOND};

/// The links of FOBS, section 3.
const LINK: Rate = Rate::from_mbps(100);
const RTT: Duration = Duration::from_millis(50);

/// A profile alone on that link.
struct Alone {
    name: &'static str,
    rate: Option<Rate>,
    /// After so many seconds it is where it wants to be.
    start: u32,
    /// Permille of the link then,
    least: u64,
    /// and parts per million lost.
    most_loss: u64,
}

const PLANS: &[Alone] = &[
    Alone { name: "fobs-linear", rate: None, start: 65, least: 920, most_loss: 1_000 },
    Alone { name: "fobs-linear", rate: Some(LINK), start: 65, least: 920, most_loss: 1_000 },
    Alone { name: "fobs", rate: None, start: 65, least: 920, most_loss: 1_000 },
    Alone { name: "fobs-state", rate: None, start: 10, least: 930, most_loss: 16_000 },
    Alone { name: "fobs-state", rate: Some(LINK), start: 10, least: 930, most_loss: 16_000 },
    Alone { name: "lambdastream", rate: None, start: 10, least: 950, most_loss: 0 },
    Alone { name: "lambdastream", rate: Some(LINK), start: 10, least: 950, most_loss: 0 },
    Alone { name: "sabul", rate: None, start: 10, least: 930, most_loss: 3_000 },
    Alone { name: "udt", rate: None, start: 10, least: 850, most_loss: 10_000 },
    Alone { name: "tsunami", rate: Some(LINK), start: 10, least: 930, most_loss: 1_000 },
];

impl Alone {
    fn played(&self) -> ChosenProfile {
        played(self.name, self.rate)
    }
}

#[test]
fn each_fills_a_quiet_path_with_no_more_loss_than_its_paper_tells() {
    for plan in PLANS {
        for queue in [20, 100] {
            let config = path(LINK, RTT, LINK.bytes_in(RTT) * queue / 100, 0);
            let mut world = World::new(&config, LINK, 7);
            let flow = Longhaul::new(plan.played(), RTT, Offer::Endless, 3);
            let index = world.add(Duration::ZERO, flow);
            world.run(SECOND * plan.start);
            let span = world.span(index, 30 * SECOND);
            let name = format!("{} {:?}, queue {queue} %", plan.name, plan.rate);
            assert!(span.used >= plan.least, "{name}: {span:?}");
            assert!(span.loss_ppm() <= plan.most_loss, "{name}: {span:?}");
        }
    }
}

/// No way is given to pour into a path that says nothing, and the rate comes back.
#[test]
fn each_outlives_an_outage() {
    for plan in PLANS {
        let config = path(LINK, RTT, LINK.bytes_in(RTT), 0).outage(6 * SECOND, 2 * SECOND);
        let mut world = World::new(&config, LINK, 7);
        let index = world.add(Duration::ZERO, Longhaul::new(plan.played(), RTT, Offer::Endless, 3));
        world.run(7 * SECOND);
        let (sent, _) = world.flow(index).sent_and_lost();
        world.run(900 * MS);
        let packets = world.flow(index).sent_and_lost().0 - sent;
        assert!(packets < 50, "{}: {packets} packets into the dark", plan.name);
        world.run(6 * SECOND);
        let used = world.utilisation(4 * SECOND);
        assert!(used >= 700, "{}: {used} permille", plan.name);
    }
}

/// It takes over at the rate that it finds, without a pause or a start-up of its own.
#[test]
fn each_goes_on_where_another_was() {
    for plan in PLANS {
        for mbps in [40, 90] {
            let config = path(LINK, RTT, LINK.bytes_in(RTT), 0);
            let mut world = World::new(&config, LINK, 7);
            let fixed = played("fixed", Some(Rate::from_mbps(mbps)));
            let mut flow = Longhaul::new(fixed, RTT, Offer::Endless, 3);
            flow.successor = Some((world.now + 5 * SECOND, plan.played()));
            let index = world.add(Duration::ZERO, flow);
            world.run(5 * SECOND);
            let name = format!("{} {:?} after {mbps} Mb/s", plan.name, plan.rate);
            for _ in 0..5 {
                let used = world.utilisation(100 * MS);
                assert!(used >= mbps * 10 * 3 / 4, "{name}: {used} permille");
                assert!(used <= mbps * 10 * 4 / 3, "{name}: {used} permille");
            }
            let lost = world.flow(index).sent_and_lost().1;
            assert_eq!(lost, 0, "{name}");
        }
    }
}

/// FOBS, sections 4 and 4.1, CACR to NCSA: the load of the receiving host has short spikes.
#[test]
fn the_state_based_one_recovers_from_a_busy_receiver_and_the_gentle_one_makes_way() {
    let used = |name| {
        let mut world = World::new(&path(LINK, RTT, LINK.bytes_in(RTT) / 5, 0), LINK, 7);
        let index = world.add(Duration::ZERO, behind_a_busy_receiver(name));
        world.run(20 * SECOND);
        let span = world.span(index, 80 * SECOND);
        (span.used, span.loss_ppm())
    };
    let (state, linear) = (used("fobs-state"), used("fobs-linear"));
    assert!(state.0 >= 926 && state.1 <= 16_000, "state-based: {state:?}");
    assert!((700..880).contains(&linear.0), "linear: {linear:?}");
    assert!(linear.1 < state.1, "linear: {linear:?}, state-based: {state:?}");
}

/// FOBS, section 5: the family changes members "in response to changes in the state of the end-to-end
/// system", in the middle of a transfer.
#[test]
fn the_family_makes_way_for_others_by_a_member_that_shares() {
    for queue in [20, 100] {
        let config = path(LINK, RTT, LINK.bytes_in(RTT) * queue / 100, 0);
        let mut world = World::new(&config, LINK, 7);
        let flow = Longhaul::new(played("fobs", None), RTT, Offer::Endless, 3);
        let index = world.add(Duration::ZERO, flow);
        world.add(20 * SECOND, Tcp::new(TcpKind::Cubic, RTT, 101));
        world.run(20 * SECOND);
        let state = |world: &World| world.flow(index).metrics().map(|metrics| metrics.state);
        assert_eq!(state(&world), Some("linear: quiet path"));
        for _ in 0..100 {
            let used = world.utilisation(200 * MS);
            assert!(used >= 750, "queue {queue} %: a pause, {used} permille");
        }
        assert_eq!(state(&world), Some("auto: shared path"), "queue {queue} %");
        world.run(20 * SECOND);
        let rates = world.measure(20 * SECOND);
        let [ours, theirs] = [0, 1].map(|i| rates[i].as_bps() * 100 / LINK.as_bps());
        assert!((40..=85).contains(&ours), "queue {queue} %: {ours} % beside {theirs} %");
        assert!(ours + theirs >= 95, "queue {queue} %: {ours} % and {theirs} %");
    }
}

#[test]
fn the_family_meets_a_busy_receiver_with_the_member_that_recovers() {
    let mut world = World::new(&path(LINK, RTT, LINK.bytes_in(RTT) / 5, 0), LINK, 7);
    let index = world.add(Duration::ZERO, behind_a_busy_receiver("fobs"));
    world.run(25 * SECOND);
    let used = world.utilisation(60 * SECOND);
    let state = world.flow(index).metrics().map(|metrics| metrics.state);
    assert_eq!(state, Some("state: busy receiver"));
    assert!(used >= 926, "{used} permille");
}

/// It reads nothing for 120 ms of each 20 s.
fn behind_a_busy_receiver(name: &str) -> Longhaul {
    let stalls = Some((20 * SECOND, 120 * MS));
    let (rate, buffer) = (LINK.scale(4, 1), 512 << 10);
    let host = Host { rate, buffer, tells: true, stalls, batches: Batches::SuperPackets };
    Longhaul::new(played(name, None), RTT, Offer::Endless, 3).host(host)
}

/// FOBS, section 2.1: what is lost of a segment goes again behind it, and a chunk that is not whole
/// holds up a later one. Half a gigabyte at 95 % of the link takes so many milliseconds.
fn repaired_by(repair: Repair, rate: Rate, rtt: Duration) -> u128 {
    let mut world = World::new(&path(rate, rtt, rate.bytes_in(rtt), 10_000), rate, 7);
    let fixed = played("fixed", Some(rate.scale(95, 100)));
    let mut flow = Longhaul::new(fixed, rtt, Offer::Bytes(500_000_000), 3);
    flow.repair = Some(repair);
    let index = world.add(Duration::ZERO, flow);
    let (start, mut end) = (world.now, None);
    world.run_until(start + 120 * SECOND, |world| {
        end = world.flow(index).done().then_some(world.now);
        end.is_some()
    });
    (end.expect("all of it arrives") - start).as_millis()
}

#[test]
fn repair_by_chunks_costs_next_to_nothing_where_they_overlap() {
    for (rate, rtt) in [(LINK, RTT), (LINK.scale(10, 1), 300 * MS)] {
        let continuous = repaired_by(Repair::Continuous, rate, rtt);
        let by_chunks = |overlap| {
            repaired_by(Repair::Chunks(ChunkSizes { overlap, ..ChunkSizes::FOBS }), rate, rtt)
        };
        let [alone, overlapping] = [0, ChunkSizes::FOBS.overlap].map(by_chunks);
        assert!(overlapping * 100 <= continuous * 102, "{overlapping} and {continuous} ms");
        assert!(alone >= overlapping + 2 * rtt.as_millis(), "{alone} and {overlapping} ms");
    }
}

/// LambdaStream goes by the receiving interval: no queue is filled to find out where it ends, and
/// losses that come by chance change nothing.
#[test]
fn lambdastream_slows_down_before_a_queue_is_full_and_for_no_chance_loss() {
    for (mbps, loss, least) in
        [(20, 0, 950), (100, 0, 970), (100, 10_000, 950), (1_000, 1_000, 970), (100, 150_000, 700)]
    {
        let rate = Rate::from_mbps(mbps);
        let mut world = World::new(&path(rate, RTT, rate.bytes_in(RTT), loss), rate, 7);
        let flow = Longhaul::new(played("lambdastream", None), RTT, Offer::Endless, 3);
        let index = world.add(Duration::ZERO, flow);
        world.run(10 * SECOND);
        let (before, packets) = world.mean_queue();
        let span = world.span(index, 20 * SECOND);
        let (mean, all) = world.mean_queue();
        let waited = mean * all as u32 - before * packets as u32;
        let waited = waited / (all - packets) as u32;
        assert!(span.used >= least, "{mbps} Mb/s, {loss} ppm: {span:?}");
        assert!(span.loss_ppm() <= u64::from(loss) * 11 / 10, "{mbps} Mb/s: {span:?}");
        assert!(waited <= RTT / 10, "{mbps} Mb/s, {loss} ppm: a queue of {waited:?}");
    }
}
