//! Programs that move data, really run across a testbed: Longhaul itself, the kernel's TCP, GridFTP,
//! UDT and others, each started, timed, read and ended in the same way.
//!
//! A [`Contender`] moves a [`Job`] from one node of a testbed to another and gives an [`Outcome`].
//! What carried the data is counted in the network namespaces, not believed; congestion control is
//! set by name and read back; CPU time is that of all processes at each end. Every run has a time
//! limit, and nothing that it started is left when it returns. The crate compares nothing and
//! repeats nothing, and installs packages only through [`install()`].
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use longhaul_lab::{Builtin, Testbed, TestbedOptions};
//! use longhaul_peers::{Job, Medium, find};
//!
//! let topology = Builtin::find("two-hosts").expect("a built-in one").topology();
//! let testbed = Testbed::new(&topology, &TestbedOptions::default())?;
//! let job = Job::new("host", "peer", 250_000_000, Duration::from_secs(60));
//! let outcome = find("cubic x8")?.run(&testbed, &job)?;
//! println!("{}: {:.2} s by {:?}", outcome.version, outcome.seconds, outcome.transport);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod account;
mod booked;
mod contender;
mod counters;
mod files;
mod gateways;
mod gridftp;
mod haproxy;
mod install;
mod iperf3;
mod longhaul;
mod over_tcp;
mod processes;
mod programs;
mod reader;
mod registry;
mod relays;
mod rsync;
mod session;
mod srt;
mod sshd;
mod stunnel;
mod tar;
mod tcp;
mod udt;
mod udt_gateways;
mod uftp;
mod xrootd;

pub use self::contender::{
    Absent, Booking, Contender, ContenderError, Job, Medium, Outcome, PacketId, Passage, Presence,
    ReportedLoss, Sample, Transport, Waypoint,
};
pub use self::install::{STARTS_SERVER, install};
pub use self::longhaul::commands::run_this_executable;
pub use self::registry::{Unknown, all, find};
pub use self::sshd::Sshd;
