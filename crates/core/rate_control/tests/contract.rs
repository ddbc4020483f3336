//! What every registered controller, and the governor beside it, must keep to, whatever they are told.

#[path = "contract/path.rs"]
mod path;

use longhaul_rate_control::{
    ChosenProfile, Context, Controller, Delivery, Estimates, Feedback, Governor, HostLimit, Known,
    PathMemory, Profile, ReceiverState, RttEstimator, Sent, Span,
};
use longhaul_units::{Bottleneck, Bytes, Duration, Instant, Losses, Rate};
use path::{Link, Path};
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
    let told = || prop::option::of(any::<u64>());
    (told(), told(), told()).prop_map(|(buffer, capacity, limit)| ReceiverState {
        socket_buffer: buffer.map(Bytes::new),
        capacity: capacity.map(Rate::from_bps),
        limit: limit.map(|word| HostLimit {
            rate: Rate::from_bps(word >> 20),
            cause: Bottleneck::ReceiverBuffer,
            until: Instant::from_nanos(word << 40 >> 24),
        }),
    })
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

fn memory() -> impl Strategy<Value = PathMemory> {
    let bps = || prop_oneof![any::<u64>(), 0u64..10_000_000_000].prop_map(Rate::from_bps);
    let round_trip = prop_oneof![any::<u64>(), 0u64..500_000_000].prop_map(Duration::from_nanos);
    let chance_ppm = prop_oneof![any::<u32>(), 0u32..20_000];
    ((bps(), bps()), round_trip, chance_ppm, count(), any::<u64>()).prop_map(
        |(band, round_trip, chance_ppm, packet, age)| {
            let age = Duration::from_nanos(age);
            PathMemory { band, round_trip, chance_ppm, packet, age }
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
        memory in prop::option::of(memory()),
    ) {
        for profile in Profile::all() {
            let mut now = Instant::from_nanos(first_now);
            let chosen = Profile::wished(Some(profile.name), Some(Rate::from_mbps(50)), []);
            let rate = Rate::from_mbps(u64::from(first_rtt as u16));
            let known = Known { rate, round_trip: Duration::from_micros(first_rtt) };
            let known = (first_rtt % 2 == 0).then_some(known);
            let mut controller = chosen.unwrap().controller(now, PACKET, known);
            let mut estimates = Estimates::new(now, PACKET);
            let mut rtt = RttEstimator::new(Duration::from_micros(first_rtt));
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(first_rtt);
            let mut governor = Governor::new(now, true);
            governor.set_share(first_rtt as u32);
            memory.iter().for_each(|memory| controller.recall(memory));
            check(profile, &*controller, &governor, &estimates);
            for (step, wait) in &steps {
                let wait = &Duration::from_nanos(*wait);
                now += *wait;
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
                    Step::Feedback(..) => {
                        controller.on_feedback(&mut cx, &told);
                        let span =
                            Span { acked_packets: told.acked_packets, lost: told.lost, took: *wait };
                        controller.on_segment(&mut cx, &span);
                        controller.on_chunk(&mut cx, &span);
                    }
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
    let chosen = Profile::wished(Some("auto"), None, []).unwrap();
    let mut controller = chosen.controller(now, PACKET, None);
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

/// Profiles that send as the user says, whatever becomes of it.
const TOLD: [&str; 5] = ["fixed", "rbudp", "trc", "tsunami", "unlimited"];

/// Those that find their rate.
fn finders() -> impl Iterator<Item = ChosenProfile> {
    let names = Profile::names().filter(|name| !TOLD.contains(name));
    names.map(|name| Profile::wished(Some(name), None, []).expect("a profile"))
}

/// Those whose paper judges by whole segments, or chunks, however long one takes.
const PATIENT: [&str; 2] = ["fobs-linear", "fobs-state"];

const SECOND: Duration = Duration::from_secs(1);
const RATE: Rate = Rate::from_mbps(100);

fn link(rate: Rate) -> Link {
    let round_trip = Duration::from_millis(20);
    Link { rate, round_trip, queue: rate.bytes_in(round_trip).max(8 * PACKET) }
}

#[test]
fn each_fills_paths_of_many_rates_from_nothing() {
    for chosen in finders() {
        for (rate, seconds) in [(Rate::from_mbps(2), 10), (RATE, 10), (Rate::from_gbps(2), 12)] {
            let mut path = Path::new(&chosen, link(rate), None);
            path.run(SECOND * seconds);
            let used = path.run(SECOND * 5) * 100 / rate.bytes_in(SECOND * 5);
            assert!(used >= 70, "{}: {used} % of {rate}", chosen.profile.name);
        }
    }
}

/// A path that carries a tenth of what it carried makes everybody slower, before long.
#[test]
fn each_comes_down_to_what_a_path_still_carries() {
    for chosen in finders().filter(|chosen| !PATIENT.contains(&chosen.profile.name)) {
        let mut path = Path::new(&chosen, link(RATE), None);
        path.run(SECOND * 10);
        path.set_link(link(RATE.scale(1, 10)));
        path.run(SECOND * 5);
        let (sent, lost) = (path.sent, path.lost);
        path.run(SECOND * 5);
        let (sent, lost) = ((path.sent - sent) / PACKET, path.lost - lost);
        assert!(lost * 10 <= sent, "{}: {lost} of {sent} lost", chosen.profile.name);
    }
}

#[test]
fn each_is_silent_in_an_outage_and_fills_the_path_behind_it() {
    for chosen in finders() {
        let name = chosen.profile.name;
        let mut path = Path::new(&chosen, link(RATE), None);
        path.run(SECOND * 5);
        path.dark_until = path.now + SECOND * 3;
        path.run(SECOND);
        let sent = path.sent;
        path.run(SECOND * 2);
        assert!(path.sent - sent < 50 * PACKET, "{name}: {} into the dark", path.sent - sent);
        path.run(SECOND * 10);
        let used = path.run(SECOND * 5) * 100 / RATE.bytes_in(SECOND * 5);
        assert!(used >= 70, "{name}: {used} % behind an outage");
    }
}

/// Who takes over goes on at the known rate: no burst, no start-up, and no gap.
#[test]
fn each_goes_on_at_a_known_rate() {
    for chosen in finders() {
        let name = chosen.profile.name;
        let link = link(RATE);
        let known = Known { rate: RATE.scale(3, 4), round_trip: link.round_trip };
        let mut path = Path::new(&chosen, link, Some(known));
        let pacing = path.controller.pacing();
        assert!(pacing.rate <= known.rate.scale(21, 20), "{name}: {}", pacing.rate);
        assert!(pacing.burst <= 10 * PACKET, "{name}: a burst of {}", pacing.burst);
        assert_ne!(path.controller.metrics().bound, Bottleneck::StartUp, "{name}");
        path.run(known.round_trip * 2);
        let share = path.run(SECOND / 5) * 100 / known.rate.bytes_in(SECOND / 5);
        assert!((70..=134).contains(&share), "{name}: {share} % of the known rate");
        assert_eq!(path.lost, 0, "{name}");
    }
}

#[test]
fn each_does_the_same_again() {
    for chosen in finders() {
        let run = || {
            let mut path = Path::new(&chosen, link(RATE), None);
            path.run(SECOND * 8);
            (path.sent, path.lost, path.controller.pacing())
        };
        assert_eq!(run(), run(), "{}", chosen.profile.name);
    }
}
