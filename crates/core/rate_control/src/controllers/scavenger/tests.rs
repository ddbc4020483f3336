use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use longhaul_units::Losses;

use super::*;
use crate::controller::Known;
use crate::estimates::Estimates;
use crate::profile::Profile;
use crate::rtt::RttEstimator;

const PACKET: u64 = 1_500;
const BASE: Duration = Duration::from_millis(40);

/// A flow of a hundred packets that took over, and that gets eight reports a round trip.
struct Flow {
    now: Instant,
    rtt: RttEstimator,
    estimates: Estimates,
    rng: Xoshiro256PlusPlus,
    scavenger: Scavenger,
}

impl Flow {
    fn new() -> Self {
        let now = Instant::from_nanos(1);
        let parameters = Profile::wished(Some("scavenger"), None, []).unwrap().parameters;
        let rate = Rate::from_bytes_over(100 * PACKET, BASE);
        let known = Some(Known { rate, round_trip: BASE });
        let start = Start { now, packet: PACKET, rate: None, known, parameters };
        Self {
            now,
            rtt: RttEstimator::new(BASE),
            estimates: Estimates::new(now, PACKET),
            rng: Xoshiro256PlusPlus::seed_from_u64(1),
            scavenger: Scavenger::new(&start),
        }
    }

    /// Packets of the window after a round trip with so long a queue.
    fn round(&mut self, queue: Duration, lost: u64) -> u64 {
        for _ in 0..8 {
            self.now += BASE / 8;
            let window = self.scavenger.window;
            let feedback = Feedback {
                acked_bytes: window / 8,
                acked_packets: window / 8 / PACKET,
                lost: Losses { unknown: lost, ..Losses::default() },
                in_flight: window,
                rtt: Some(BASE + queue),
                ..Feedback::default()
            };
            self.rtt.update(self.now, BASE);
            let classified = self.estimates.on_feedback(self.now, &self.rtt, &feedback);
            let Self { now, rtt, estimates, rng, scavenger } = self;
            let mut cx = Context { now: *now, rtt, estimates, rng };
            let sent = Sent { bytes: window, in_flight: window, ..Sent::default() };
            scavenger.on_sent(&mut cx, &sent);
            scavenger.on_feedback(&mut cx, &classified);
        }
        self.scavenger.window / PACKET
    }
}

#[test]
fn a_third_of_a_packet_a_round_trip_below_the_target() {
    let mut flow = Flow::new();
    (0..30).for_each(|_| assert!(flow.round(Duration::ZERO, 0) >= 100));
    let after = flow.scavenger.window / PACKET;
    // 1 / GAIN = ceil(2 x 60 / 40)
    assert!((109..=110).contains(&after), "{after}");
}

#[test]
fn above_the_target_it_falls_by_the_share_that_is_too_much() {
    let mut flow = Flow::new();
    assert_eq!(flow.round(Duration::ZERO, 0), 100);
    // The filter takes half a round to believe it.
    flow.round(Duration::from_millis(75), 0);
    let before = flow.scavenger.window / PACKET;
    let after = flow.round(Duration::from_millis(75), 0);
    let share = after * 100 / before;
    assert!((76..=80).contains(&share), "a quarter, compounded: {share} %");
    let before = flow.round(Duration::from_millis(500), 0);
    let after = flow.round(Duration::from_millis(500), 0);
    let share = after * 100 / before;
    assert!((55..=65).contains(&share), "no more than half, compounded: {share} %");
}

#[test]
fn losses_halve_it_once_a_round_trip() {
    let mut flow = Flow::new();
    flow.round(Duration::ZERO, 0);
    assert!((49..=51).contains(&flow.round(Duration::ZERO, 1)));
}

#[test]
fn it_slows_down_for_two_round_trips_and_comes_back_to_where_it_was() {
    let mut flow = Flow::new();
    let rounds: [u64; 230] = [0; 230].map(|_| flow.round(Duration::ZERO, 0));
    let slow = rounds.iter().filter(|window| **window == LEAST_PACKETS).count();
    assert!((2..=5).contains(&slow), "{slow} round trips");
    let last = rounds[rounds.len() - 1];
    assert!(last >= 150, "it was at 160: {last}");
    assert!(matches!(flow.scavenger.phase, Phase::Avoidance(_)));
}

/// A queue that overflows at 30 ms is kept below 10.
#[test]
fn a_queue_that_overflows_before_the_target_lowers_it() {
    let mut flow = Flow::new();
    let ms = Duration::from_millis;
    assert_eq!(flow.scavenger.target(), ms(60));
    flow.scavenger.full = Some(ms(30));
    assert_eq!(flow.scavenger.target(), ms(10));
    assert!(flow.round(ms(0), 0) >= 100 && flow.round(ms(8), 0) >= 100);
    flow.round(ms(15), 0);
    let before = flow.scavenger.window;
    assert!(flow.round(ms(15), 0) * PACKET < before, "half too much");
    // A shorter one is not believed at once, a longer one is.
    flow.scavenger.on_overflow();
    let shorter = flow.scavenger.full.unwrap();
    assert_eq!(shorter, ms(30) - ms(15) / 4);
    flow.round(ms(90), 0);
    flow.round(ms(90), 0);
    flow.scavenger.on_overflow();
    assert_eq!((flow.scavenger.full, flow.scavenger.target()), (Some(ms(90)), ms(30)));
}
