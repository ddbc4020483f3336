//! Circuit reservations around the pure calendar of `longhaul-calendar`.
//!
//! The service: a pure [`ledger`] decides, a [`store`] keeps its log, [`service`] binds the two on
//! one thread and carries bookings out through [`drivers`], [`server`] offers it as REST in the
//! words of [`api`], and [`client`] asks for it. `docs/circuits.md` explains all of it.
//!
//! The contract: a booking that was acknowledged is durable, capacity is never exceeded, promised
//! finish times only ever improve, and whatever is refused has changed nothing. The crate does not
//! move data and does not end TLS.
#![forbid(unsafe_code)]

pub mod api;
pub mod archive;
pub mod client;
mod clock;
pub mod drivers;
pub mod ledger;
pub mod server;
pub mod service;
pub mod store;
