//! Longhaul as a library: moves files and streams between two hosts.
//!
//! [`copy`](copy()) is `longhaul cp`, [`pipe`](pipe()) is `longhaul pipe`, [`serve`](serve()) is `longhaul serve`,
//! [`list`](list()) is `longhaul ls`, [`probe`](probe()) is `longhaul probe`. They bind the carriers, file
//! trees and the control connection to the pure core. All of them block, and end early where another thread
//! asks them to ([`Stop`]).
//!
//! Each option stands in one struct: those of the connection in [`ConnectOptions`], which [`CopyOptions`],
//! [`PipeOptions`] and [`ListOptions`] hold. `new` gives the defaults of the command line; fields change them.

mod api;
mod attend;
mod budget;
mod circuit;
mod client;
mod copy;
mod descriptors;
mod error;
mod guests;
mod ids;
mod lease;
mod links;
mod list;
mod options;
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
    CopyReport, EndedEntries, EndedEntry, Hosts, LinkReport, ServeEvent, ServeFailure, Served,
    Snapshot,
};
pub use budget::MEMORY_LEAST;
pub use circuit::{
    CircuitBooking, CircuitOptions, CircuitReport, CircuitWant, CircuitWish, Circuits, NoCircuit,
    ServiceError,
};
pub use copy::copy;
pub use error::{Error, ErrorKind, Kept, Side};
pub use links::{LinkChoice, LinkUse};
pub use list::{ListOptions, ListReport, ListSink, list};
pub use longhaul_carriers::losses::{LossLog, ReportedLoss};
pub use longhaul_control::Via;
pub use longhaul_history::History;
pub use longhaul_session::Token;
pub use longhaul_sys::stop::Stop;
pub use longhaul_units::{Bytes, Duration, EntryCode, Rate};
pub use longhaul_wire::{CloseCode, Listed, ListedKind, PipeRole, Protect};
pub use options::{
    CarrierChoice, ConnectOptions, CopyOptions, CopyPaths, DEFAULT_PORT, Endpoint, Route,
    ServeOptions,
};
pub use pipe::{PipeOptions, PipeReport, pipe, pipe_name_is_valid};
pub use probe::{ProbeReport, probe};
pub use progress::Progress;
pub use recollection::HistoryReport;
pub use serve::serve;
