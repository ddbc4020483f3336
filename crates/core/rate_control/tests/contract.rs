//! Contract of every registered controller, and of the governor beside it, under any input.

#[path = "contract/path.rs"]
mod path;

use longhaul_rate_control::{
    ChosenProfile, Context, Controller, Delivery, Estimates, Feedback, Governor, HostLimit, Known,
    Parameter, PathMemory, Profile, ReceiverState, RttEstimator, Sent, Span,
};
use longhaul_units::{Bottleneck, Bytes, Duration, Instant, Losses, Rate};
use path::{Link, Path};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

const PACKET: u64 = 1_500;
/// The longest that start-up sends to measure a link.
const TRAIN: u64 = 1_024 * PACKET;

#[derive(Clone, Debug)]
enum Step {
    Sent(Sent),
    Feedback(Box<Feedback>, ReceiverState, Option<Duration>),
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
    let figure = || prop::option::of(any::<u64>());
    (figure(), figure(), figure()).prop_map(|(buffer, capacity, limit)| ReceiverState {
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
            capacity: None,
        },
    )
}

fn memory() -> impl Strategy<Value = PathMemory> {
    let bps = || prop_oneof![any::<u64>(), 0u64..10_000_000_000].prop_map(Rate::from_bps);
    let round_trip = prop_oneof![any::<u64>(), 0u64..500_000_000].prop_map(Duration::from_nanos);
    let chance_ppm = prop_oneof![any::<u32>(), 0u32..20_000];
    let best_profile = prop::option::of(prop::sample::select(Profile::names().collect::<Vec<_>>()));
    ((bps(), bps()), round_trip, chance_ppm, count(), any::<u64>(), best_profile).prop_map(
        |(band, round_trip, chance_ppm, packet, age, best_profile)| {
            let age = Duration::from_nanos(age);
            PathMemory { band, round_trip, chance_ppm, packet, age, best_profile }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let rtt = prop::option::of((0u64..5_000_000).prop_map(Duration::from_micros));
    prop_oneof![
        3 => (count(), count(), any::<bool>(), any::<bool>(), 0u64..1 << 40).prop_map(
            |(bytes, in_flight, application_limited, control, late)| {
                let late_by = Duration::from_nanos(late);
                Step::Sent(Sent { bytes, in_flight, application_limited, control, late_by })
            }
        ),
        10 => (feedback(), receiver(), rtt)
            .prop_map(|(feedback, receiver, rtt)| Step::Feedback(feedback.into(), receiver, rtt)),
        1 => count().prop_map(Step::Silence),
        1 => Just(Step::Timer),
    ]
}

/// Of some parameters, by the place of each, figures from one bound to the other.
fn figures() -> impl Strategy<Value = Vec<(usize, u64)>> {
    let figure = prop_oneof![2 => Just(0), 2 => Just(u64::MAX), 6 => any::<u64>()];
    prop::collection::vec((0usize..32, figure), 0..4)
}

/// A profile with these, and the user's rate.
fn chosen(profile: &Profile, rate: Rate, figures: &[(usize, u64)]) -> ChosenProfile {
    let known = profile.controller.parameters();
    let words = figures.iter().filter(|_| !known.is_empty()).map(|(place, figure)| {
        let Parameter { name, unit, least, most, .. } = known[place % known.len()];
        let figure = match *figure {
            u64::MAX => most,
            figure => least + figure % (most - least + 1),
        };
        format!("{name}={}", unit.exact(figure))
    });
    let rate = (profile.needs_rate || rate.as_bps().is_multiple_of(2)).then_some(rate);
    let wished = |words: &[String]| {
        Profile::wished(Some(profile.name), rate, words.iter().map(String::as_str))
    };
    // One that is drawn twice, or does not go with another, is left out.
    let fits = |mut given: Vec<String>, word| {
        given.push(word);
        if wished(&given).is_err() {
            given.pop();
        }
        given
    };
    wished(&words.fold(Vec::new(), fits)).expect("each was looked at")
}

/// Rates that a user may ask for, up to what is clamped.
fn wanted() -> impl Strategy<Value = Rate> {
    let usual = (8_000u64..2_000_000_000_000).prop_map(Rate::from_bps);
    prop_oneof![6 => usual, 1 => Just(Profile::RATE_LEAST), 1 => Just(Rate::MAX)]
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
        assert!(pacing.burst <= TRAIN, "{}: a burst of {}", profile.name, pacing.burst);
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
        (wanted, figures) in (wanted(), figures()),
    ) {
        for profile in Profile::all() {
            let mut now = Instant::from_nanos(first_now);
            let chosen = chosen(profile, wanted, &figures);
            let rate = Rate::from_mbps(u64::from(first_rtt as u16));
            let known = Known { rate, round_trip: Duration::from_micros(first_rtt) };
            let known = (first_rtt % 2 == 0).then_some(known);
            let mut controller = chosen.controller(now, PACKET, known);
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
                let classified = match step {
                    Step::Feedback(feedback, receiver, _) => {
                        let feedback = Feedback { capacity: receiver.capacity, ..**feedback };
                        estimates.on_feedback(now, &rtt, &feedback)
                    }
                    _ => Feedback::default(),
                };
                let mut cx =
                    Context { now, rtt: &rtt, estimates: &mut estimates, rng: &mut rng };
                match step {
                    Step::Sent(sent) => controller.on_sent(&mut cx, sent),
                    Step::Feedback(..) => {
                        controller.on_feedback(&mut cx, &classified);
                        let span =
                            Span { acked_packets: classified.acked_packets, lost: classified.lost, took: *wait };
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
                        governor.on_feedback(now, &rtt, &estimates, (&classified, receiver), wanted);
                    }
                    Step::Silence(_) => governor.on_refused(now, rtt.smoothed(), Rate::ZERO),
                    Step::Timer => {}
                }
                check(profile, &*controller, &governor, &estimates);
            }
        }
    }
}

/// A controller and its inputs as sums: no packet is looked at.
struct Flow {
    now: Instant,
    tick: Duration,
    controller: Box<dyn Controller>,
    governor: Governor,
    rtt: RttEstimator,
    estimates: Estimates,
    rng: Xoshiro256PlusPlus,
}

impl Flow {
    /// One that gets feedback each `tick`, a quarter of the round trip.
    fn new(chosen: &ChosenProfile, tick: Duration) -> Self {
        let now = Instant::from_nanos(1);
        Self {
            now,
            tick,
            controller: chosen.controller(now, PACKET, None),
            governor: Governor::new(now, chosen.profile.heeds_receiver),
            rtt: RttEstimator::new(tick * 4),
            estimates: Estimates::new(now, PACKET),
            rng: Xoshiro256PlusPlus::seed_from_u64(1),
        }
    }

    /// So much arrived since, and so much was lost.
    fn honest(&mut self, rate: Rate, lost: Rate) {
        let (bytes, lost) = (rate.bytes_in(self.tick), lost.bytes_in(self.tick));
        let unknown = lost / PACKET;
        self.tell(&Feedback {
            acked_packets: bytes / PACKET,
            acked_bytes: bytes,
            lost: Losses { unknown, ..Losses::default() },
            lost_bytes: lost,
            in_flight: bytes * 4,
            rtt: Some(self.tick * 4),
            one_way_delta: Some(0),
            delivery: Some(Delivery {
                rate,
                interval: self.tick,
                sent_over: self.tick,
                application_limited: false,
            }),
            ..Feedback::default()
        });
    }

    fn tell(&mut self, feedback: &Feedback) {
        self.now += self.tick;
        let Self { now, controller, rtt, estimates, rng, .. } = self;
        feedback.rtt.into_iter().for_each(|sample| rtt.update(*now, sample));
        let classified = estimates.on_feedback(*now, rtt, feedback);
        let mut cx = Context { now: *now, rtt, estimates, rng };
        let bytes = (feedback.acked_bytes + feedback.lost_bytes).max(PACKET);
        let in_flight = feedback.in_flight;
        controller.on_sent(&mut cx, &Sent { bytes, in_flight, ..Sent::default() });
        if controller.next_timeout().is_some_and(|at| at <= *now) {
            controller.on_timeout(&mut cx);
        }
        controller.on_feedback(&mut cx, &classified);
        let span = Span {
            acked_packets: classified.acked_packets,
            lost: classified.lost,
            took: self.tick,
        };
        controller.on_segment(&mut cx, &span);
        controller.on_chunk(&mut cx, &span);
    }
}

/// After any nonsense, an honest path is filled again.
#[test]
fn an_honest_path_heals_what_lies_did() {
    let chosen = Profile::wished(Some("auto"), None, []).unwrap();
    let mut flow = Flow::new(&chosen, MS * 5);
    for _ in 0..200 {
        flow.honest(Rate::from_kbps(100), Rate::from_gbps(2));
    }
    let link = Rate::from_mbps(400);
    for _ in 0..4_000 {
        flow.honest(flow.controller.pacing().rate.min(link), Rate::ZERO);
    }
    let pacing = flow.controller.pacing();
    assert!(pacing.rate >= link.scale(9, 10), "{pacing:?}");
}

/// No rate at all: an honest path would never see the end of its first packets.
const UNBOUNDED: &str = "unlimited";

/// Those that have a rate: by the user's word, 95 % of `link`, where they need one, else found.
fn rated(link: Rate) -> impl Iterator<Item = ChosenProfile> {
    let profiles = Profile::all().iter().filter(|profile| profile.name != UNBOUNDED);
    profiles.map(move |profile| {
        let rate = profile.needs_rate.then_some(link.scale(19, 20));
        Profile::wished(Some(profile.name), rate, []).expect("a profile")
    })
}

/// Those that find their rate.
fn finders() -> impl Iterator<Item = ChosenProfile> {
    rated(RATE).filter(|chosen| !chosen.profile.needs_rate)
}

/// Those whose paper judges by whole segments, or chunks, however long one takes.
const PATIENT: [&str; 2] = ["fobs-linear", "fobs-state"];

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const RATE: Rate = Rate::from_mbps(100);

fn link(rate: Rate) -> Link {
    let round_trip = Duration::from_millis(20);
    Link { rate, round_trip, queue: rate.bytes_in(round_trip).max(8 * PACKET) }
}

#[test]
fn each_fills_paths_of_many_rates_from_nothing() {
    for (rate, seconds) in [(Rate::from_mbps(2), 10), (RATE, 10), (Rate::from_gbps(2), 12)] {
        for chosen in rated(rate) {
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

/// A controller that takes over goes on at the known rate: no burst, no start-up, and no gap.
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
    for chosen in rated(RATE) {
        let run = || {
            let mut path = Path::new(&chosen, link(RATE), None);
            path.run(SECOND * 8);
            (path.sent, path.lost, path.controller.pacing())
        };
        assert_eq!(run(), run(), "{}", chosen.profile.name);
    }
}

/// A path of a kilobit a second takes twelve seconds for a packet; one of a terabit, 80 million in one.
#[test]
fn each_bears_the_slowest_and_the_fastest_of_paths() {
    for (rate, tick) in [(Rate::from_kbps(1), SECOND * 12), (Rate::from_gbps(1_000), MS * 5)] {
        for profile in Profile::all() {
            let chosen = chosen(profile, rate.max(Profile::RATE_LEAST), &[]);
            let mut flow = Flow::new(&chosen, tick);
            for round in 0..4_000 {
                // What is sent beyond the link waits in its queue, which overflows now and then.
                let sent = flow.controller.pacing().rate.min(rate.scale(2, 1));
                let lost = if round % 50 == 49 { sent - rate } else { Rate::ZERO };
                flow.honest(sent.min(rate), lost);
                let Flow { controller, governor, estimates, .. } = &flow;
                check(profile, &**controller, governor, estimates);
            }
            let name = profile.name;
            let reached = flow.controller.pacing().rate;
            // Trials of PCC begin and end between two packets, which sums do not have.
            let least = if name == "pcc" { Rate::ZERO } else { rate.scale(1, 100) };
            assert!(reached > least, "{name}: {reached} of {rate}");
        }
    }
}

/// A path carried ten gigabits a second before, and its receiver takes a hundred megabits now.
#[test]
fn a_memory_is_never_trusted_above_what_the_receiver_says() {
    let chosen = Profile::wished(Some("auto"), None, []).unwrap();
    let mut flow = Flow::new(&chosen, MS * 25);
    let known = Rate::from_gbps(10);
    flow.controller.recall(&PathMemory {
        band: (known, known),
        round_trip: MS * 100,
        chance_ppm: 0,
        packet: PACKET,
        age: Duration::ZERO,
        best_profile: Some("auto"),
    });
    let Flow { now, controller, governor, rtt, estimates, rng, .. } = &mut flow;
    rtt.update(*now, MS * 100);
    let mut cx = Context { now: *now, rtt, estimates, rng };
    let train = Sent { bytes: 64 * PACKET, in_flight: 64 * PACKET, ..Sent::default() };
    controller.on_sent(&mut cx, &train);
    controller.on_timeout(&mut cx);
    assert_eq!(controller.pacing().rate, known.scale(1, 2), "half of it follows the train");
    let (rate, cause) = (Rate::from_mbps(100), Bottleneck::ReceiverCpu);
    let limit = HostLimit { rate, cause, until: *now + MS * 500 };
    let receiver = ReceiverState { limit: Some(limit), ..ReceiverState::default() };
    let reported = (&Feedback::default(), &receiver);
    governor.on_feedback(*now, rtt, estimates, reported, controller.pacing().rate);
    let (pacing, bound) = governor.allow(controller.pacing());
    assert_eq!((pacing.rate, bound), (rate, cause));
}

/// Packets become larger, and smaller, as the path MTU is found: the rate is as before, and a whole
/// packet may always leave.
#[test]
fn each_goes_on_when_the_size_of_packets_changes() {
    for chosen in rated(RATE) {
        let name = chosen.profile.name;
        let mut path = Path::new(&chosen, link(RATE), None);
        path.run(SECOND * 5);
        for packet in [9_000, 1_280] {
            path.packet = packet;
            path.run(SECOND * 3);
            let share = path.run(SECOND * 5) * 100 / RATE.bytes_in(SECOND * 5);
            assert!(share >= 70, "{name}: {share} % with packets of {packet} bytes");
            let pacing = path.controller.pacing();
            // A circuit's bursts stay short, and a pacer lets a larger packet out on its own.
            assert!(pacing.burst >= packet || name == "trc", "{name}: {pacing:?}");
            assert!(pacing.window.is_none_or(|window| window >= 2 * packet), "{name}: {pacing:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever somebody chooses, an honest path carries something all the time, an outage included.
    #[test]
    fn no_parameters_stop_a_flow(figures in figures(), wanted in 5_000_000u64..40_000_000) {
        let profiles = Profile::all().iter().filter(|profile| profile.name != UNBOUNDED);
        for profile in profiles {
            let chosen = chosen(profile, Rate::from_bps(wanted), &figures);
            let mut path = Path::new(&chosen, link(Rate::from_mbps(20)), None);
            path.run(SECOND * 4);
            path.dark_until = path.now + SECOND * 2;
            path.run(SECOND * 6);
            let moved = path.run(SECOND * 4);
            let name = profile.name;
            prop_assert!(moved >= 10 * PACKET, "{name} {:?}: {moved} bytes", chosen.parameters);
        }
    }
}
