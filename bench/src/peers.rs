//! Other programs over the same two namespaces, one connection or flow each unless named otherwise.

use std::io;
use std::time::Duration;

use longhaul_peers::{Job, Transport, find};

use crate::link::Link;
use crate::samples::{Row, Sample};

/// A row for each.
pub(crate) fn rows() -> Vec<(Row, &'static str)> {
    let row = |name| (Row { name, work: WORK, samples: Vec::new() }, name);
    NAMES.map(row).into()
}

/// Has a contender move its data.
pub(crate) fn measure(link: &Link, quick: bool, name: &str) -> io::Result<Sample> {
    let testbed = link.testbed().ok_or_else(|| {
        io::Error::other("other programs are run only between network namespaces, which takes root")
    })?;
    let contender = find(name).map_err(io::Error::other)?;
    let (from, to) = testbed.ends();
    let bytes = if quick { BYTES / 10 } else { BYTES };
    let job = Job::new(from.name(), to.name(), bytes, PATIENCE);
    let outcome = contender.run(testbed, &job).map_err(io::Error::other)?;
    let transport = match outcome.transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    };
    let control = outcome.congestion_control.map(|name| format!(", {name}"));
    Ok(Sample {
        bytes: outcome.bytes,
        seconds: outcome.seconds,
        cpu_send: Some(outcome.cpu_send),
        cpu_receive: Some(outcome.cpu_receive),
        cpu_relay: None,
        note: Some(format!("{}{}, by {transport}", outcome.version, control.unwrap_or_default())),
    })
}

/// Names of the rows of [`crate::report::BenchOptions::peers`], which are also the contenders' names.
const NAMES: [&str; 6] = [
    "iperf3 cubic x1",
    "iperf3 bbr x1",
    "gridftp -p 4",
    "gridftp bbr -p 4",
    "gridftp -udt",
    "udt4",
];
const WORK: &str = "nothing; whole command";
const BYTES: u64 = 1_000_000_000;
const PATIENCE: Duration = Duration::from_secs(60);
