//! Longhaul from end to end over loopback: that copies arrive, and what happens when a peer, the
//! network, a disk or a user does not behave. Each test has a time limit and leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod addresses;
mod altered;
mod attributes;
mod checksum;
mod circuit;
mod completion;
mod confinement;
mod copies;
mod crowd;
mod datagrams;
mod descriptors;
mod dry_run;
mod fallback;
mod files_from;
mod firewall;
mod forgeries;
mod gateway;
mod globs;
mod gone;
mod gsi;
mod hard_links;
mod history;
mod hosts;
mod lab;
mod links;
mod listing;
mod memory;
mod moments;
mod outages;
mod owners;
mod pipe;
mod places;
mod preload;
mod profiles;
#[path = "../common/program.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod program;
mod queues;
mod rates;
mod reconnect;
mod refused;
#[path = "../common/relay.rs"]
mod relay;
mod reports;
mod resume;
mod rights;
mod routes;
mod rsync;
mod selection;
mod serve_config;
mod serve_watched;
mod server;
mod signals;
mod sizes;
mod ssh;
mod ssh_between;
mod ssh_tunnel;
mod stalls;
mod storage;
mod strangers;
#[path = "../common/test.rs"]
mod test;
mod threads;
#[path = "../common/trees.rs"]
mod trees;
mod unchanged;
mod unpublished;
mod unreadable;
mod vanishing;
mod verify;
mod xio;
