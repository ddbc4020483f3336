//! The experiment of the VBLS paper's section 3.3, run with the production calendar.
//!
//! [`run`] compares the contenders (VBLS, VBLS with re-planning, FBLS) and the packet-switched
//! references over loads and seeds; [`switching::run`] sweeps tick and reprogramming time (section
//! 3.4); [`scenarios::run`] books other workloads. Every contender of a seed sees the same
//! requests, so differences are taken seed by seed.

pub mod booked;
pub mod figure;
pub mod scenarios;
pub mod sharing;
pub mod stats;
pub mod switching;
pub mod table;
pub mod tcp;
pub mod workload;

mod parallel;

use longhaul_calendar::Policy;
use serde::Serialize;

use self::booked::Scheme;
use self::stats::{Estimate, Measures};
use self::tcp::{Control, TcpPath};
use self::workload::Arrival;

/// The experiment to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Offered loads, each above 0 and below 1.
    pub loads: Vec<f64>,
    /// Number of seeds; 20 or more for figures to be quoted.
    pub seeds: u64,
    /// Requests a run.
    pub requests: usize,
    /// Share of the requests, at the start, that is not measured.
    pub warm_up: f64,
    /// Slacks of promises at which re-planning runs, parts per million.
    pub slacks_ppm: Vec<u32>,
    /// The path of the TCP references; `None` leaves them out.
    pub tcp: Option<TcpPath>,
    /// Threads to run on.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            loads: vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95],
            seeds: 20,
            requests: 20_000,
            warm_up: 0.1,
            slacks_ppm: vec![0, 100_000, 250_000, 1_000_000],
            tcp: Some(TcpPath::default()),
            threads: 1,
        }
    }
}

/// The carrier of the files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    /// Varying bandwidth, booked at arrival.
    Vbls,
    /// The same, re-planned at each arrival with promises of this slack, parts per million.
    Replanned(u32),
    /// Fixed bandwidth.
    Fbls,
    /// Packet-switched first-in-first-out, infinite buffer.
    Fifo,
    /// Capped max-min fair sharing.
    Fair,
    /// Finite buffer and TCP.
    Tcp(Control),
}

impl Contender {
    /// A short name for tables and legends.
    pub fn name(self) -> String {
        match self {
            Self::Vbls => "VBLS".into(),
            Self::Replanned(0) => "VBLS re-planned".into(),
            Self::Replanned(ppm) => format!("VBLS re-planned, slack {} %", ppm / 10_000),
            Self::Fbls => "FBLS".into(),
            Self::Fifo => "PS FIFO".into(),
            Self::Fair => "PS fair".into(),
            Self::Tcp(Control::Reno) => "TCP Reno".into(),
            Self::Tcp(Control::Cubic) => "TCP CUBIC".into(),
        }
    }

    fn delays(self, files: &[Arrival], options: &Options, seed: u64) -> Vec<f64> {
        let vbls = Scheme::new(Policy::Earliest);
        match self {
            Self::Vbls => booked::book(files, &vbls).delays,
            Self::Replanned(slack) => booked::book(files, &vbls.replanned(slack)).delays,
            Self::Fbls => booked::book(files, &Scheme::new(Policy::Fixed)).delays,
            Self::Fifo => sharing::fifo(files),
            Self::Fair => sharing::fair(files),
            Self::Tcp(control) => tcp::tcp(files, control, options.tcp.unwrap_or_default(), seed),
        }
    }
}

/// Results of one contender at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Offered load.
    pub load: f64,
    /// Name of the contender.
    pub contender: String,
    /// Equation 1 (delay weighted with size), seconds: Rmax 1, 5, 10, all.
    pub normalised_delay: [Estimate; 4],
    /// Mean delay, seconds: Rmax 1, 5, 10, all.
    pub mean_delay: [Estimate; 4],
    /// Mean of delay over delay on an idle link.
    pub slowdown: Estimate,
    /// 99th percentile of that.
    pub slowdown_p99: Estimate,
    /// Share of the link that carries data.
    pub utilisation: Estimate,
    /// Mean delay over that of the packet-switched FIFO, seed by seed.
    pub mean_to_fifo: Estimate,
    /// Mean delay over that of fair sharing, seed by seed.
    pub mean_to_fair: Estimate,
    /// Equation 1 over that of the packet-switched FIFO, seed by seed.
    pub normalised_to_fifo: Estimate,
    /// Equation 1 over that of fair sharing, seed by seed.
    pub normalised_to_fair: Estimate,
}

/// Results of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seeds a row.
    pub seeds: u64,
    /// Requests a seed.
    pub requests: usize,
    /// One row for each load and contender.
    pub rows: Vec<Row>,
}

/// Runs the experiment. `progress` gets the runs done and the runs in all.
pub fn run(options: &Options, progress: &mut dyn FnMut(usize, usize)) -> Report {
    let contenders = contenders(options);
    let jobs: Vec<(usize, u64)> = (0..options.loads.len())
        .flat_map(|load| (0..options.seeds).map(move |seed| (load, seed)))
        .collect();
    let warm_up = ((options.requests as f64 * options.warm_up) as usize).min(options.requests - 1);
    let measured = parallel::map(&jobs, options.threads, progress, |(load, seed)| {
        let files = workload::arrivals(options.loads[*load], options.requests, *seed);
        let measure =
            |c: &Contender| Measures::of(&files, &c.delays(&files, options, *seed), warm_up);
        contenders.iter().map(measure).collect::<Vec<Measures>>()
    });
    let seeds = options.seeds as usize;
    let mut rows = Vec::new();
    for (load, runs) in options.loads.iter().zip(measured.chunks(seeds)) {
        for (index, contender) in contenders.iter().enumerate() {
            rows.push(row(*load, *contender, index, &contenders, runs));
        }
    }
    Report { seeds: options.seeds, requests: options.requests, rows }
}

fn contenders(options: &Options) -> Vec<Contender> {
    let mut all = vec![Contender::Fifo, Contender::Fair, Contender::Vbls];
    all.extend(options.slacks_ppm.iter().map(|ppm| Contender::Replanned(*ppm)));
    all.push(Contender::Fbls);
    if options.tcp.is_some() {
        all.extend([Contender::Tcp(Control::Cubic), Contender::Tcp(Control::Reno)]);
    }
    all
}

fn row(
    load: f64,
    contender: Contender,
    index: usize,
    contenders: &[Contender],
    runs: &[Vec<Measures>],
) -> Row {
    let over = |value: &dyn Fn(&Measures) -> f64| {
        Estimate::of(&runs.iter().map(|run| value(&run[index])).collect::<Vec<f64>>())
    };
    let ratio = |reference: Contender, value: &dyn Fn(&Measures) -> f64| {
        let base = contenders.iter().position(|c| *c == reference).unwrap_or(0);
        let each = runs.iter().map(|run| value(&run[index]) / value(&run[base]));
        Estimate::of(&each.collect::<Vec<f64>>())
    };
    let mean = |m: &Measures| m.mean[3];
    let normalised = |m: &Measures| m.normalised[3];
    Row {
        load,
        contender: contender.name(),
        normalised_delay: [0, 1, 2, 3].map(|c| over(&|m| m.normalised[c])),
        mean_delay: [0, 1, 2, 3].map(|c| over(&|m| m.mean[c])),
        slowdown: over(&|m| m.slowdown),
        slowdown_p99: over(&|m| m.slowdown_p99),
        utilisation: over(&|m| m.utilisation),
        mean_to_fifo: ratio(Contender::Fifo, &mean),
        mean_to_fair: ratio(Contender::Fair, &mean),
        normalised_to_fifo: ratio(Contender::Fifo, &normalised),
        normalised_to_fair: ratio(Contender::Fair, &normalised),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Options {
        Options {
            loads: vec![0.3, 0.8],
            seeds: 3,
            requests: 1_500,
            threads: 2,
            ..Options::default()
        }
    }

    fn mean(report: &Report, load: f64, name: &str) -> f64 {
        let found = report.rows.iter().find(|r| r.load == load && r.contender == name);
        found.unwrap().mean_delay[3].mean
    }

    #[test]
    fn contenders_come_in_the_expected_order() {
        let mut steps = Vec::new();
        let report = run(&small(), &mut |done, all| steps.push((done, all)));
        assert_eq!(steps, (1..=6).map(|n| (n, 6)).collect::<Vec<_>>());
        // At low load all bookings get their Rmax at once.
        let idle = mean(&report, 0.3, "PS fair");
        for name in ["VBLS", "FBLS", "VBLS re-planned", "PS FIFO"] {
            assert!((mean(&report, 0.3, name) / idle - 1.0).abs() < 0.001, "{name}");
        }
        assert!(mean(&report, 0.3, "TCP CUBIC") > idle);
        let vbls = mean(&report, 0.8, "VBLS");
        assert!(mean(&report, 0.8, "FBLS") > vbls);
        assert!(mean(&report, 0.8, "VBLS re-planned") <= vbls);
        assert!(mean(&report, 0.8, "TCP Reno") > mean(&report, 0.8, "PS fair"));
    }

    #[test]
    fn threads_do_not_change_results() {
        let one = run(&Options { threads: 1, ..small() }, &mut |_, _| {});
        let two = run(&small(), &mut |_, _| {});
        assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&two).unwrap());
    }
}
