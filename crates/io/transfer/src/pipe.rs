//! `longhaul pipe`: bytes from one client of a server to another, in order (docs/pipe.md).
//!
//! [`Feed`] is the end that sends, [`Drain`](drain::Drain) the end that receives. A client is one of
//! them, between a connection and a file of its own; the server is a drain and a feed, and passes
//! what it verified from one to the other without a copy ([`Pipes`] joins them).

mod api;
mod client;
mod drain;
mod feed;
mod rooms;

pub use api::{PipeError, PipeOptions, PipeReport, pipe_name_is_valid};
pub use client::pipe;

pub(crate) use feed::Feed;
pub(crate) use rooms::{Pipes, Seat};
