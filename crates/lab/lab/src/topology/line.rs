use longhaul_pathsim::{DuplexConfig, PathConfig};
use longhaul_units::{Bytes, Rate};
use serde::Deserialize;

/// The place of the rates of a link's directions, and of the queues in front of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    /// The lab's own emulation, like everything else of a link.
    #[default]
    Emulated,
    /// The kernel's HTB, at a switch between the sending node and the emulation of the rest.
    Htb,
}

/// Why a link cannot have such a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// There is nothing for HTB to do.
    NoRate,
    /// HTB cannot do this, or it would come after the queue in place of before it.
    NotFor(&'static str),
}

impl LineKind {
    pub(super) fn check(self, paths: &DuplexConfig, mtu: u32) -> Result<(), Fault> {
        let ways = [&paths.forward, &paths.backward];
        match self {
            Self::Emulated => Ok(()),
            Self::Htb if ways.iter().all(|way| way.bottleneck.is_none()) => Err(Fault::NoRate),
            Self::Htb => ways.into_iter().try_for_each(|way| check_htb(way, mtu)),
        }
    }
}

fn check_htb(way: &PathConfig, mtu: u32) -> Result<(), Fault> {
    let Some(bottleneck) = &way.bottleneck else { return Ok(()) };
    let changes = bottleneck.rate.changes.iter().map(|(_, rate)| *rate);
    let faults = [
        (bottleneck.ecn.is_some(), "congestion marking"),
        (way.policer.is_some(), "a policer before the queue"),
        (bottleneck.queue < Bytes::new(mtu.into()), "a queue without room for a packet"),
        (changes.chain([bottleneck.rate.initial]).any(|rate| rate < LEAST), "a rate of nothing"),
    ];
    faults.iter().find(|fault| fault.0).map_or(Ok(()), |fault| Err(Fault::NotFor(fault.1)))
}

/// A byte a second: HTB knows no slower one.
const LEAST: Rate = Rate::from_bps(8);
