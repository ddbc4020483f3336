use longhaul_units::Duration;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use longhaul_units::Losses;

use super::*;
use crate::estimates::Estimates;
use crate::profile::Profile;
use crate::rtt::RttEstimator;

const PACKET: u64 = 1_500;
const ROUND: Duration = Duration::from_millis(40);

/// A controller that gets eight reports a round trip, and whose window is always full.
struct Flow {
    now: Instant,
    rtt: RttEstimator,
    estimates: Estimates,
    rng: Xoshiro256PlusPlus,
    cubic: Cubic,
}

impl Flow {
    fn new() -> Self {
        let now = Instant::from_nanos(1);
        let parameters = Profile::wished(Some("cubic"), None, []).unwrap().parameters;
        let start = Start { now, packet: PACKET, rate: None, known: None, parameters };
        Self {
            now,
            rtt: RttEstimator::new(ROUND),
            estimates: Estimates::new(now, PACKET),
            rng: Xoshiro256PlusPlus::seed_from_u64(1),
            cubic: Cubic::new(&start),
        }
    }

    fn window(&self) -> u64 {
        self.cubic.window.bytes() / PACKET
    }

    fn report(&mut self, lost: u64, marked_packets: u64) {
        self.now += ROUND / 8;
        self.rtt.update(self.now, ROUND);
        let window = self.cubic.window.bytes();
        let lost = Losses { unknown: lost, ..Losses::default() };
        let acked_packets = (window / PACKET / 8).max(1) - lost.total().min(1);
        let feedback = Feedback {
            acked_packets,
            acked_bytes: acked_packets * PACKET,
            lost_bytes: lost.total() * PACKET,
            lost,
            marked_packets,
            in_flight: window,
            rtt: Some(ROUND),
            ..Feedback::default()
        };
        let classified = self.estimates.on_feedback(self.now, &self.rtt, &feedback);
        let Self { now, rtt, estimates, rng, cubic } = self;
        let mut cx = Context { now: *now, rtt, estimates, rng };
        let sent = Sent { bytes: window, in_flight: window, ..Sent::default() };
        cubic.on_sent(&mut cx, &sent);
        cubic.on_feedback(&mut cx, &classified);
    }

    fn silence(&mut self, time: Duration) {
        self.now += time;
        let Self { now, rtt, estimates, rng, cubic } = self;
        cubic.on_probe_timeout(&mut Context { now: *now, rtt, estimates, rng }, 0);
    }
}

#[test]
fn one_cut_a_round_trip_and_a_smaller_one_for_marks() {
    let mut flow = Flow::new();
    (0..40).for_each(|_| flow.report(0, 0));
    let before = flow.window();
    assert!(before > 200, "slow start doubles each round trip: {before}");
    flow.report(5, 0);
    assert_eq!(flow.window(), before * 7 / 10);
    assert_eq!(flow.cubic.metrics().state, "avoidance");
    (0..8).for_each(|_| flow.report(5, 0));
    assert!(flow.window() >= before * 7 / 10, "of the same round trip");
    (0..8).for_each(|_| flow.report(0, 0));
    let before = flow.cubic.window.bytes();
    flow.report(0, 3);
    assert_eq!(flow.cubic.window.bytes(), before * 85 / 100);
}

#[test]
fn it_is_paced_at_twice_the_window_in_slow_start_and_a_quarter_above_it_then() {
    let mut flow = Flow::new();
    let first = flow.cubic.pacing();
    (0..6).for_each(|_| flow.report(0, 0));
    assert_eq!(flow.cubic.pacing(), first, "until all of the first flight is reported");
    (0..2).for_each(|_| flow.report(0, 0));
    let rate = |flow: &Flow| Rate::from_bytes_over(flow.cubic.window.bytes(), ROUND);
    assert_eq!(flow.cubic.pacing().rate, rate(&flow).scale(2, 1));
    (0..30).for_each(|_| flow.report(0, 0));
    flow.report(1, 0);
    assert_eq!(flow.cubic.pacing().rate, rate(&flow).scale(5, 4));
}

#[test]
fn a_long_silence_restarts_the_window_below_what_was_lost() {
    let mut flow = Flow::new();
    (0..40).for_each(|_| flow.report(0, 0));
    let before = flow.window();
    flow.silence(ROUND);
    assert_eq!(flow.window(), before, "a busy host");
    flow.silence(ROUND * 5);
    assert_eq!(flow.window(), LEAST_PACKETS);
    flow.report(500, 0);
    assert!(flow.window() >= LEAST_PACKETS, "that was known");
    (0..140).for_each(|_| flow.report(0, 0));
    let after = flow.window();
    assert!((before * 6 / 10..before * 8 / 10).contains(&after), "{after} of {before}");
}
