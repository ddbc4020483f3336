//! Hostile peers against the program: who has no token, who sits between, and a client or server
//! that holds one. They speak the protocol from their own small code, written from
//! docs/protocol.md; docs/threats.md says which test shows what.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod attributes;
mod bookings;
mod bytes;
mod carrier;
mod carriers;
mod clients;
mod crowds;
mod drawn;
mod floods;
mod globs;
mod greedy;
mod honest;
mod host;
mod http;
mod keys;
mod listings;
mod middle;
mod names;
mod oracle;
mod peer;
mod pipes;
mod places;
mod prepared;
#[path = "../common/program.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod program;
#[path = "../common/relay.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod relay;
mod script;
mod servers;
mod silence;
mod sizes;
mod ssh;
mod strangers;
#[path = "../common/test.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod test;
mod threats;
mod tls;
#[path = "../common/trees.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod trees;
mod users;
mod words;
