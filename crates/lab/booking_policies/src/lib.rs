//! Policies of booking circuits, compared: [`simulate`] runs the experiments of the VBLS paper with the
//! production calendar, and [`mod@bench`] measures how fast that calendar decides. Neither opens a file or a
//! socket. `docs/circuits.md` explains both.
//!
//! ```
//! use longhaul_booking_policies::simulate::{self, Options};
//!
//! let options =
//!     Options { loads: vec![0.5], seeds: 2, requests: 200, tcp: None, ..Options::default() };
//! let report = simulate::run(&options, &mut |_done, _all| {});
//! assert_eq!(report.rows[0].contender, "PS FIFO");
//! ```
#![forbid(unsafe_code)]

pub mod bench;
pub mod simulate;
