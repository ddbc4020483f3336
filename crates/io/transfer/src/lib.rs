//! Drivers that bind the pure core to sockets, files and threads.
//!
//! [`copy`](client::copy) is `longhaul cp`, [`serve`](server::serve) is `longhaul serve`. Below
//! them: lanes on threads of their own, a pool of 1 MiB buffers, file trees, and the control
//! connection. Blocking threads and batches, no async runtime (ARCHITECTURE.md).

mod api;
pub mod buffer;
pub mod carrier;
pub mod control;
pub mod files;
pub(crate) mod lane;
mod protection;
pub mod tcp;

pub use api::{
    CarrierChoice, CopyOptions, CopyReport, DEFAULT_PORT, Location, ServeEvent, ServeOptions,
    Snapshot, Stop,
};
