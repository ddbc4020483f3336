//! Whole transfers under a virtual clock, from one seed (docs/simulation.md).
//!
//! Two hosts run the handshake, the engine's lanes and the objects' source and sink over emulated
//! paths, a control connection and a disk that loses power, while files change, hosts crash and
//! somebody on the path injects packets. Rules are checked at every step; the first that does not
//! hold ends the world. Nothing here is a socket, a thread or a clock, and equal seeds give equal
//! worlds on every machine.
//!
//! Not simulated: TLS and ciphers (a cheap keyed tag stands for them), the kernel's TCP, real
//! files, several threads.
//!
//! Contract: a [`Scenario`] says everything; [`World::run`] ends with a [`Report`], or with
//! [`Broken`] and the rule. `cargo xtask swarm` runs many drawn scenarios.
//!
//! ```
//! use longhaul_sim::{Scenario, World};
//!
//! let report = World::new(Scenario::new(1), false).run()?;
//! assert_eq!(report.runs.len(), 1);
//! # Ok::<(), longhaul_sim::Broken>(())
//! ```
#![forbid(unsafe_code)]

mod answers;
mod connection;
mod drain;
mod draw;
mod driver;
mod environment;
mod feed;
mod files;
mod hashes;
mod host;
mod lane;
mod network;
mod packet;
mod prepared;
mod protection;
mod records;
mod scenario;
mod sink;
mod source;
mod staging;
mod tls;
mod trace;
mod wires;
mod world;

pub use scenario::{
    Accident, Choice, Circuit, Directions, End, Fault, Meddles, Meddling, Scenario, Silence,
    Taking, TcpOpens,
};
pub use world::{Broken, LaneCounts, Report, World};
