//! Measurements to make, and what came of them.

use std::path::PathBuf;

use crate::compute;
use crate::samples::{Row, Speed, Unmeasured};

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

    /// True if the row is to be measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
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
