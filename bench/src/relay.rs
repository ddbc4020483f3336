//! Programs that pass a connection on, in a namespace between the two hosts: plain veth, nothing emulated.

use std::io;
use std::time::Duration;

use longhaul_lab::Testbed;
use longhaul_peers::{Job, Passage, Waypoint, find};

use crate::samples::{Row, Sample};

/// A row for each, with the contender's name.
pub(crate) fn rows() -> Vec<(Row, &'static str)> {
    let row = |(name, contender)| (Row { name, work: WORK, samples: Vec::new() }, contender);
    ROWS.map(row).into()
}

/// Has a contender move its data, through a program at the node between where it needs one.
pub(crate) fn measure(mtu: u16, quick: bool, name: &str) -> io::Result<Sample> {
    let _ = longhaul_lab::clean_up()?;
    let testbed = Testbed::row(&["host", RELAY, "peer"], mtu.into()).map_err(io::Error::other)?;
    let contender = find(name).map_err(io::Error::other)?;
    let mut job = Job::new("host", "peer", if quick { BYTES / 100 } else { BYTES }, PATIENCE);
    if contender.passage() == Passage::Relayed {
        let congestion_control = Some("cubic".into());
        job.via = vec![Waypoint { congestion_control, ..Waypoint::new(RELAY) }];
    }
    let outcome = contender.run(&testbed, &job).map_err(io::Error::other)?;
    Ok(Sample {
        bytes: outcome.bytes,
        seconds: outcome.seconds,
        cpu_send: Some(outcome.cpu_send),
        cpu_receive: Some(outcome.cpu_receive),
        cpu_relay: outcome.cpu_between.first().copied(),
        note: Some(outcome.version),
    })
}

/// Names of rows, and of their contenders: the first is routed.
const ROWS: [(&str, &str); 3] = [
    ("relay: none, routed", "cubic x1"),
    ("relay: gateway", "gateways cubic x1"),
    ("relay: HAProxy", "haproxy cubic x1"),
];
const WORK: &str = "nothing; TCP cubic through a third namespace";
const RELAY: &str = "relay";
/// Some seconds at tens of Gb/s.
const BYTES: u64 = 10_000_000_000;
const PATIENCE: Duration = Duration::from_secs(120);
