//! Lanes that go from one path to another.

use super::*;

#[test]
fn a_lane_takes_its_load_to_another_path() {
    let mut options = gigabit(60).loss(1).fixed("trc", Rate::from_mbps(300));
    options.up = options.up.reordering(Probability::from_percent(2), Duration::from_millis(8));
    let mut pair = Pair::new(&options);
    pair.offer(1, 30_000_000);
    pair.run_for(Duration::from_millis(500));
    // From here on at a tenth of the rate.
    let now = pair.now;
    let chosen = Profile::wished(Some("fixed"), Some(Rate::from_mbps(30)), []).unwrap();
    let controller = chosen.controller(now, 1500, None);
    let rtt = Duration::from_millis(60);
    let mut path = Path::new(now, controller, Governor::new(now, false), rtt, 3);
    core::mem::swap(&mut path, &mut pair.client.path);
    pair.client.lane.leave_path(now, &mut path, onward(1));
    assert_eq!(path.in_flight(), 0);
    pair.run_until(60, |pair| pair.client.delivered() == 30_000_000);
    assert_eq!(pair.server.objects[&ObjectId(1)].total(), 30_000_000);
    assert_eq!(pair.client.path.in_flight(), 0);
    let stats = pair.client.lane.stats();
    assert!(stats.lost > 0 && stats.spurious < stats.lost / 2, "{stats:?}");
}

#[test]
fn what_an_earlier_path_lost_is_repaired_at_once() {
    let round = Duration::from_millis(60);
    let mut pair = Pair::new(&gigabit(60).loss(1).fixed("trc", Rate::from_mbps(300)));
    pair.offer(1, 10_000_000);
    let sent = 10_000_000 / 1440;
    pair.run_until(5, |pair| pair.client.lane.stats().packets_sent >= sent);
    let now = pair.now;
    let chosen = Profile::wished(Some("fixed"), Some(Rate::from_mbps(100)), []).unwrap();
    let controller = chosen.controller(now, 1500, None);
    let mut path = Path::new(now, controller, Governor::new(now, false), round, 3);
    core::mem::swap(&mut path, &mut pair.client.path);
    pair.client.lane.leave_path(now, &mut path, onward(1));
    let lost = |pair: &Pair| pair.client.lane.stats().lost;
    let before = lost(&pair);
    pair.run_for(round * 5 / 4);
    let soon = lost(&pair) - before;
    pair.run_until(5, |pair| pair.client.delivered() == 10_000_000);
    // The rest are packets that were sent since.
    let all = lost(&pair) - before;
    assert!(soon > 10 && soon * 4 >= all * 3, "{soon} of {all} after a round trip");
}

#[test]
fn a_lane_goes_there_and_back_any_number_of_times() {
    let mut pair = Pair::new(&gigabit(60).loss(1).fixed("fixed", Rate::from_mbps(200)));
    let short = gigabit(10);
    let link = Link::new(&short.up, 13, pair.now).unwrap();
    pair.other = Some((link, fixed_path(pair.now, 10, Rate::from_mbps(100))));
    pair.offer(1, 40_000_000);
    for stay in [150, 3, 1, 200, 0, 70, 90, 2, 400] {
        pair.run_for(Duration::from_millis(stay));
        let path = 1 - pair.client.lane.path().0;
        pair.go(path);
    }
    assert_eq!(pair.client.lane.stats().datagram, 1472, "known from before");
    pair.run_until(30, |pair| pair.client.delivered() == 40_000_000);
    assert_eq!(pair.server.objects[&ObjectId(1)].total(), 40_000_000);
    assert_eq!(pair.client.path.in_flight(), 0);
    let lane = &pair.client.lane;
    let (stats, paths) = (lane.stats(), [PathId(0), PathId(1)].map(|path| lane.carried(path)));
    assert_eq!(stats.packets_sent, paths[0].packets_sent + paths[1].packets_sent);
    assert_eq!(stats.bytes_sent, paths[0].bytes_sent + paths[1].bytes_sent);
    assert_eq!(stats.lost, paths[0].lost + paths[1].lost);
    assert_eq!(stats.bytes_received, paths[0].bytes_received + paths[1].bytes_received);
    assert!(paths.iter().all(|carried| carried.bytes_received > 0), "{paths:?}");
    assert!(paths[0].lost > paths[1].lost && paths[1].lost < 10, "{paths:?}");
    assert!(stats.spurious * 10 < stats.lost, "{stats:?}");
}

#[test]
fn what_a_dead_path_swallowed_goes_over_the_other_one() {
    let mut pair = Pair::new(&gigabit(60).fixed("fixed", Rate::from_mbps(200)));
    let link = Link::new(&gigabit(10).up, 13, pair.now).unwrap();
    let rate = Rate::from_mbps(100);
    pair.other = Some((link, fixed_path(pair.now, 10, rate)));
    pair.offer(1, 10_000_000);
    pair.run_for(Duration::from_millis(300));
    let dead = gigabit(60).loss(100);
    pair.up = Link::new(&dead.up, 14, pair.now).unwrap();
    pair.run_for(Duration::from_secs(3));
    assert!(pair.client.delivered() < 10_000_000);
    pair.go(1);
    let took = pair.run_until(5, |pair| pair.client.delivered() == 10_000_000);
    assert!(took < rate.time_for(10_000_000) + Duration::from_millis(500), "{took:?}");
    // The other path has done nothing wrong.
    assert_eq!(pair.client.lane.carried(PathId(1)).lost, 0);
}

#[test]
fn the_server_asks_until_it_is_heeded_and_its_last_order_holds() {
    let mut pair = Pair::new(&gigabit(20).loss(50));
    pair.run_until(5, |pair| pair.server.lane.is_validated());
    let [first, second] = [LaneId(1), LaneId(2)];
    pair.server.lane.ask_to_move(4, first, LaneId(0));
    pair.server.lane.ask_to_move(3, first, second);
    pair.server.lane.ask_to_move(4, second, LaneId(0));
    let asked = |pair: &Pair, wanted: LaneId| {
        let moves = pair.client.events.iter().filter_map(|event| match *event {
            Event::MoveAsked { order, lane, beside } if lane == wanted => Some((order, beside)),
            _ => None,
        });
        moves.collect::<Vec<_>>()
    };
    pair.run_until(20, |pair| !asked(pair, first).is_empty() && !asked(pair, second).is_empty());
    assert!(asked(&pair, first).iter().all(|ask| *ask == (4, LaneId(0))), "never the older");
    pair.run_for(Duration::from_secs(20));
    let before = asked(&pair, first).len();
    pair.run_for(Duration::from_secs(5));
    assert_eq!(asked(&pair, first).len(), before, "it has arrived");
    pair.client.lane.ask_to_move(1, first, second);
    pair.run_until(20, |pair| pair.server.closed() == Some(CloseCode::PROTOCOL_VIOLATION));
}
