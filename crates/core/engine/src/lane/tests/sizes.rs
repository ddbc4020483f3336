//! Paths and interfaces that do not take packets of the base size.

use alloc::string::ToString;

use super::*;

fn narrow(pair: &mut Pair, mtu: u32, seed: u64) {
    pair.up = Link::new(&gigabit(50).up.mtu(mtu), seed, pair.now).unwrap();
}

fn reason(side: &Side) -> (CloseCode, &str) {
    let closed = side.events.iter().find_map(|event| match event {
        Event::Closed(closed) => Some((closed.code, &*closed.reason)),
        _ => None,
    });
    closed.unwrap()
}

#[test]
fn where_the_base_does_not_fit_no_object_is_sent_and_what_passes_is_named() {
    for mtu in [600, 1_168, 1_227] {
        let mut options = gigabit(50);
        options.up = options.up.mtu(mtu);
        let mut pair = Pair::new(&options);
        pair.offer(1, 1_000_000);
        pair.run_until(2, |pair| pair.client.closed().is_some());
        assert_eq!(pair.client.batches, 0);
        let (code, reason) = reason(&pair.client);
        let passed = pair.client.lane.passed().unwrap();
        assert_eq!(code, CloseCode::PATH_MTU);
        assert!(passed <= u64::from(mtu) && passed + 32 > u64::from(mtu), "{passed} of {mtu}");
        assert!(reason.contains("1228") && reason.contains(&passed.to_string()), "{reason}");
    }
}

#[test]
fn a_path_that_shrinks_below_the_base_ends_the_lane_within_ten_seconds() {
    for profile in ["auto", "cubic", "rbudp", "fobs", "unlimited", "tsunami"] {
        for rtt in [2, 50, 300] {
            let options = Options { profile, rate: Some(Rate::from_mbps(100)), ..gigabit(rtt) };
            let mut pair = Pair::new(&options);
            pair.offer(1, 100_000_000);
            pair.run_until(5, |pair| pair.server.objects.contains_key(&ObjectId(1)));
            pair.run_for(Duration::from_millis(300));
            pair.up = Link::new(&options.up.clone().mtu(1_150), 5, pair.now).unwrap();
            pair.run_for(Duration::from_secs(10));
            assert_eq!(
                pair.client.closed(),
                Some(CloseCode::PATH_MTU),
                "{profile} {rtt} {:?}",
                pair.client.lane.mtu
            );
        }
    }
}

#[test]
fn an_interface_below_the_base_ends_the_lane_at_once() {
    let mut pair = Pair::new(&Options { datagram_max: 1_100, ..gigabit(50) });
    pair.run_for(Duration::from_millis(1));
    let (code, reason) = reason(&pair.client);
    assert_eq!(code, CloseCode::PATH_MTU);
    assert!(reason.contains("1128"), "{reason}");
}

#[test]
fn an_interface_that_shrinks_ends_the_lane_at_its_first_refusal() {
    let mut pair = Pair::new(&gigabit(50).fixed("fixed", Rate::from_mbps(10)));
    pair.offer(1, 10_000_000);
    pair.run_for(Duration::from_millis(500));
    let Side { lane, path, plan, .. } = &mut pair.client;
    let (now, mut refused) = (pair.now + Duration::from_millis(50), 0);
    lane.handle_timeout(now, path);
    while let Some(transmit) = lane.poll_transmit(now, path, 44, plan) {
        let why = (crate::lane::NotSent::TooLarge, 1_472 >> refused.min(1));
        lane.not_sent(now, path, &transmit, 0, why);
        lane.handle_timeout(now, path);
        refused += 1;
        assert!(refused < 5);
    }
    pair.client.drain_events(now);
    assert_eq!(reason(&pair.client).0, CloseCode::PATH_MTU);
}

#[test]
fn an_outage_and_heavy_loss_are_not_taken_for_a_small_mtu() {
    let mut pair = Pair::new(&gigabit(50));
    pair.offer(1, 30_000_000);
    for (seed, loss) in [100, 0, 100, 30, 50].into_iter().enumerate() {
        pair.run_for(Duration::from_secs(2));
        pair.up = Link::new(&gigabit(50).loss(loss).up, seed as u64, pair.now).unwrap();
    }
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.client.closed(), None);
}

#[test]
fn a_path_that_widens_in_time_carries_on() {
    let mut pair = Pair::new(&gigabit(50).fixed("fixed", Rate::from_mbps(50)));
    pair.offer(1, 10_000_000);
    pair.run_for(Duration::from_millis(500));
    narrow(&mut pair, 1_150, 5);
    pair.run_for(Duration::from_millis(200));
    narrow(&mut pair, 1_500, 6);
    pair.run_until(20, |pair| pair.client.delivered() == 10_000_000);
    assert_eq!(pair.client.closed(), None);
}

#[test]
fn a_lane_that_left_with_a_probe_under_way_asks_again_when_it_is_back() {
    let options = Options { datagram_max: 1_200, ..gigabit(50) };
    let mut pair = Pair::new(&options);
    // The only packet of the base size is lost.
    narrow(&mut pair, 1_150, 5);
    pair.run_for(Duration::from_millis(20));
    narrow(&mut pair, 1_500, 6);
    pair.run_until(2, |pair| pair.client.lane.is_validated());
    let link = Link::new(&gigabit(50).up, 7, pair.now).unwrap();
    pair.other = Some((link, fixed_path(pair.now, 50, Rate::from_mbps(100))));
    pair.offer(1, 1_000_000);
    for path in [1, 0] {
        let (link, other) = pair.other.as_mut().unwrap();
        core::mem::swap(other, &mut pair.client.path);
        core::mem::swap(link, &mut pair.up);
        let onward = Onward { datagram_max: 1_200, ..onward(path) };
        pair.client.lane.leave_path(pair.now, other, onward);
        pair.run_for(Duration::from_millis(1));
    }
    pair.run_until(10, |pair| pair.client.delivered() == 1_000_000);
}

#[test]
fn a_device_that_refuses_what_its_far_end_does_not_take_is_found_out() {
    let mut pair = Pair::new(&gigabit(50));
    pair.client.taken_max = 1_150;
    pair.offer(1, 1_000_000);
    pair.run_until(2, |pair| pair.client.closed().is_some());
    assert_eq!(pair.client.batches, 0);
    let passed = pair.client.lane.passed();
    assert_eq!((reason(&pair.client).0, passed), (CloseCode::PATH_MTU, Some(1_148)));
}

#[test]
fn a_device_that_begins_to_refuse_large_packets_ends_the_lane_or_is_sent_smaller_ones() {
    for (most, ends) in [(1_150, true), (1_300, false)] {
        let mut pair = Pair::new(&gigabit(50).fixed("fixed", Rate::from_mbps(20)));
        pair.offer(1, 10_000_000);
        pair.run_for(Duration::from_millis(500));
        pair.client.taken_max = most;
        pair.run_for(Duration::from_secs(10));
        assert_eq!(pair.client.closed(), ends.then_some(CloseCode::PATH_MTU), "{most}");
        assert_eq!(pair.client.delivered() == 10_000_000, !ends, "{most}");
    }
}

#[test]
fn a_stack_that_takes_nothing_for_a_while_is_not_taken_for_a_small_mtu() {
    let mut pair = Pair::new(&gigabit(50).fixed("fixed", Rate::from_mbps(20)));
    pair.offer(1, 30_000_000);
    for most in [u64::MAX, 0, u64::MAX, 0, u64::MAX] {
        pair.client.taken_max = most;
        pair.run_for(Duration::from_secs(3));
    }
    pair.run_until(20, |pair| pair.client.delivered() == 30_000_000);
    assert_eq!(pair.client.closed(), None);
    assert_eq!(pair.client.lane.stats().datagram, 1_472);
}

#[test]
fn a_policer_that_this_lane_has_emptied_is_not_taken_for_a_small_mtu() {
    for profile in ["fixed", "rbudp"] {
        for (mbps, policed_kbps) in [(300, 500), (900, 300)] {
            let mut options = gigabit(2).fixed(profile, Rate::from_mbps(mbps));
            options.up = options.up.policer(Rate::from_kbps(policed_kbps), Bytes::new(5_000));
            let mut pair = Pair::new(&options);
            pair.offer(1, 3_000_000);
            pair.client.lane.flush();
            pair.run_for(Duration::from_secs(20));
            assert_eq!(pair.client.closed(), None, "{profile} {mbps} {policed_kbps}");
        }
    }
}

#[test]
fn a_stack_that_takes_nothing_is_offered_no_burst_of_closes() {
    let mut pair = Pair::new(&gigabit(50));
    pair.run_for(Duration::from_millis(500));
    let Side { lane, path, plan, .. } = &mut pair.client;
    let mut now = pair.now;
    for _ in 0..9 {
        path.on_offer_refused(now);
    }
    lane.close(now, CloseCode::DONE, "");
    let mut offered = 0;
    while !lane.is_closed() {
        offered += u32::from(lane.poll_transmit(now, path, 44, plan).is_some());
        now += Duration::from_millis(1);
    }
    assert!(offered <= 1, "{offered}");
}
