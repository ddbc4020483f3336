//! Limits that a receiving host asks for before it loses anything.

use longhaul_rate_control::HostLimit;

use super::*;
use crate::path::Suspension;

impl Pair {
    /// The server asks for silence; a time of zero lifts it.
    fn suspend(&mut self, order: u64, millis: u64) {
        let until = self.now + Duration::from_millis(millis);
        self.server.lane.suspend_peer(self.now, Suspension { order, until });
    }

    fn limit(&mut self, mbps: u64, cause: Bottleneck, millis: u64) {
        let until = self.now + Duration::from_millis(millis);
        let limit = HostLimit { rate: Rate::from_mbps(mbps), cause, until };
        self.server.lane.set_limit(self.now, Some(limit));
    }

    /// Packets with object bytes that the client has sent, of both kinds.
    fn sent(&self) -> [u64; 2] {
        let stats = self.client.lane.stats();
        [stats.fresh_bytes_sent, stats.packets_resent]
    }

    fn run_millis(&mut self, millis: u64) {
        self.run_for(Duration::from_millis(millis));
    }

    /// Time for which each bound was active that is asked for, in milliseconds.
    fn limited_by(&self, bound: Bottleneck) -> u128 {
        self.client.path.governor().time_limited_by(bound).as_millis()
    }
}

fn lossy(profile: &'static str) -> Pair {
    let mut pair = Pair::new(&gigabit(20).loss(10).fixed(profile, Rate::from_mbps(100)));
    pair.offer(1, 60_000_000);
    pair.run_millis(200);
    pair
}

#[test]
fn a_suspend_holds_new_bytes_and_resends_and_expires() {
    for profile in ["fixed", "rbudp", "fobs"] {
        let mut pair = lossy(profile);
        pair.suspend(1, 300);
        pair.run_millis(40);
        let before = pair.sent();
        pair.run_millis(200);
        assert_eq!(pair.sent(), before, "{profile}");
        assert!(pair.client.lane.stats().lost > 0);
        pair.run_millis(200);
        assert!(pair.sent() > before, "{profile}");
    }
}

#[test]
fn a_suspend_that_is_lost_is_sent_again_and_so_is_its_end() {
    let mut options = gigabit(20).fixed("fixed", Rate::from_mbps(100));
    options.down = options.down.loss(Probability::from_percent(40));
    let mut pair = Pair::new(&options);
    pair.offer(1, 60_000_000);
    pair.run_millis(200);
    pair.suspend(1, 2_000);
    pair.run_millis(150);
    let before = pair.sent();
    pair.run_millis(300);
    assert_eq!(pair.sent(), before);
    pair.suspend(2, 0);
    pair.run_millis(150);
    assert!(pair.sent() > before, "lifted more than a second early");
    let before = pair.sent();
    pair.suspend(1, 3_000);
    pair.run_millis(150);
    assert!(pair.sent() > before, "an older order");
}

#[test]
fn an_order_ends_and_is_sent_no_more() {
    let mut pair = lossy("fixed");
    pair.suspend(1, 100);
    pair.run_millis(300);
    assert_eq!(pair.server.lane.announced.order_due(), None);
    pair.suspend(2, 0);
    pair.run_millis(300);
    assert_eq!(pair.server.lane.announced.order_due(), None);
}

#[test]
fn a_suspend_is_the_receivers_time_and_no_rate_of_the_path() {
    let mut pair = Pair::new(&gigabit(20));
    pair.offer(1, 400_000_000);
    pair.run_millis(800);
    let before = pair.client.path.estimates().bandwidth().unwrap();
    for order in 1..=10 {
        pair.suspend(order, 50);
        pair.run_millis(100);
    }
    assert_eq!(pair.limited_by(Bottleneck::SenderCpu), 0);
    let suspended = pair.limited_by(Bottleneck::ReceiverCpu);
    assert!((490..=520).contains(&suspended), "{suspended} ms");
    let after = pair.client.path.estimates().bandwidth().unwrap();
    assert!(after > before.scale(9, 10), "{before} before, {after} behind");
}

#[test]
fn a_limit_holds_where_it_is_heeded_by_the_name_of_its_cause_and_expires() {
    for (profile, heeds) in [("fixed", true), ("auto", true), ("fobs", false)] {
        let mut pair = Pair::new(&gigabit(20).fixed(profile, Rate::from_mbps(400)));
        pair.offer(1, 400_000_000);
        pair.run_millis(500);
        pair.limit(50, Bottleneck::ReceiverDisk, 300);
        pair.run_millis(100);
        let before = pair.sent()[0];
        let (rate, bound) = pair.client.path.allowed();
        assert_eq!(bound == Bottleneck::ReceiverDisk, heeds, "{profile}: {bound}");
        assert_eq!(rate == Rate::from_mbps(50), heeds, "{profile}");
        pair.run_millis(150);
        let slow = pair.sent()[0] - before;
        assert_eq!(slow < 1_000_000, heeds, "{profile}: {slow} bytes");
        pair.run_millis(100);
        assert_ne!(pair.client.path.allowed().1, Bottleneck::ReceiverDisk, "over");
        assert!(pair.client.path.governor().expires().is_none());
    }
}

#[test]
fn a_limit_ends_without_another_report_and_a_report_without_one_lifts_it() {
    let mut pair = Pair::new(&gigabit(20).fixed("fixed", Rate::from_mbps(400)));
    pair.offer(1, 400_000_000);
    pair.run_millis(300);
    pair.limit(0, Bottleneck::Network, 5_000);
    pair.run_millis(100);
    let bound = pair.client.path.allowed().1;
    assert_eq!(bound, Bottleneck::ReceiverCpu, "the network is none of a host's causes");
    let before = pair.sent()[0];
    pair.run_millis(200);
    assert!(pair.sent()[0] > before, "no rate is a suspend");
    pair.server.lane.set_limit(pair.now, None);
    pair.run_millis(100);
    assert_eq!(pair.client.path.allowed().0, Rate::from_mbps(400));
    pair.limit(50, Bottleneck::ReceiverBuffer, 200);
    pair.run_millis(50);
    // From now on nothing comes from the receiver.
    let allowed = pair.client.path.allowed();
    assert_eq!(allowed, (Rate::from_mbps(50), Bottleneck::ReceiverBuffer));
    let later = pair.now + Duration::from_millis(200);
    pair.client.path.handle_timeout(later);
    assert_eq!(pair.client.path.allowed().0, Rate::from_mbps(400));
}
