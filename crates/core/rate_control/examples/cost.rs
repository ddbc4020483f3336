//! Cost of each profile a packet, above `unlimited`: every controller gets the same feedback.
//!
//! `cargo run --release -p longhaul-rate-control --example cost`, on an idle machine. The traffic is that
//! of 1 Gb/s at 20 ms: batches of 44 packets, a report each 2.5 ms, one packet in a thousand lost, a
//! queue that comes and goes. The example also runs the parts that all profiles share (estimates, governor,
//! pacer), so they are part of `unlimited`.

use std::hint::black_box;

use longhaul_rate_control::{
    Context, Delivery, Estimates, Feedback, Governor, Pacer, Profile, ReceiverState, RttEstimator,
    Sent, SpanMeter,
};
use longhaul_units::{Duration, Instant, Losses, Rate};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

const PACKET: u64 = 1_500;
const RATE: Rate = Rate::from_gbps(1);
const ROUND_TRIP: Duration = Duration::from_millis(20);
const REPORTS: Duration = Duration::from_micros(2_500);
/// Packets of a report: 208 in 2.5 ms.
const REPORTED: u64 = 208;
const BATCH: u64 = 44;
/// A minute and a half of that traffic.
const ROUNDS: u32 = 36_000;
const RUNS: usize = 9;

fn main() {
    let cost = |profile: &'static Profile| {
        let mut runs: Vec<f64> = (0..RUNS).map(|_| nanoseconds(profile)).collect();
        runs.sort_by(f64::total_cmp);
        runs[RUNS / 2]
    };
    let unlimited = cost(Profile::by_name("unlimited").expect("a known profile"));
    println!("ns a packet, median of {RUNS}; unlimited: {unlimited:.2}; above it:");
    for profile in Profile::all() {
        println!("{:12} {:6.2}", profile.name, cost(profile) - unlimited);
    }
}

/// Of one run, a packet.
fn nanoseconds(profile: &'static Profile) -> f64 {
    let chosen = Profile::wished(Some(profile.name), Some(RATE), []).expect("with a rate");
    let mut now = Instant::ZERO + Duration::from_secs(10);
    let mut controller = chosen.controller(now, PACKET, None);
    let sizes = controller.spans();
    let [mut segment, mut chunk] =
        [sizes.segment, sizes.chunk].map(|size| size.map(|size| SpanMeter::new(now, size)));
    let mut estimates = Estimates::new(now, PACKET);
    let mut governor = Governor::new(now, profile.heeds_receiver);
    let mut pacer = Pacer::new(now, controller.pacing());
    let mut rtt = RttEstimator::new(ROUND_TRIP);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let begin = std::time::Instant::now();
    for report in 0..u64::from(ROUNDS) {
        for _ in 0..REPORTED.div_ceil(BATCH) {
            let bytes = BATCH * PACKET;
            let in_flight = RATE.bytes_in(ROUND_TRIP);
            pacer.on_sent(now, bytes);
            governor.on_sent(in_flight);
            let sent = Sent { bytes, in_flight, ..Sent::default() };
            let estimates = &mut estimates;
            controller.on_sent(&mut Context { now, rtt: &rtt, estimates, rng: &mut rng }, &sent);
        }
        now += REPORTS;
        let waits = Duration::from_micros(report * 37 % 1_000);
        let lost = u64::from(report % 5 == 0);
        rtt.update(now, ROUND_TRIP + waits);
        let feedback = Feedback {
            acked_bytes: (REPORTED - lost) * PACKET,
            acked_packets: REPORTED - lost,
            lost: Losses { unknown: lost, ..Losses::default() },
            lost_bytes: lost * PACKET,
            in_flight: RATE.bytes_in(ROUND_TRIP),
            rtt: Some(ROUND_TRIP + waits),
            one_way_delta: Some(waits.as_micros() as i64),
            delivery: Some(Delivery {
                rate: RATE,
                interval: REPORTS,
                sent_over: REPORTS,
                application_limited: false,
            }),
            ..Feedback::default()
        };
        let classified = estimates.on_feedback(now, &rtt, &feedback);
        let mut cx = Context { now, rtt: &rtt, estimates: &mut estimates, rng: &mut rng };
        controller.on_feedback(&mut cx, &classified);
        if let Some(span) = segment.as_mut().and_then(|meter| meter.on_feedback(now, &classified)) {
            controller.on_segment(&mut cx, &span);
        }
        if let Some(span) = chunk.as_mut().and_then(|meter| meter.on_feedback(now, &classified)) {
            controller.on_chunk(&mut cx, &span);
        }
        if controller.next_timeout().is_some_and(|at| at <= now) {
            controller.on_timeout(&mut cx);
        }
        let reported = (&classified, &ReceiverState::default());
        governor.on_feedback(now, &rtt, &estimates, reported, controller.pacing().rate);
        governor.set_controller_bound(controller.metrics().bound);
        let (pacing, bound) = governor.allow(controller.pacing());
        governor.account(now, bound);
        pacer.set(now, pacing);
        black_box(pacer.earliest(now, PACKET));
    }
    begin.elapsed().as_nanos() as f64 / (f64::from(ROUNDS) * REPORTED as f64)
}
