//! What every registered controller, and the governor beside it, must keep to, whatever they are told.

use longhaul_rate_control::{
    Context, Controller, Delivery, Estimates, Feedback, Governor, Profile, ReceiverState,
    RttEstimator, Sent, Start,
};
use longhaul_units::{Bytes, Duration, Instant, Losses, Rate};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

const PACKET: u64 = 1_500;

#[derive(Clone, Debug)]
enum Step {
    Sent(Sent),
    Feedback(Feedback, ReceiverState, Option<Duration>),
    Silence(u64),
    Timer,
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0), 6 => 0u64..2_000, 1 => 0u64..u64::MAX / 1_000_000_000]
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![1 => any::<u64>(), 6 => 1_000u64..100_000_000_000].prop_map(Rate::from_bps)
}

fn delivery() -> impl Strategy<Value = Delivery> {
    (rate(), 1u64..2_000_000, 0u64..2_000_000, any::<bool>()).prop_map(
        |(rate, us, sent_us, application_limited)| Delivery {
            rate,
            interval: Duration::from_micros(us.max(sent_us)),
            sent_over: Duration::from_micros(sent_us),
            application_limited,
        },
    )
}

fn receiver() -> impl Strategy<Value = ReceiverState> {
    (prop::option::of(any::<u64>()), prop::option::of(any::<u64>())).prop_map(
        |(buffer, capacity)| ReceiverState {
            socket_buffer: buffer.map(Bytes::new),
            capacity: capacity.map(Rate::from_bps),
        },
    )
}

fn feedback() -> impl Strategy<Value = Feedback> {
    let lost = (count(), count(), count());
    let lost = lost.prop_map(|(unknown, socket, host)| Losses {
        unknown,
        socket,
        host,
        ..Losses::default()
    });
    let path = (
        prop::option::of(0u64..20_000_000),
        prop::option::of(prop_oneof![any::<i64>(), 0i64..1_000_000]),
        prop::option::of(delivery()),
    );
    (count(), lost, count(), count(), count(), path).prop_map(
        |(acked, lost, spurious_packets, marked_packets, in_flight, path)| Feedback {
            acked_bytes: acked.saturating_mul(PACKET),
            acked_packets: acked,
            lost,
            lost_bytes: lost.total().saturating_mul(PACKET),
            spurious_packets,
            marked_packets,
            in_flight,
            rtt: path.0.map(Duration::from_micros),
            one_way_delta: path.1,
            delivery: path.2,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let rtt = prop::option::of((0u64..5_000_000).prop_map(Duration::from_micros));
    prop_oneof![
        3 => (count(), count(), any::<bool>()).prop_map(|(bytes, in_flight, limited)| {
            Step::Sent(Sent { bytes, in_flight, application_limited: limited })
        }),
        10 => (feedback(), receiver(), rtt)
            .prop_map(|(feedback, receiver, rtt)| Step::Feedback(feedback, receiver, rtt)),
        1 => count().prop_map(Step::Silence),
        1 => Just(Step::Timer),
    ]
}

fn check(
    profile: &Profile,
    controller: &dyn Controller,
    governor: &Governor,
    estimates: &Estimates,
) {
    let metrics = controller.metrics();
    for pacing in [controller.pacing(), governor.allow(controller.pacing()).0] {
        assert!(pacing.rate > Rate::ZERO, "{}: a rate of zero never ends", profile.name);
        assert!(pacing.burst >= PACKET, "{}: a packet must fit the burst", profile.name);
        assert!(pacing.burst <= 1 << 20, "{}: a burst of {}", profile.name, pacing.burst);
        if let Some(window) = pacing.window {
            assert!(window >= 2 * PACKET, "{}: a window of {window}", profile.name);
        }
    }
    assert!(estimates.chance_ppm().is_none_or(|ppm| ppm <= 1_000_000));
    assert!(!metrics.state.is_empty());
    if let Some(at) = controller.next_timeout() {
        assert!(at < Instant::FAR_FUTURE);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_that_feedback_says_breaks_a_controller(
        steps in prop::collection::vec((step(), 0u64..50_000_000), 1..150),
        first_rtt in 1u64..1_000_000,
        first_now in prop_oneof![Just(0u64), any::<u32>().prop_map(u64::from)],
    ) {
        for profile in Profile::all() {
            let mut now = Instant::from_nanos(first_now);
            let start = Start { now, packet: PACKET, rate: Some(Rate::from_mbps(50)) };
            let mut controller = profile.controller(&start).unwrap();
            let mut estimates = Estimates::new(now, PACKET);
            let mut rtt = RttEstimator::new(Duration::from_micros(first_rtt));
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(first_rtt);
            let mut governor = Governor::new(now, true);
            governor.set_share(first_rtt as u32);
            check(profile, &*controller, &governor, &estimates);
            for (step, wait) in &steps {
                now += Duration::from_nanos(*wait);
                if let Step::Feedback(feedback, _, sample) = step {
                    let sample = sample.or(feedback.rtt);
                    sample.into_iter().for_each(|sample| rtt.update(now, sample));
                }
                let told = match step {
                    Step::Feedback(feedback, ..) => estimates.on_feedback(now, &rtt, feedback),
                    _ => Feedback::default(),
                };
                let mut cx =
                    Context { now, rtt: &rtt, estimates: &mut estimates, rng: &mut rng };
                match step {
                    Step::Sent(sent) => controller.on_sent(&mut cx, sent),
                    Step::Feedback(..) => controller.on_feedback(&mut cx, &told),
                    Step::Silence(in_flight) => controller.on_probe_timeout(&mut cx, *in_flight),
                    Step::Timer => controller.on_timeout(&mut cx),
                }
                governor.set_controller_bound(controller.metrics().bound);
                match step {
                    Step::Sent(sent) => governor.on_sent(sent.in_flight),
                    Step::Feedback(_, receiver, _) => {
                        let wanted = controller.pacing().rate;
                        governor.on_feedback(now, &rtt, &estimates, (&told, receiver), wanted);
                    }
                    Step::Silence(_) => governor.on_refused(now, rtt.smoothed(), Rate::ZERO),
                    Step::Timer => {}
                }
                check(profile, &*controller, &governor, &estimates);
            }
        }
    }
}

/// After any nonsense, an honest path is filled again.
#[test]
fn an_honest_path_heals_what_lies_did() {
    let mut now = Instant::from_nanos(1);
    let start = Start { now, packet: PACKET, rate: None };
    let mut controller = Profile::by_name("auto").unwrap().controller(&start).unwrap();
    let round_trip = Duration::from_millis(20);
    let mut rtt = RttEstimator::new(round_trip);
    let mut estimates = Estimates::new(now, PACKET);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let tick = Duration::from_millis(5);
    let honest = |rate: Rate| Feedback {
        acked_packets: rate.bytes_in(tick) / PACKET,
        acked_bytes: rate.bytes_in(tick),
        rtt: Some(round_trip),
        one_way_delta: Some(0),
        delivery: Some(Delivery {
            rate,
            interval: tick,
            sent_over: tick,
            application_limited: false,
        }),
        ..Feedback::default()
    };
    let mut tell = |feedback: &Feedback, now: Instant, controller: &mut dyn Controller| {
        feedback.rtt.into_iter().for_each(|sample| rtt.update(now, sample));
        let told = estimates.on_feedback(now, &rtt, feedback);
        let mut cx = Context { now, rtt: &rtt, estimates: &mut estimates, rng: &mut rng };
        controller.on_sent(&mut cx, &Sent::default());
        controller.on_feedback(&mut cx, &told);
    };
    for _ in 0..200 {
        now += tick;
        let lost = Losses { unknown: 1_000, ..Losses::default() };
        let lie = Feedback { lost, ..honest(Rate::from_kbps(100)) };
        tell(&lie, now, &mut *controller);
    }
    let link = Rate::from_mbps(400);
    for _ in 0..4_000 {
        now += tick;
        let sent = controller.pacing().rate.min(link);
        tell(&honest(sent), now, &mut *controller);
    }
    assert!(controller.pacing().rate >= link.scale(9, 10), "{:?}", controller.pacing());
}
