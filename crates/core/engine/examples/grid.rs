//! `auto` on paths that nobody tuned it for, behind hosts as they are, beside eight BBR flows.
//!
//! `grid [CELL [SEEDS [FROM]]]`: per mille of link x (1-p) from the first packet on, for the least and the
//! median of the seeds, and packets lost beyond chance in parts per million.
//! `grid trace CELL HOST [MS [MS [SEED]]]`: what `auto` believes, so often, for so long; HOST of a wide cell may
//! be `-`.
//! `grid wide [SEEDS [FROM]]`: every combination of five round trips, three rates, four queues and three losses,
//! the hosts in turn; a line for each, its name, a tab, and the median.

#[path = "../tests/scenarios/world.rs"]
mod world;

use longhaul_units::{Duration, Rate};
use world::{Batches, Host, Longhaul, Offer, PACKET, Tcp, TcpKind, World, beliefs, path, played};

struct Cell {
    name: &'static str,
    mbps: u64,
    rtt_ms: u32,
    queue_kb: u64,
    loss_ppm: u32,
}

const fn cell(name: &'static str, mbps: u64, rtt_ms: u32, queue_kb: u64, loss_ppm: u32) -> Cell {
    Cell { name, mbps, rtt_ms, queue_kb, loss_ppm }
}

const CELLS: &[Cell] = &[
    cell("20 ms, 5 %", 1_000, 20, 125, 0),
    cell("20 ms, 5 %, 1 %", 1_000, 20, 125, 10_000),
    cell("10 ms, 5 %", 1_000, 10, 62, 0),
    cell("40 ms, 200 Mb/s", 200, 40, 50, 0),
    cell("100 ms, 5 %, 1 %", 1_000, 100, 625, 10_000),
    cell("100 ms, 100 %, 0.1 %", 1_000, 100, 12_500, 1_000),
    cell("20 ms, 100 %, 0.1 %", 1_000, 20, 2_500, 1_000),
    cell("150 ms, 500 Mb/s, 5 %", 500, 150, 470, 0),
    cell("50 ms, 200 Mb/s, 63 kB", 200, 50, 63, 0),
    cell("20 ms, 500 kB", 1_000, 20, 500, 0),
    cell("30 ms, 2 %", 1_000, 30, 75, 0),
    cell("30 ms, 2 %, 0.1 %", 1_000, 30, 75, 1_000),
    cell("40 ms, 50 Mb/s, 20 %", 50, 40, 50, 0),
    cell("300 ms, 5 %", 1_000, 300, 1_875, 0),
];

/// A pair of hosts: how the receiver takes packets, and what the sender's side makes of them.
#[derive(Clone, Copy)]
struct Hosts {
    name: &'static str,
    batches: Batches,
    /// Microseconds: the sender has no turn for the second time, once in the first.
    late: Option<(u32, u32)>,
    /// The same of a device between the sender and the bottleneck.
    holds: Option<(u32, u32)>,
    /// Microseconds between two turns of the sender.
    wake_up: u32,
}

const PLAIN: Hosts =
    Hosts { name: "plain", batches: Batches::None, late: None, holds: None, wake_up: 0 };
const GRO: Hosts = Hosts { name: "gro", batches: Batches::SuperPackets, ..PLAIN };

const HOSTS: &[Hosts] = &[
    PLAIN,
    GRO,
    Hosts { name: "irq", batches: Batches::Interrupts(Duration::from_micros(250)), ..PLAIN },
    Hosts { name: "gro late", late: Some((10_000, 300)), ..GRO },
    Hosts { name: "gro later", late: Some((50_000, 1_500)), ..GRO },
    Hosts { name: "timer", wake_up: 60, ..GRO },
    Hosts {
        name: "held",
        wake_up: 60,
        late: Some((31_000, 1_700)),
        holds: Some((730_000, 3_000)),
        ..GRO
    },
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default| args.get(i).map_or(default, |n| n.parse().expect("a number"));
    if args.first().is_some_and(|arg| arg == "trace") {
        let name = args.get(1).expect("a cell");
        let wide = wide_cells().find(|(of, _, _)| of == name);
        let named = CELLS.iter().find(|cell| cell.name == name);
        let host = HOSTS.iter().find(|host| args.get(2).is_some_and(|name| host.name == name));
        let host = host.or(wide.as_ref().map(|(_, _, hosts)| *hosts)).expect("a host");
        let cell = named.or(wide.as_ref().map(|(_, cell, _)| cell)).expect("a cell of that name");
        let (config, rate, _) = link(cell);
        let seed = number(5, 21);
        let mut flow = flow(cell, host, seed);
        flow.trace = Some(beliefs(Duration::from_millis(number(3, 20)), |_| String::new()));
        let mut world = World::new(&config, rate, seed);
        world.add(Duration::ZERO, flow);
        world.run(Duration::from_millis(number(4, 4000)));
        return;
    }
    let (seeds, from) = (number(1, 5), number(2, 7));
    if args.first().is_some_and(|arg| arg == "wide") {
        return wide(seeds, from);
    }
    let wanted = args.first().filter(|name| *name != "all");
    for cell in
        CELLS.iter().filter(|cell| wanted.is_none_or(|wanted| cell.name.contains(&**wanted)))
    {
        print!("{:24}", cell.name);
        for hosts in HOSTS {
            let mut runs: Vec<(u64, u64)> =
                (from..from + seeds).map(|seed| run(cell, hosts, seed)).collect();
            runs.sort_unstable();
            let (median, name) = (runs[runs.len() / 2], hosts.name);
            print!("  {name} {:4} {:4} {:5}", runs[0].0, median.0, median.1);
        }
        println!("  bbr {:4}", beside(cell));
    }
}

fn wide(seeds: u64, from: u64) {
    for (name, cell, hosts) in wide_cells() {
        let mut used: Vec<u64> =
            (from..from + seeds).map(|seed| run(&cell, hosts, seed).0).collect();
        used.sort_unstable();
        println!("{name}\t{}", used[used.len() / 2]);
    }
}

fn wide_cells() -> impl Iterator<Item = (String, Cell, &'static Hosts)> {
    let hosts = HOSTS.iter().cycle();
    combinations().zip(hosts).map(|((rtt_ms, mbps, percent, loss_ppm), hosts)| {
        let product = mbps * 1_000_000 / 8 * u64::from(rtt_ms) / 1_000;
        let queue_kb = product * percent / 100 / 1_000;
        let loss = f64::from(loss_ppm) / 10_000.0;
        let name = format!("{mbps} Mb/s, {rtt_ms} ms, {percent} %, loss {loss} %, {}", hosts.name);
        (name, Cell { name: "", mbps, rtt_ms, queue_kb, loss_ppm }, hosts)
    })
}

fn combinations() -> impl Iterator<Item = (u32, u64, u64, u32)> {
    let queues = |rtt, mbps| [2, 5, 20, 100].map(move |percent| (rtt, mbps, percent));
    let rates = move |rtt| [50, 200, 1_000].into_iter().flat_map(move |mbps| queues(rtt, mbps));
    let paths = [10, 20, 40, 100, 300].into_iter().flat_map(rates);
    paths.flat_map(|(rtt, mbps, percent)| {
        [0, 1_000, 10_000].map(move |loss| (rtt, mbps, percent, loss))
    })
}

fn measured(cell: &Cell, world: &mut World) -> (u64, u64) {
    let time = Duration::from_secs(8);
    world.run(Duration::from_millis(1) * cell.rtt_ms * 4);
    let span = world.span(0, time);
    let used = span.used * 1_000_000 / (1_000_000 - u64::from(cell.loss_ppm));
    (used, span.loss_ppm().saturating_sub(u64::from(cell.loss_ppm)))
}

fn link(cell: &Cell) -> (longhaul_pathsim::PathConfig, Rate, Duration) {
    let (rate, rtt) = (Rate::from_mbps(cell.mbps), Duration::from_millis(1) * cell.rtt_ms);
    (path(rate, rtt, (cell.queue_kb * 1000).max(30 * PACKET), cell.loss_ppm), rate, rtt)
}

fn flow(cell: &Cell, hosts: &Hosts, seed: u64) -> Longhaul {
    let (_, rate, rtt) = link(cell);
    let mut flow = Longhaul::new(played("auto", None), rtt, Offer::Endless, seed);
    let micros = |us: u32| Duration::from_micros(u64::from(us));
    let pauses = |(every, length)| (micros(every), micros(length));
    flow.stutters = hosts.late.map(pauses);
    flow.holds = hosts.holds.map(pauses);
    flow.wake_up = micros(hosts.wake_up);
    let host = Host {
        rate: rate.scale(8, 1),
        buffer: 8 << 20,
        tells: true,
        stalls: None,
        batches: hosts.batches,
    };
    flow.host(host)
}

fn run(cell: &Cell, hosts: &Hosts, seed: u64) -> (u64, u64) {
    let (config, rate, _) = link(cell);
    let mut world = World::new(&config, rate, seed);
    world.add(Duration::ZERO, flow(cell, hosts, seed));
    measured(cell, &mut world)
}

fn beside(cell: &Cell) -> u64 {
    let (config, rate, rtt) = link(cell);
    let mut world = World::new(&config, rate, 7);
    for i in 0..8 {
        world.add(Duration::from_millis(10) * (i as u32), Tcp::new(TcpKind::Bbr, rtt, 100 + i));
    }
    measured(cell, &mut world).0
}
