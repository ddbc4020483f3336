//! Circuit reservations around the pure calendar of `longhaul-calendar`.
//!
//! The service: a pure [`ledger`] decides, a [`store`] keeps its log, [`service`] binds the two on
//! one thread and carries bookings out through [`drivers`], [`server`] offers it as REST in the
//! words of [`api`], and [`client`] asks for it. Beside it, [`simulate`] runs the experiments of
//! the VBLS paper with the production calendar and [`mod@bench`] measures how fast that calendar
//! decides; these two open no file and no socket. `docs/circuits.md` explains all of it.
//!
//! The contract: a booking that was acknowledged is durable, capacity is never exceeded, promised
//! finish times only ever improve, and whatever is refused has changed nothing. The crate does not
//! move data and does not end TLS.
//!
//! ```
//! use longhaul_circuits::simulate::{self, Options};
//!
//! let options =
//!     Options { loads: vec![0.5], seeds: 2, requests: 200, tcp: None, ..Options::default() };
//! let report = simulate::run(&options, &mut |_done, _all| {});
//! assert_eq!(report.rows[0].contender, "PS FIFO");
//! ```
#![forbid(unsafe_code)]

pub mod api;
pub mod archive;
pub mod bench;
pub mod client;
mod clock;
pub mod drivers;
pub mod ledger;
pub mod server;
pub mod service;
pub mod simulate;
pub mod store;
