//! Measures Longhaul on this machine: each figure stands beside the limit that was measured in the
//! same run.
//!
//! Absolute figures drift with the machine and its neighbours, so the runs of all rows are
//! interleaved and a row's result is the median, also as a ratio to a raw UDP flow without any
//! protocol. Nothing here asserts a speed: docs/performance.md says how to read the figures.
//! Other programs are measured beside it where [`BenchOptions::peers`] asks for them.
//!
//! ```no_run
//! use longhaul_bench::{BenchOptions, run, table};
//!
//! let options = BenchOptions::new("target/release/longhaul".into());
//! let stop = longhaul::Stop::default();
//! let report = run(&options, &stop, &mut |step| eprintln!("{step}"))?;
//! println!("{}", table::text(&report));
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod compute;
mod copies;
mod crowd;
mod engine;
mod link;
pub mod memory_to_memory;
mod peers;
mod pump;
mod raw;
mod relay;
mod rows;
mod samples;
pub mod table;

use std::io;
use std::path::PathBuf;

use longhaul::Stop;

pub use self::samples::{Row, Sample, Speed, Unmeasured};

use self::link::Link;

/// Measurements to make.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The program whose `serve` and `cp` are measured.
    pub program: PathBuf,
    /// Runs of each row; the median counts.
    pub runs: usize,
    /// MTU of the veth pair, 1280 to 65535.
    pub mtu: u16,
    /// Small amounts of data: shows that everything works, not how fast it is.
    pub quick: bool,
    /// Other programs too, as far as they are installed.
    pub peers: bool,
    /// Only rows with one of these in their name, beside the first; all if there are none.
    pub only: Vec<String>,
}

impl BenchOptions {
    /// Five runs of everything at an MTU of 1500.
    pub fn new(program: PathBuf) -> Self {
        Self { program, runs: 5, mtu: 1500, quick: false, peers: false, only: Vec::new() }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}

/// Results of a benchmark.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// Options of the run.
    pub options: BenchOptions,
    /// Where data went: the pair of namespaces, or loopback and why.
    pub link: String,
    /// The machine.
    pub machine: String,
    /// Threads of its processor.
    pub threads: usize,
    /// Load average over a minute, before and after.
    pub load: [f64; 2],
    /// Transfers; the first is the limit that the others are compared with.
    pub rows: Vec<Row>,
    /// Speeds measured only once per run and without a network.
    pub speeds: Vec<Speed>,
    /// Rows that could not be measured, and why.
    pub unmeasured: Vec<Unmeasured>,
}

impl BenchReport {
    /// CPU-seconds per 10^9 bytes of what `cp aead` cannot do without, each part measured alone:
    /// the first row's both ends, encrypting, decrypting, hashing twice, reading and writing.
    pub fn least_cpu_of_copy(&self) -> Option<f64> {
        let limit = self.rows.first()?;
        Some(limit.cpu_send()? + limit.cpu_receive()? + compute::parts_of_copy(&self.speeds)?)
    }
}

/// Measures everything; tells `progress` what it is at. Between two rows it heeds `stop`.
///
/// # Errors
/// No file system for the copies, or no memory; no row of the name asked for; `Interrupted` after a
/// stop. What fails in one row leaves the others and is in [`BenchReport::unmeasured`].
pub fn run(
    options: &BenchOptions,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport, io::Error> {
    let link = Link::new(options.mtu);
    let before = rows::load();
    let files = copies::Files::new(options.quick)?;
    let mut rows = rows::transfers(options.peers);
    let limit = rows.remove(0);
    rows.retain(|(row, _)| options.wants(row.name));
    if rows.is_empty() && !options.wants(limit.0.name) && !options.wants(COMPUTE) {
        let unknown = format!("no row is called {}", options.only.join(" or "));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, unknown));
    }
    rows.insert(0, limit);
    let mut measured: Vec<Row> = rows.iter().map(|(row, _)| row.clone()).collect();
    let mut unmeasured: Vec<Unmeasured> = Vec::new();
    let mut speeds = Vec::new();
    for run in 0..options.runs.max(1) {
        for (index, (row, method)) in rows.iter().enumerate() {
            if unmeasured.iter().any(|failed| failed.name == row.name) {
                continue;
            }
            if stop.is_requested() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            progress(&format!("run {} of {}: {}", run + 1, options.runs.max(1), row.name));
            match method.measure(&link, options, &files) {
                Ok(sample) => measured[index].samples.push(sample),
                Err(error) => {
                    unmeasured.push(Unmeasured { name: row.name.into(), reason: error.to_string() })
                }
            }
        }
        if options.wants(COMPUTE) {
            progress(&format!("run {} of {}: {COMPUTE}", run + 1, options.runs.max(1)));
            compute::measure(options.quick, &files, &mut speeds)?;
        }
    }
    measured.retain(|row| !row.samples.is_empty());
    Ok(BenchReport {
        options: options.clone(),
        link: link.describe(),
        machine: rows::machine(),
        threads: rows::threads(),
        load: [before, rows::load()],
        rows: measured,
        speeds,
        unmeasured,
    })
}

/// Name of the part that is measured without a network.
const COMPUTE: &str = "cryptography, hashing and files";
