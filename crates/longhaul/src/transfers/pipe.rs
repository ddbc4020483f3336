//! `longhaul pipe`: bytes from one client of a server to another, in order (docs/pipe.md).
//!
//! [`feed`] reads for the end that sends, [`drain`] writes for the end that receives, each between a
//! connection and a file of a client. The server receives over one connection and passes what it
//! verified on to another without a copy ([`Pipes`] joins them).

mod api;
mod client;
mod drain;
mod feed;
mod rooms;

pub use api::{PipeOptions, PipeReport, pipe_name_is_valid};
pub use client::pipe;

pub(crate) use rooms::Pipes;
