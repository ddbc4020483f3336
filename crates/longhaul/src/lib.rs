//! Longhaul as a library: moves files and streams between two hosts.
//!
//! [`copy`](copy()) is `longhaul cp`, [`pipe`](pipe()) is `longhaul pipe`, [`serve`](serve()) is `longhaul serve`. They
//! bind the carriers, file trees and the control connection to the pure core. All of them block, and end early
//! where another thread asks them to ([`Stop`]).

mod api;
mod attend;
mod budget;
mod circuit;
mod client;
mod copy;
mod descriptors;
mod guests;
mod ids;
mod lease;
mod links;
mod pipe;
mod probe;
mod progress;
mod recollection;
mod remarks;
mod request;
mod serve;
mod server;
mod shared;
mod sink;
mod source;

/// What each end calls itself.
pub(crate) const IMPLEMENTATION: &str = concat!("longhaul/", env!("CARGO_PKG_VERSION"));

pub use api::{
    CarrierChoice, CopyOptions, CopyReport, DEFAULT_PORT, Failures, Hosts, LinkReport, Location,
    ServeEvent, ServeOptions, Served, Snapshot,
};
pub use budget::MEMORY_LEAST;
pub use circuit::{
    CircuitBooking, CircuitOptions, CircuitReport, CircuitWant, CircuitWish, Circuits, NoCircuit,
    ServiceError,
};
pub use copy::{CopyError, Kept, copy};
pub use links::{LinkChoice, LinkUse};
pub use longhaul_carriers::losses::{LossLog, ToldLoss};
pub use longhaul_control::Via;
pub use longhaul_sys::stop::Stop;
pub use pipe::{PipeError, PipeOptions, PipeReport, SoFar, pipe, pipe_name_is_valid};
pub use probe::{ProbeError, ProbeOptions, ProbeReport, probe};
pub use progress::Progress;
pub use recollection::HistoryReport;
pub use serve::serve;
pub use server::ServeError;
