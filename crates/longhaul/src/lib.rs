//! Longhaul as a library: moves files and streams between two hosts.
//!
//! [`copy`](copy()) is `longhaul cp`, [`pipe`](pipe()) is `longhaul pipe`, [`serve`](serve()) is `longhaul serve`,
//! [`list`](list()) is `longhaul ls`, [`leftovers`](leftovers()) is `longhaul resume`, [`verify`](verify()) is `longhaul verify`, [`probe`](probe()) is `longhaul probe`. They bind the carriers, file
//! trees and the control connection to the pure core. All of them block, and end early where another thread
//! asks them to ([`Stop`]).
//!
//! Each option stands in one struct: those of the connection in [`ConnectOptions`], which [`CopyOptions`],
//! [`PipeOptions`] and [`ListOptions`] hold. `new` gives the defaults of the command line; fields change them.

mod api;
mod connection;
mod directory;
mod endpoint;
mod error;
mod implementation;
mod memory;
mod options;
mod place;
mod progress;
mod remarks;
#[cfg(test)]
mod testing;
mod transfers;

pub use api::{
    Action, CopyReport, DeletedNames, EndedEntries, EndedEntry, Hosts, LinkReport, ServeEvent,
    ServeFailure, Served, Snapshot, TransferAccount,
};
pub use connection::circuit::{
    CircuitBooking, CircuitOptions, CircuitReport, CircuitWant, CircuitWish, Circuits, NoCircuit,
    ServiceError,
};
pub use connection::links::{LinkChoice, LinkUse};
pub use connection::path_history::HistoryReport;
pub use connection::steering::RateSchedule;
pub use directory::open_directory;
pub use endpoint::serve::{Server, serve};
pub use endpoint::ssh::arrivals::SshArrivals;
pub use endpoint::ssh::between::{BetweenOptions, copy_between};
pub use endpoint::ssh::command::{InvalidSshHost, SshHost, SshOptions};
pub use endpoint::ssh::grant::Grant;
pub use endpoint::ssh::onward::OnwardCopy;
pub use endpoint::ssh::serve::{SshServeOptions, serve_over_ssh};
pub use endpoint::ssh::start::start_by_ssh;
pub use endpoint::ssh::started::SshServer;
pub use error::{Error, ErrorKind, Kept, Side};
pub use longhaul_carriers::losses::{LossLog, ReportedLoss};
pub use longhaul_control::Via;
pub use longhaul_files::{
    HashList, HashListError, NamesBesideRules, UnfinishedCopies, UnfinishedCopy, discard,
    list_beside_rules,
};
pub use longhaul_history::History;
pub use longhaul_objects::{ChangeKind, NameList, NameListError, NamedChange};
pub use longhaul_session::{KeyId, Token};
pub use longhaul_sys::stop::Stop;
pub use longhaul_units::{Bottleneck, Bytes, Duration, EntryCode, Losses, Rate};
pub use longhaul_wire::{
    CloseCode, Deletes, FilterKind, FilterRule, KeptAttributes, Listed, ListedKind, PipeRole,
    Protect, SshPurpose,
};
pub use memory::budget::MEMORY_LEAST;
pub use options::{
    Access, CarrierChoice, ConnectOptions, CopyOptions, CopyPaths, CopyRecords, DEFAULT_PORT,
    DISCARD_AFTER, Endpoint, Limits, ListedNames, Route, ServeOptions,
};
pub use place::escaped;
pub use progress::Progress;
pub use transfers::copy::copy;
pub use transfers::leftovers::{LeftoversOptions, LeftoversReport, leftovers};
pub use transfers::list::{ListOptions, ListReport, ListSink, list};
pub use transfers::pipe::{PipeOptions, PipeReport, pipe, pipe_name_is_valid};
pub use transfers::probe::{ProbeReport, probe};
pub use transfers::verify::{
    Finding, FindingKind, FindingSink, VerifyOptions, VerifyPlace, VerifyReport, verify,
};
