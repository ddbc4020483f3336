//! A testbed on one machine: hosts and gateways as network namespaces, long paths between them, and
//! the means to trust both.
//!
//! A [`Topology`] says which nodes there are and what each link does to packets; a [`Testbed`] is
//! one in operation. Any program runs in it, over real sockets of the kernel's stack. Packets cross
//! a link through a pair of TUN devices: `longhaul-pathsim` decides about each segment, a thread
//! moves them, super-packets whole wherever their segments fare alike. What is lost is counted with
//! the reason, and logged if asked for.
//!
//! The crate draws no conclusions about protocols, needs Linux 6.2, and root or a user namespace of
//! its own (see [`longhaul_sys::netns::become_root_of_own`]).
//!
//! ```no_run
//! use std::process::Command;
//!
//! use longhaul_lab::{Builtin, Testbed, TestbedOptions};
//!
//! longhaul_lab::clean_up()?;
//! let topology = Builtin::find("phoebus").expect("a built-in one").topology();
//! let testbed = Testbed::new(&topology, &TestbedOptions::default())?;
//! let host = testbed.host("host").expect("a node of that topology");
//! let mut command = Command::new("ping");
//! command.args(["-c", "3", "peer"]);
//! testbed.spawn(host, command)?.wait()?;
//! let wan = testbed.topology().link("wan").expect("a link of that topology");
//! println!("{}", testbed.stats(wan)?.forward.path);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod check;
pub mod disk;
mod emulator;
pub mod load;
mod packet;
pub mod pump;
pub mod signals;
pub mod testbed;
pub mod topology;

pub use emulator::{
    DirectionRecord, DirectionStats, LatenessSummary, LineStats, LinkRecord, LinkStats, Loss,
};
pub use longhaul_pathsim::Direction;
pub use packet::Flow;
pub use testbed::{
    Cleaned, Host, OtherCounts, OtherPath, Place, Testbed, TestbedError, TestbedOptions, clean_up,
    shared_folder,
};
pub use topology::{
    Builtin, BurstLoss, Conditions, Duplicate, Egress, JitterSpec, LineKind, LinkSpec, Marking,
    Node, Outage, PolicerSpec, RateChange, Reorder, Topology, TopologyError, parse_time,
    parse_time_up_to,
};
