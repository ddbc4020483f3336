//! The two ends of a connection: a client, a server, and what a server does with a request.

pub mod client;
pub mod guests;
pub mod policy;
pub mod request;
pub mod serve;
pub mod server;
pub mod ssh;
