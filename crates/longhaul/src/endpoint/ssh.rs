//! A server that ssh starts for one client, and hands its token (docs/protocol.md section 10).

pub mod arrivals;
pub mod asked;
pub mod between;
pub mod command;
pub mod grant;
mod meeting;
pub mod onward;
mod paths;
pub mod serve;
pub mod start;
pub mod started;
