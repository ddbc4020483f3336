//! RAPID's figures 1, 2 and 8 and its transfer times on a simulated Linux 2.6.12, beside
//! the paper: `cargo run --release -p longhaul-host --example rapid`.

use longhaul_host::sim::{Control, Eevdf, Flow, Host, HostConfig, Load, O1, Scheduler};
use longhaul_host::{Account, Rapid, RapidConfig};
use longhaul_units::{Duration, Instant, Rate};

fn main() {
    for (figure, load) in [("1", Load::Loop), ("2", Load::Isosurface { seed: 1 })] {
        context_switches(figure, &load);
    }
    bonus();
    transfer_times();
}

/// A Pentium 4 of the paper: 1.6 Gb/s in packets of 1500 bytes, or 2 Gb/s in packets of 9000, are all that it
/// takes, and half of that goes to interrupts.
fn pentium(mtu: u32) -> HostConfig {
    let (interrupt, read_call, read_ns_per_byte) = match mtu {
        1_500 => (3_500, 500, 2.25),
        _ => (14_000, 1_000, 2.25),
    };
    HostConfig {
        socket_buffer: 256 << 10,
        batch: u64::from(mtu),
        read_call: Duration::from_nanos(read_call),
        read_ns_per_byte,
        interrupt: Duration::from_nanos(interrupt),
        switch: Duration::from_nanos(200),
        write_ns_per_byte: 0.0,
        group: u64::MAX,
        ..HostConfig::default()
    }
}

fn flow(rate: Rate, mtu: u32, round_trip: Duration) -> Flow {
    let mut flow = Flow::new(rate, round_trip);
    (flow.datagrams, flow.size) = (1, mtu);
    flow
}

fn host(scheduler: Box<dyn Scheduler>, mtu: u32, load: Option<&Load>) -> Host {
    let mut host = Host::new(scheduler, pentium(mtu));
    load.into_iter().for_each(|load| host.add_load(load.clone()));
    host
}

/// Time slices of the load, and times without loss, in the first blast of 500 MB at 1.6 Gb/s.
fn context_switches(figure: &str, load: &Load) {
    let mut host = host(Box::new(O1::new()), 1_500, Some(load));
    let mut flow = flow(Rate::from_mbps(1_600), 1_500, Duration::ZERO);
    flow.left = Some(500_000_000 / 1_472);
    flow.run(&mut host, Duration::from_secs(60), &mut ());
    let record = host.record();
    // Between two packets it has turns of microseconds as well.
    let turns = record.turns.iter().map(|(_, length)| ms(*length));
    let turns: Vec<f64> = turns.filter(|length| *length >= 0.1).collect();
    let mut clean = Vec::new();
    let mut since = Instant::ZERO;
    for drop in &record.drops {
        // Drops of one overflow are no interval.
        if *drop - since > Duration::from_millis(1) {
            clean.push(ms(*drop - since));
        }
        since = *drop;
    }
    println!("Figure {figure}, 500 MB at 1.6 Gb/s, MTU 1500, O(1) scheduler of 2.6.12, {load:?}");
    println!("  turns from 0.1 ms on, ms: {}", spread(&turns));
    println!("  first time without loss:  {:.0} ms", clean.first().copied().unwrap_or(f64::NAN));
    println!("  later ones, ms:           {}", spread(clean.get(1..).unwrap_or_default()));
    let paper = match figure {
        "1" => "turns mostly 10 ms; first 125 ms; later ones mostly 10 ms",
        _ => "turns below 2 ms or about 10 ms; first 280 ms; later ones 10 to 240 ms",
    };
    println!("  paper:                    {paper}");
    println!("  lost: {:.1} %\n", host.counts().lost_share() * 100.0);
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn spread(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get(((sorted.len() as f64 - 1.0) * share) as usize);
    match (at(0.1), at(0.5), at(0.9)) {
        (Some(low), Some(median), Some(high)) => {
            format!("{} of them; 10 % {low:.2}, median {median:.2}, 90 % {high:.2}", sorted.len())
        }
        _ => "none".into(),
    }
}

/// The reader's bonus over time, MTU 9000, beside a loop.
fn bonus() {
    println!("Figure 8, bonus of the receiver over time, MTU 9000 at 2 Gb/s beside a loop");
    for (name, mut rapid) in [("rbudp", None), ("rapid", Some(new_rapid(Duration::ZERO)))] {
        let mut host = host(Box::new(O1::new()), 9_000, Some(&Load::Loop));
        let mut flow = flow(Rate::from_gbps(2), 9_000, Duration::ZERO);
        let mut series = Vec::new();
        let mut next = Instant::ZERO;
        let mut nobody = ();
        let control: &mut dyn Control = match &mut rapid {
            Some(rapid) => rapid,
            None => &mut nobody,
        };
        flow.run_each(&mut host, Duration::from_secs(4), control, |now, host| {
            if now >= next {
                next += Duration::from_millis(200);
                series.extend(host.account_of_reader().map(|account: Account| account.level()));
            }
            true
        });
        println!(
            "  {name}, each 0.2 s: {series:?}; lost {:.1} %",
            host.counts().lost_share() * 100.0
        );
        if let Some(rapid) = rapid {
            println!("  error level {:?}, {:?}", rapid.error_level(), rapid.suspends());
        }
    }
    println!("  paper: rbudp's sinks steadily, rapid's stays above a level\n");
}

fn new_rapid(round_trip: Duration) -> Rapid {
    let mut rapid = Rapid::new(Instant::ZERO, RapidConfig::default());
    rapid.set_round_trip(round_trip);
    rapid
}

/// 1.5 GB beside a loop: RBUDP at the rate that is best without load, at its best rate, and RAPID.
fn transfer_times() {
    println!("Figure 5, 1.5 GB beside a loop, seconds (rate); on 2.6.12 and on Linux 6.18");
    for (mtu, best) in [(1_500, 1_600), (9_000, 2_000)] {
        for (kernel, new) in [("2.6.12", false), ("6.18", true)] {
            let scheduler = || -> Box<dyn Scheduler> {
                if new { Box::new(Eevdf::linux()) } else { Box::new(O1::new()) }
            };
            let time = |mbps, load, rtt: Option<Duration>| {
                let mut host = host(scheduler(), mtu, load);
                rounds(&mut host, Rate::from_mbps(mbps), mtu, rtt.map(new_rapid), rtt)
            };
            let alone = time(best, None, None);
            let untuned = time(best, Some(&Load::Loop), None);
            let sweep =
                (2..=best / 100).map(|step| (time(step * 100, Some(&Load::Loop), None), step));
            let (tuned, at) = sweep.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::NAN, 0));
            print!("  MTU {mtu}, {kernel}: alone {alone:.1}, rbudp {untuned:.1} ({best} Mb/s), ");
            print!("tuned {tuned:.1} ({} Mb/s), rapid", at * 100);
            for rtt in [0, 10, 50, 80, 120] {
                let rtt = Duration::from_millis(rtt);
                let seconds = time(best, Some(&Load::Loop), Some(rtt));
                print!(" {seconds:.1}");
            }
            println!(" (feedback delayed by 0, 10, 50, 80, 120 ms)");
        }
    }
    println!(
        "  paper, MTU 1500: rapid takes up to 25 % less time than rbudp at no-load rate, RTT 0"
    );
}

/// RBUDP's rounds: all, then what was missing, until nothing is; seconds.
fn rounds(
    host: &mut Host,
    rate: Rate,
    mtu: u32,
    mut rapid: Option<Rapid>,
    rtt: Option<Duration>,
) -> f64 {
    let payload = u64::from(mtu) - 28;
    let mut missing = 1_500_000_000 / payload;
    let mut flow = flow(rate, mtu, rtt.unwrap_or_default());
    let mut now = Instant::ZERO;
    let mut nobody = ();
    while missing > 0 && now < Instant::ZERO + Duration::from_secs(60) {
        let before = host.counts();
        flow.left = Some(missing);
        let control: &mut dyn Control = match &mut rapid {
            Some(rapid) => rapid,
            None => &mut nobody,
        };
        flow.run_each(host, Duration::from_secs(60), control, |at, _| {
            now = at;
            true
        });
        let after = host.counts();
        let lost = after.socket_drops + after.backlog_drops;
        missing = lost - before.socket_drops - before.backlog_drops;
    }
    (now - Instant::ZERO).as_secs_f64()
}
