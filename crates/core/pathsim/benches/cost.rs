//! Prints what deciding costs, in nanoseconds a segment, for trains of 45 segments of 1500 bytes
//! (one 64 kB super-packet) that are offered at the rate of the path or a little above.
//!
//! `cargo run --release -p longhaul-pathsim --example cost`

use std::hint::black_box;

use longhaul_pathsim::{
    DropReason, Ecn, EcnMarking, Fate, GilbertElliott, Jitter, Link, Path, PathConfig, Probability,
    Train,
};
use longhaul_units::{Bytes, Duration, Instant, Rate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ppm = Probability::from_ppm;
    let ideal = PathConfig::default().delay(Duration::from_millis(50));
    let rated = ideal.clone().rate(Rate::from_gbps(10), Bytes::new(12_500_000));
    let lossy = rated.clone().loss(ppm(10_000));
    let bursty = rated.clone().burst_loss(GilbertElliott::bursts(ppm(1_000), 10));
    let marking = rated.clone().ecn(EcnMarking::ramp(
        Bytes::new(1_000_000),
        Bytes::new(20_000_000),
        Probability::from_percent(10),
    ))?;
    let everything = marking
        .clone()
        .policer(Rate::from_gbps(12), Bytes::new(1_000_000))
        .mtu(9_000)
        .jitter(Jitter::uniform(Duration::from_millis(1)))
        .loss(ppm(1_000))
        .burst_loss(GilbertElliott::bursts(ppm(100), 10))
        .reordering(ppm(1_000), Duration::from_micros(100))
        .duplication(ppm(1_000), Duration::ZERO)
        .corruption(ppm(1_000))
        .outage(Duration::from_secs(1), Duration::from_millis(10));

    println!("{:<34}{:>8}  fates", "path", "ns");
    for (name, config) in [
        ("delay", &ideal),
        ("delay, rate", &rated),
        ("delay, rate, 1 % random loss", &lossy),
        ("delay, rate, 1 % burst loss", &bursty),
        ("delay, rate, ECN ramp", &marking),
        ("everything", &everything),
    ] {
        let mut path = Path::new(config, 1, Instant::ZERO)?;
        let nanos = best_of_five(|pass| train_pass(&mut path, pass));
        println!("{name:<34}{nanos:>8.1}  {}", path.stats());
    }
    for (name, config) in [("link: delay, rate", &rated), ("link: everything", &everything)] {
        let mut link = Link::new(config, 1, Instant::ZERO)?;
        let nanos = best_of_five(|pass| link_pass(&mut link, pass));
        println!("{name:<34}{nanos:>8.1}  {}", link.path().stats());
    }
    Ok(())
}

fn train_pass(path: &mut Path, pass: u64) {
    let train =
        Train { count: TRAIN, segment_len: 1_500, last_len: 1_500, ecn: Ecn::Ect0, udp: true };
    for number in 0..TRAINS {
        let now = Instant::from_nanos((pass * TRAINS + number) * TRAIN_NANOS);
        let (mut arrivals, mut last, mut special) = (0, Instant::ZERO, 0);
        path.offer_train(now, train, |_, fate| match fate {
            Fate::Deliver(arrival) => {
                arrivals += 1;
                last = arrival.at;
                let odd = arrival.marked || arrival.reordered || arrival.duplicate.is_some();
                special += u32::from(odd || arrival.corrupted.is_some());
            }
            Fate::Drop(reason) => special += u32::from(reason != DropReason::Queue),
        });
        black_box((arrivals, last, special));
    }
}

fn link_pass(link: &mut Link<u64>, pass: u64) {
    for number in 0..TRAINS {
        let now = Instant::from_nanos((pass * TRAINS + number) * TRAIN_NANOS);
        for segment in 0..u64::from(TRAIN) {
            black_box(link.push(now, 1_500, Ecn::Ect0, segment));
        }
        while let Some(delivery) = link.poll(now) {
            black_box(delivery);
        }
    }
}

fn best_of_five(mut run: impl FnMut(u64)) -> f64 {
    let mut best = f64::MAX;
    for pass in 0..5 {
        let start = std::time::Instant::now();
        run(pass);
        let segments = (TRAINS * u64::from(TRAIN)) as f64;
        best = best.min(start.elapsed().as_nanos() as f64 / segments);
    }
    best
}

const TRAIN: u32 = 45;
const TRAINS: u64 = 100_000;
/// 45 x 1500 bytes in this time are 10.2 Gb/s.
const TRAIN_NANOS: u64 = 53_000;
