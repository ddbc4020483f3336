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
pub mod processes;
mod pump;
mod raw;
mod relay;
mod report;
mod rows;
mod samples;
pub mod table;

use std::io;

use longhaul::Stop;

pub use self::report::{BenchOptions, BenchReport};
pub use self::samples::{Row, Sample, Speed, Unmeasured};

use self::link::Link;

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
