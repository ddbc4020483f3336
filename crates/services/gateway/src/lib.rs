//! Session gateways (docs/gateways.md): each segment of a path gets the transport, buffers and
//! rate that suit it (Phoebus sections 2.1 and 4).
//!
//! - [`Gateway`]: listeners, threads and their end; [`GatewaySettings`] says what it does, and
//!   [`config`] reads that from what an operator writes.
//! - [`entry`]: protocols of clients, [`transport`]: carriers of segments, [`policy`]: allowed
//!   targets, [`routes`] and [`segments`]: the next gateways, and the settings towards them.
//! - [`session`] and [`pump`]: one session and its bytes, without sockets, clock or randomness of
//!   their own, so that a simulation runs the code that ships.
//!
//! Payload is never looked at, and moves inside the kernel where both segments allow it. A slow
//! reader slows its own session only: a session with nothing under way holds no buffer.
//!
//! `longhaul-relay` defines the bytes before the payload (docs/relay.md).

mod clocks;
pub mod config;
mod ending;
pub mod entry;
mod event;
mod gateway;
mod http;
mod listener;
mod memory;
mod meter;
pub mod policy;
pub mod pump;
mod resolver;
pub mod routes;
pub mod segments;
pub mod session;
pub mod shared;
mod spares;
pub mod status;
mod status_source;
mod strangers;
pub mod transport;
mod worker;

pub use ending::{Ending, Summary};
pub use event::{Event, Report};
pub use gateway::{Gateway, GatewaySettings, StartError};
