//! PAPTC's sender on what recorded readers could process: does it come to the bottleneck rate, and follow it?

use longhaul_host::{Batch, Paptc, Service, ServiceConfig, Turn};
use longhaul_rate_control::{Context, Estimates, Feedback, Profile, RttEstimator};
use longhaul_units::{Duration, Instant, Losses, Rate};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::trace::{Trace, WINDOW};

/// Distance of the rate from what the reader processes, as a part of the mean of that.
#[derive(Default)]
struct Off {
    rate: f64,
    capacity: f64,
    apart: f64,
    count: f64,
}

pub fn print(traces: &[Trace]) {
    println!(
        "\n| from | rate, of what is processed | off by, on average | computed capacity off by |"
    );
    println!("|---|---|---|---|");
    for from in [0.3, 1.2, 2.0] {
        let (mut rates, mut capacities) = (Off::default(), Off::default());
        traces.iter().for_each(|trace| follow(trace, from, &mut rates, &mut capacities));
        let Off { rate, capacity, apart, .. } = rates;
        let [apart, by_capacity] =
            [apart / capacity, capacities.apart / capacities.capacity].map(|part| part * 100.0);
        println!(
            "| {from} | {:.1} % | {apart:.0} % | {by_capacity:.0} % |",
            100.0 * rate / capacity
        );
    }
}

/// A period is a window; what is lost is known a period later.
fn follow(trace: &Trace, from: f64, rates: &mut Off, capacities: &mut Off) {
    let shares: Vec<(Duration, Duration)> = trace
        .windows()
        .map(|(a, b)| (b.run.saturating_sub(a.run), b.wait.saturating_sub(a.wait)))
        .filter(|(run, wait)| !(*run + *wait).is_zero())
        .collect();
    let processed = |(run, wait): (Duration, Duration)| {
        ALONE.as_bps() as f64 * run.as_secs_f64() / (run + wait).as_secs_f64()
    };
    let mean = shares.iter().map(|share| processed(*share)).sum::<f64>() / shares.len() as f64;
    let first = 100.0 * mean * from / LINK.as_bps() as f64;
    let parameters = [format!("first={first:.2}%"), "interval=50ms".into()];
    let parameters = parameters.iter().map(String::as_str);
    let chosen = Profile::wished(Some("paptc"), Some(LINK), parameters).expect("in bounds");
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let mut controller = chosen.controller(now, PACKET, None);
    let mut service = Service::new(now, ServiceConfig::default());
    let (rtt, mut estimates) = (RttEstimator::new(ROUND_TRIP), Estimates::new(now, PACKET));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut lost_before = 0.0;
    for (index, share) in shares.iter().enumerate() {
        now += WINDOW;
        let (run, wait) = *share;
        let bytes = (ALONE.as_bps() as f64 / 8.0 * run.as_secs_f64()) as u64;
        let batch = Batch { bytes, packets: bytes / 1_400, age: None, cpu: Some(run), full: true };
        let truth = processed(*share);
        let computed = Paptc::capacity(&service);
        let rate = controller.pacing().rate.as_bps() as f64;
        if index >= shares.len() / 2 {
            for (off, value) in
                [(&mut *rates, Some(rate)), (capacities, computed.map(|rate| rate.as_bps() as f64))]
            {
                if let Some(value) = value {
                    off.rate += value;
                    off.capacity += truth;
                    off.apart += (value - truth).abs();
                    off.count += 1.0;
                }
            }
        }
        let arrived = rate.min(truth);
        let lost = std::mem::replace(&mut lost_before, 1.0 - arrived / rate);
        let packets = |part: f64| (rate * part * WINDOW.as_secs_f64() / 8.0 / PACKET as f64) as u64;
        let feedback = Feedback {
            acked_bytes: packets(arrived / rate) * PACKET,
            acked_packets: packets(1.0 - lost),
            lost: Losses { socket: packets(lost), ..Losses::default() },
            rtt: Some(ROUND_TRIP),
            capacity: computed,
            ..Feedback::default()
        };
        let (rtt, estimates, rng) = (&rtt, &mut estimates, &mut rng);
        controller.on_feedback(&mut Context { now, rtt, estimates, rng }, &feedback);
        service.handle_batch(&batch);
        service.handle_turn(now, &Turn { run, wait, turns: 1 });
    }
}

/// Rate at which the lab's reader processes with a processor of its own: 1 ns a byte.
const ALONE: Rate = Rate::from_gbps(8);
const LINK: Rate = Rate::from_gbps(16);
const PACKET: u64 = 1_500;
const ROUND_TRIP: Duration = Duration::from_millis(10);
