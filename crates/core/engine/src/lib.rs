//! The transport engine: what to send, what is lost, when to speak.
//!
//! Sans-IO: no socket, clock, thread, key or payload. A [`Lane`] is a sequence of packets of a connection,
//! which goes over one network path at a time, to another and back; a [`Path`] is the rate control that
//! the lanes of one network path share. See [`Lane`] for the
//! contract between engine and driver, and docs/protocol.md for the bytes.
//!
//! ```
//! use longhaul_engine::{Lane, LaneConfig, Path, Plan, Role};
//! use longhaul_rate_control::{Governor, Profile};
//! use longhaul_units::{Duration, Instant, LaneId};
//! use longhaul_wire::ConnectionId;
//!
//! let now = Instant::from_nanos(0);
//! let chosen = Profile::wished(Some("auto"), None, []).unwrap();
//! let controller = chosen.controller(now, 1500, None);
//! let governor = Governor::new(now, chosen.profile.heeds_receiver);
//! let rtt = Duration::from_millis(100);
//! let mut path = Path::new(now, controller, governor, rtt, 1);
//! let mut config = LaneConfig::new(ConnectionId(7), LaneId(0), Role::Client, 1);
//! config.remote = Some(([127, 0, 0, 1], 7420).into());
//! let mut lane = Lane::new(now, config);
//! let mut plan = Plan::default();
//! // A client speaks first: its CHALLENGE is due at once.
//! let first = lane.poll_transmit(now, &mut path, 44, &mut plan).unwrap();
//! assert_eq!((first.first.get(), first.packets), (0, 1));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod address;
mod config;
mod control;
mod event;
mod lane;
mod lane_paths;
mod ledger;
mod mtu;
mod outbox;
mod path;
mod reception;
mod repair;
mod stats;
mod stream;

pub use address::Role;
pub use config::LaneConfig;
pub use event::{Closed, Event};
pub use lane::{
    IPV4_UDP_HEADERS, IPV6_UDP_HEADERS, Lane, NotSent, Onward, Plan, StreamError, Transmit, What,
};
pub use lane_paths::Carried;
pub use outbox::Run;
pub use path::{Path, Suspension};
pub use reception::Arrival;
pub use stats::LaneStats;
