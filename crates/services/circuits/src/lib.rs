//! Circuit reservations around the pure calendar of `longhaul-calendar`.
//!
//! [`simulate`] runs the experiments of the VBLS paper with the production calendar and [`mod@bench`]
//! measures how fast that calendar decides. Neither opens a file or a socket: they take options
//! and return results that serialise. `docs/circuits.md` explains both and states the results.
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

pub mod bench;
pub mod ledger;
pub mod simulate;
pub mod store;
