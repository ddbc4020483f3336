//! Rate of a monitored receiver on simulated hosts, beside the best fixed rate that loses at most 0.1 %,
//! and one that nobody limits: `cargo run --release -p longhaul-host --example monitor`.

use longhaul_host::sim::{Control, Counts, Eevdf, Flow, Host, HostConfig, Load};
use longhaul_host::{Monitor, MonitorConfig};
use longhaul_units::{Duration, Instant, Rate};

fn main() {
    println!("Mb/s that arrive in seconds 2 to 8, and the share lost; round trip 10 ms");
    println!(
        "| buffer | load | offered | best fixed | monitored | unlimited |\n|---|---|---|---|---|---|"
    );
    let rare = |stall, pause| {
        let [stall, pause] = [stall, pause].map(Duration::from_millis);
        vec![Load::Trace(vec![(stall, pause)])]
    };
    let loads = [
        ("none", vec![]),
        ("1 loop", vec![Load::Loop]),
        ("2 loops", vec![Load::Loop; 2]),
        ("4 loops", vec![Load::Loop; 4]),
        ("isosurface", vec![Load::Isosurface { seed: 3 }]),
        ("20 ms each 500", rare(20, 480)),
        ("120 ms each 2000", rare(120, 1_880)),
    ];
    for (name, buffer) in [("208 KiB", 212_992), ("4 MiB", 4 << 20), ("64 MiB", 64 << 20)] {
        for (load_name, loads) in &loads {
            for offered in [100, 1_000, 9_000] {
                let config = HostConfig { socket_buffer: buffer, ..HostConfig::default() };
                let run = |mbps, control: &mut dyn Control| run(&config, loads, mbps, control);
                let fixed = best_fixed(offered, |mbps| run(mbps, &mut ()));
                let mut monitor = Monitor::new(Instant::ZERO, MonitorConfig::default());
                let [monitored, unlimited] =
                    [run(offered, &mut monitor), run(offered, &mut ())].map(describe);
                println!(
                    "| {name} | {load_name} | {offered} | {fixed:.0} | {monitored} | {unlimited} |"
                );
            }
        }
    }
}

/// Counts of seconds 2 to 8.
fn run(config: &HostConfig, loads: &[Load], mbps: u64, control: &mut dyn Control) -> Counts {
    let mut host = Host::new(Box::new(Eevdf::linux()), config.clone());
    loads.iter().for_each(|load| host.add_load(load.clone()));
    let mut flow = Flow::new(Rate::from_mbps(mbps), Duration::from_millis(10));
    flow.run(&mut host, Duration::from_secs(2), control);
    let before = host.counts();
    flow.run(&mut host, Duration::from_secs(8), control);
    let after = host.counts();
    Counts {
        datagrams: after.datagrams - before.datagrams,
        bytes: after.bytes - before.bytes,
        socket_drops: after.socket_drops - before.socket_drops,
        backlog_drops: after.backlog_drops - before.backlog_drops,
    }
}

/// In steps of an eighth, from what is offered down.
fn best_fixed(offered: u64, run: impl Fn(u64) -> Counts) -> f64 {
    let mut mbps = offered;
    while mbps > 8 {
        let counts = run(mbps);
        if counts.lost_share() <= 0.001 {
            return arrived(&counts);
        }
        mbps = mbps * 8 / 9;
    }
    0.0
}

fn arrived(counts: &Counts) -> f64 {
    counts.bytes as f64 * 8.0 / 6e6
}

fn describe(counts: Counts) -> String {
    format!("{:.0}, {:.2} %", arrived(&counts), counts.lost_share() * 100.0)
}
