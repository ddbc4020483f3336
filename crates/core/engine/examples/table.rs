//! Prints what each controller makes of emulated paths.

#[path = "../tests/scenarios/world.rs"]
mod world;

use longhaul_pathsim::{PathConfig, RateSchedule};
use longhaul_rate_control::{ChosenProfile, Profile};
use longhaul_units::{Bytes, Duration, Instant, Rate};
use world::{
    Batches, Host, Longhaul, Offer, PACKET, Tcp, TcpKind, World, path, played, played_with,
};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let what = args.first().map_or("all", String::as_str);
    if matches!(what, "all" | "completion") {
        completion();
    }
    if matches!(what, "all" | "steady") {
        steady();
    }
    if matches!(what, "all" | "fair") {
        let number =
            |i: usize, default| args.get(i).map_or(default, |n| n.parse().expect("a number"));
        fairness(number(1, 11), Rate::from_mbps(number(2, 100)));
    }
    if matches!(what, "all" | "shallow") {
        shallow();
    }
    if matches!(what, "all" | "profiles") {
        profiles();
    }
    if matches!(what, "all" | "interval") {
        interval();
    }
    if what == "trace" {
        trace(&args[1..]);
    }
}

fn completion() {
    println!("1 GB over 1 Gb/s: excess over ideal, in RTT, without set-up");
    for (rtt_ms, queue_pct) in [(100, 100), (100, 5), (100, 200), (50, 100), (150, 100), (20, 100)]
    {
        let rtt = Duration::from_millis(rtt_ms);
        let rate = Rate::from_gbps(1);
        let queue = rate.bytes_in(rtt) * queue_pct / 100;
        print!("rtt {rtt_ms:4} ms queue {queue_pct:3} %:");
        for loss_ppm in [0, 1_000, 10_000] {
            let mut world = World::new(&path(rate, rtt, queue, loss_ppm), rate, 7);
            let wire = 1_000_000_000u64.div_ceil(1424) * PACKET;
            let start = world.now;
            let flow = Longhaul::new(played("auto", None), rtt, Offer::Bytes(1_000_000_000), 3);
            let index = world.add(Duration::ZERO, flow);
            world.run_until(start + Duration::from_secs(60), |world| world.flow(index).done());
            let took = (world.now - start).as_secs_f64();
            let ideal = wire as f64 * 8.0 / 1e9 / (1.0 - loss_ppm as f64 / 1e6);
            let allowed = ideal / 0.97 + 3.0 * rtt.as_secs_f64();
            let (sent, lost) = world.flow(index).sent_and_lost();
            print!(
                "  p={:.1}%: {:6.3} s = ideal + {:5.2} RTT ({}) loss {:.2}% queue {:.1} ms;",
                loss_ppm as f64 / 1e4,
                took,
                (took - ideal) / rtt.as_secs_f64(),
                if took < allowed { "ok" } else { "LATE" },
                lost as f64 * 100.0 / sent as f64,
                world.mean_queue().0.as_secs_f64() * 1e3
            );
        }
        println!();
    }
}

fn steady() {
    println!("steady state: utilisation of link x (1-p) in % | mean queue delay ms | loss %");
    for (rate, secs) in [
        (Rate::from_mbps(5), 60),
        (Rate::from_mbps(100), 40),
        (Rate::from_gbps(1), 20),
        (Rate::from_gbps(10), 8),
    ] {
        for rtt_ms in [1, 20, 100, 300] {
            for queue_pct in [5, 100, 200] {
                print!("{rate:>9} rtt {rtt_ms:3} queue {queue_pct:3} %:");
                for loss_ppm in [0, 1_000, 10_000] {
                    let rtt = Duration::from_millis(rtt_ms);
                    let queue = rate.bytes_in(rtt) * queue_pct / 100;
                    let mut world = World::new(&path(rate, rtt, queue, loss_ppm), rate, 7);
                    let index = world.add(
                        Duration::ZERO,
                        Longhaul::new(played("auto", None), rtt, Offer::Endless, 3),
                    );
                    world.run(Duration::from_secs(3).max(rtt * 15));
                    let (sent, lost) = world.flow(index).sent_and_lost();
                    let (q0, n0) = world.mean_queue();
                    let util = world.utilisation(Duration::from_secs(secs)) as f64
                        / 10.0
                        / (1.0 - loss_ppm as f64 / 1e6);
                    let (sent2, lost2) = world.flow(index).sent_and_lost();
                    let (q1, n1) = world.mean_queue();
                    let queue = (q1.as_secs_f64() * n1 as f64 - q0.as_secs_f64() * n0 as f64)
                        / (n1 - n0).max(1) as f64;
                    print!(
                        "  {util:6.1} | {:6.2} | {:5.2}",
                        queue * 1e3,
                        (lost2 - lost) as f64 * 100.0 / (sent2 - sent).max(1) as f64
                    );
                }
                println!();
            }
        }
    }
}

fn shallow() {
    let ms = Duration::from_millis;
    println!(
        "1 Gb/s, short queues: permille of link x (1-p) used behind start-up, loss beyond chance in \
         ppm, RTT beyond ideal for 1 GB; by pauses of the sender"
    );
    let hosts = [
        None,
        Some((ms(10), Duration::from_micros(300))),
        Some((ms(50), ms(1))),
        Some((ms(300), ms(3))),
    ];
    for rtt_ms in [10, 20, 100, 300] {
        for packets in [Some(30), None] {
            for loss_ppm in [0, 10_000] {
                let (rate, rtt) = (Rate::from_gbps(1), ms(rtt_ms));
                let queue = packets.map_or(rate.bytes_in(rtt) / 20, |packets| packets * PACKET);
                let name = packets.map_or("5 %".to_owned(), |packets| format!("{packets} packets"));
                print!("rtt {rtt_ms:3} queue {name:>10} loss {loss_ppm:5}:");
                let link = path(rate, rtt, queue, loss_ppm);
                let seconds = Duration::from_secs(20);
                let kept = |world: &mut World, flow: usize| {
                    world.run(ms(3_000).max(rtt * 15));
                    let span = world.span(flow, seconds);
                    let used = span.used * 1_000_000 / (1_000_000 - u64::from(loss_ppm));
                    print!("  {used:4} {:5}", span.loss_ppm().saturating_sub(u64::from(loss_ppm)));
                };
                for stutters in hosts {
                    let flow = |offer| {
                        let mut flow = Longhaul::new(played("auto", None), rtt, offer, 3);
                        flow.stutters = stutters;
                        flow
                    };
                    let mut world = World::new(&link, rate, 7);
                    world.add(Duration::ZERO, flow(Offer::Endless));
                    kept(&mut world, 0);
                    let mut world = World::new(&link, rate, 9);
                    let start = world.now;
                    world.add(Duration::ZERO, flow(Offer::Bytes(1_000_000_000)));
                    world.run_until(start + seconds * 3, |world| world.flow(0).done());
                    let ideal = rate.time_for(
                        1_000_000_000 / 1_424 * PACKET * 1_000_000
                            / (1_000_000 - u64::from(loss_ppm)),
                    );
                    let beyond = (world.now - start).saturating_sub(ideal);
                    print!(" {:5.1}", beyond.as_secs_f64() / rtt.as_secs_f64());
                }
                let mut world = World::new(&link, rate, 7);
                for i in 0..8 {
                    let flow = Tcp::new(TcpKind::Bbr, rtt, 100 + i);
                    world.add(ms(10) * u32::try_from(i).unwrap_or(0), flow);
                }
                print!("   BBR x8");
                kept(&mut world, 0);
                println!();
            }
        }
    }
}

/// The result of a flow on a path, in percent of the `ideal` seconds, and the percentage of its packets that
/// was lost.
fn print_completion(config: &PathConfig, rate: Rate, flow: Longhaul, ideal: f64) {
    let mut world = World::new(config, rate, 7);
    let start = world.now;
    world.add(Duration::ZERO, flow);
    world.run_until(start + Duration::from_secs(300), |world| world.flow(0).done());
    let took = (world.now - start).as_secs_f64();
    let (sent, lost) = world.flow(0).sent_and_lost();
    let lost = lost as f64 * 100.0 / sent as f64;
    match world.flow(0).done() {
        true => print!(" {:4.0} ({lost:4.1})", ideal * 100.0 / took),
        false => print!("    - ({lost:4.1})"),
    }
}

/// Percent of what it and one CUBIC flow get that it gets.
fn beside_cubic(rate: Rate, rtt: Duration, chosen: ChosenProfile) -> f64 {
    let mut world = World::new(&path(rate, rtt, rate.bytes_in(rtt), 0), rate, 7);
    world.add(Duration::ZERO, Longhaul::new(chosen, rtt, Offer::Endless, 3));
    world.add(Duration::from_secs(5), Tcp::new(TcpKind::Cubic, rtt, 100));
    world.run(Duration::from_secs(40));
    let rates = world.measure(Duration::from_secs(40));
    let all = rates[0].as_bps() + rates[1].as_bps();
    rates[0].as_bps() as f64 * 100.0 / all as f64
}

/// Every profile on the same paths.
fn profiles() {
    let (rate, rtt) = (Rate::from_mbps(500), Duration::from_millis(50));
    println!(
        "{rate}, {rtt:?}, 1 GB, those that need a rate get 95 % of the link's: percent of what the \
         link allows, start-up included (percent lost): quiet, 1 % chance, queue of 5 %, half of the \
         rate from 5 s on, receiver that stalls 60 ms each second (- where it took more than 300 s); share of two \
         beside one CUBIC"
    );
    let product = rate.bytes_in(rtt);
    let wire = 1_000_000_000 / 1_424 * PACKET;
    let halved = RateSchedule::constant(rate).then(Duration::from_secs(5), rate.scale(1, 2));
    let config = || PathConfig::default().delay(rtt / 2);
    let paths = [
        (path(rate, rtt, product, 0), false, 1.0),
        (path(rate, rtt, product, 10_000), false, 0.99),
        (path(rate, rtt, product / 20, 0), false, 1.0),
        (config().rate(halved, Bytes::new(product)), false, 0.5),
        (path(rate, rtt, product, 0), true, 0.94),
    ];
    // Rounds are of a whole file, and here a lane is given a few groups at a time.
    let left_out = ["rapid", "rbudp", "unlimited"];
    for profile in Profile::all().iter().filter(|profile| !left_out.contains(&profile.name)) {
        let given = profile.needs_rate.then(|| rate.scale(19, 20));
        print!("{:12}", profile.name);
        for (index, (config, stalls, allowed)) in paths.iter().enumerate() {
            let offer = Offer::Bytes(1_000_000_000);
            let mut flow = Longhaul::new(played(profile.name, given), rtt, offer, 3);
            if *stalls {
                flow = flow.host(Host {
                    rate: rate.scale(4, 1),
                    buffer: 2 << 20,
                    tells: true,
                    stalls: Some((Duration::from_secs(1), Duration::from_millis(60))),
                    batches: Batches::None,
                });
            }
            let full = wire as f64 * 8.0 / rate.as_bps() as f64;
            // Half of the rate behind the first five seconds.
            let ideal = if index == 3 { 5.0 + (full - 5.0) * 2.0 } else { full / allowed };
            print_completion(config, rate, flow, ideal);
        }
        println!("  {:4.0}", beside_cubic(rate, rtt, played(profile.name, given)));
    }
}

/// `auto` that decides each round trip, and at other times (FOBS section 2.2).
fn interval() {
    println!(
        "auto by the time between two decisions: percent of what the link allows for 1 GB, start-up \
         included (percent lost), where quiet, with 1 % chance, a queue of 5 %, half of the rate from \
         3 s on; share of two beside one CUBIC in 40 s"
    );
    for (mbps, rtt_ms) in [(1_000, 10), (1_000, 100), (200, 50)] {
        let (rate, rtt) = (Rate::from_mbps(mbps), Duration::from_millis(rtt_ms));
        let product = rate.bytes_in(rtt);
        let wire = rate.time_for(1_000_000_000 / 1_424 * PACKET).as_secs_f64();
        let after = Duration::from_secs(3);
        let halved = RateSchedule::constant(rate).then(after, rate.scale(1, 2));
        let halved = PathConfig::default().delay(rtt / 2).rate(halved, Bytes::new(product));
        let paths = [
            (path(rate, rtt, product, 0), wire),
            (path(rate, rtt, product, 10_000), wire / 0.99),
            (path(rate, rtt, product / 20, 0), wire),
            (halved, 3.0 + (wire - 3.0) * 2.0),
        ];
        let segment = rate.time_for(10_000 * 1_470);
        let intervals = [
            ("round trip", Duration::ZERO),
            ("quarter", rtt / 4),
            ("half", rtt / 2),
            ("two", rtt * 2),
            ("four", rtt * 4),
            ("10 ms", Duration::from_millis(10)),
            ("100 ms", Duration::from_millis(100)),
            ("segment", segment),
            ("chunk", rate.time_for(100_000_000)),
        ];
        for (name, interval) in intervals {
            let chosen = format!("interval={}us", interval.as_micros());
            let played = || played_with("auto", &[&chosen]);
            print!("{rate:>9} {rtt_ms:3} ms {name:10}");
            for (config, ideal) in &paths {
                let flow = Longhaul::new(played(), rtt, Offer::Bytes(1_000_000_000), 3);
                print_completion(config, rate, flow, *ideal);
            }
            println!("  {:4.0}", beside_cubic(rate, rtt, played()));
        }
    }
}

fn fairness(seed: u64, rate: Rate) {
    println!(
        "share of the first flow in its fair share (utilisation), {rate}, seed {seed}, last 60 of 120 s"
    );
    for rtt_ms in [20, 50, 100] {
        for queue_pct in [5, 20, 100, 200, 400] {
            print!("rtt {rtt_ms:3} queue {queue_pct:3} %:");
            for kinds in [
                vec![Some(TcpKind::Cubic)],
                vec![Some(TcpKind::Cubic); 3],
                vec![Some(TcpKind::Cubic); 9],
                vec![Some(TcpKind::Bbr)],
                vec![Some(TcpKind::Reno)],
                vec![None],
                vec![None; 3],
            ] {
                let rtt = Duration::from_millis(rtt_ms);
                let queue = rate.bytes_in(rtt) * queue_pct / 100;
                let mut shares = Vec::new();
                for first in [0, 10] {
                    let mut world = World::new(&path(rate, rtt, queue, 0), rate, seed);
                    world.add(
                        Duration::from_secs(first),
                        Longhaul::new(played("auto", None), rtt, Offer::Endless, 3),
                    );
                    for (i, kind) in kinds.iter().enumerate() {
                        let after =
                            Duration::from_secs(10 - first) + Duration::from_millis(i as u64 * 300);
                        match kind {
                            Some(kind) => {
                                world.add(after, Tcp::new(*kind, rtt, seed + 100 + i as u64))
                            }
                            None => world.add(
                                after,
                                Longhaul::new(
                                    played("auto", None),
                                    rtt,
                                    Offer::Endless,
                                    seed + 5 + i as u64,
                                ),
                            ),
                        };
                    }
                    world.run(Duration::from_secs(60));
                    let rates = world.measure(Duration::from_secs(60));
                    let total: u64 = rates.iter().map(|rate| rate.as_bps()).sum();
                    shares.push((
                        rates[0].as_bps() as f64 * rates.len() as f64 / total as f64,
                        total as f64 / rate.as_bps() as f64 * 100.0,
                    ));
                }
                let name = match kinds[0] {
                    Some(TcpKind::Cubic) => "cubic",
                    Some(TcpKind::Bbr) => "bbr",
                    Some(TcpKind::Reno) => "reno",
                    None => "auto",
                };
                print!(
                    "  {}x{name} {:4.2}({:.0}) {:4.2}({:.0});",
                    kinds.len(),
                    shares[0].0,
                    shares[0].1,
                    shares[1].0,
                    shares[1].1
                );
            }
            println!();
        }
    }
}

/// `trace RATE_MBPS RTT_MS QUEUE_PCT LOSS_PPM SECONDS [cubic|bbr|auto|reno]`
fn trace(args: &[String]) {
    let number = |i: usize| args[i].parse::<u64>().expect("a number");
    let (rate, rtt) = (Rate::from_mbps(number(0)), Duration::from_millis(number(1)));
    // Percent of a product, or packets.
    let queue = match args[2].strip_suffix('p') {
        Some(packets) => packets.parse::<u64>().expect("packets") * PACKET,
        None => rate.bytes_in(rtt) * number(2) / 100,
    };
    let seed = std::env::var("SEED").map_or(11, |seed| seed.parse().expect("a seed"));
    let mut world = World::new(&path(rate, rtt, queue, number(3) as u32), rate, seed);
    let start = world.now;
    let mut flow = Longhaul::new(played("auto", None), rtt, Offer::Endless, 3);
    let (mut last, mut arrived) = (Instant::ZERO, 0);
    let every = Duration::from_millis(args.get(6).map_or(100, |ms| ms.parse().expect("ms")));
    flow.trace = Some(Box::new(move |now, path| {
        if now - last >= every {
            let estimates = path.estimates();
            println!(
                "{:8.4} {:9} rate {:9} bw {:9} got {:9} queue {:7.2} ms flight {:9} lost {} random {}",
                (now - start).as_secs_f64(),
                path.metrics().state,
                path.allowed().0.to_string(),
                estimates.bandwidth().unwrap_or_default().to_string(),
                Rate::from_bytes_over(path.delivered() - arrived, now - last).to_string(),
                estimates.queue().as_secs_f64() * 1e3,
                path.in_flight(),
                path.losses().network(),
                estimates.chance_ppm().unwrap_or(0)
            );
            (last, arrived) = (now, path.delivered());
        }
    }));
    if args.iter().any(|arg| arg == "pauses") {
        flow.stutters = Some((Duration::from_millis(10), Duration::from_micros(300)));
    }
    let late = args.iter().any(|arg| arg == "late");
    world.add(Duration::from_secs(if late { 10 } else { 0 }), flow);
    match args.get(5).map(String::as_str) {
        Some("cubic") => {
            world.add(
                Duration::from_secs(if late { 0 } else { 5 }),
                Tcp::new(TcpKind::Cubic, rtt, 1),
            );
        }
        Some("cubics") => {
            for i in 0..3 {
                let after = Duration::from_millis(300 * i);
                world.add(after, Tcp::new(TcpKind::Cubic, rtt, 111 + i));
            }
        }
        Some("reno") => {
            world.add(
                Duration::from_secs(if late { 0 } else { 5 }),
                Tcp::new(TcpKind::Reno, rtt, 1),
            );
        }
        Some("bbr") => {
            world
                .add(Duration::from_secs(if late { 0 } else { 5 }), Tcp::new(TcpKind::Bbr, rtt, 1));
        }
        Some("autos") => {
            for i in 0..3 {
                let after = Duration::from_secs(10) + Duration::from_millis(i * 300);
                world.add(after, Longhaul::new(played("auto", None), rtt, Offer::Endless, 100 + i));
            }
        }
        Some("auto") => {
            world.add(
                Duration::from_secs(5),
                Longhaul::new(played("auto", None), rtt, Offer::Endless, 5),
            );
        }
        _ => {}
    }
    let rates = world.measure(Duration::from_secs(number(4)));
    println!("{rates:?}");
}
