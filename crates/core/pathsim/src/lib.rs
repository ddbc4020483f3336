//! Seeded, deterministic emulation of network paths: delay, jitter, rate and queue, ECN marking,
//! policing, loss of several kinds, reordering, duplication, corruption, outages, MTU black holes
//! and address rebinding.
//!
//! A [`Path`] is one direction. It is offered packets by length and ECN field alone and answers
//! with the [`Fate`] of each; it never sees a payload, never reads a clock and keeps no packets, as
//! the time at which a packet leaves a first-in first-out queue is known when it enters. A [`Link`]
//! is a path that keeps the packets until they arrive ([`Flights`]), a [`Duplex`] is a link each way.
//! [`PathConfig`] describes a path, [`Preset`] names some.
//!
//! The crate does not parse command lines, move bytes or emulate hosts, and its queue is a single
//! first-in first-out one: there is no fair queueing and no cross traffic but what is offered.
//!
//! All arithmetic is on integers and every random element has its own stream, so a seed means the
//! same on every machine, whatever else is switched on.
//!
//! ```
//! use longhaul_pathsim::{Ecn, Link, PathConfig, Probability};
//! use longhaul_units::{Bytes, Duration, Instant, Rate};
//!
//! let config = PathConfig::default()
//!     .delay(Duration::from_millis(50))
//!     .rate(Rate::from_gbps(1), Bytes::new(12_500_000))
//!     .loss(Probability::from_ppm(1_000));
//! let mut link = Link::new(&config, 42, Instant::ZERO)?;
//!
//! let fate = link.push(Instant::ZERO, 1_500, Ecn::NotEct, "first");
//! let arrival = fate.arrival().ok_or("lost")?;
//! // 12 us on the line at 1 Gb/s, then the delay.
//! assert_eq!(arrival.at, Instant::from_nanos(50_012_000));
//! assert_eq!(link.next_timeout(), Some(arrival.at));
//! assert_eq!(link.poll(arrival.at).map(|delivery| delivery.item), Some("first"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod duplex;
mod flights;
mod fluid;
mod hazards;
mod jitter;
mod link;
mod loss;
mod path;
mod preset;
mod probability;
mod queue;
mod random;
mod schedule;
mod stats;

pub use config::{ConfigError, Duplication, PathConfig, Reordering};
pub use duplex::{Direction, Duplex, DuplexConfig};
pub use flights::Flights;
pub use hazards::Flip;
pub use jitter::{Jitter, JitterShape};
pub use link::{Delivery, Link};
pub use longhaul_units::Ecn;
pub use loss::GilbertElliott;
pub use path::{Arrival, Fate, Path, Train};
pub use preset::{Preset, UnknownPreset};
pub use probability::{ParseProbabilityError, Probability};
pub use queue::{Bottleneck, EcnMarking, Policer, QueueStats};
pub use schedule::{Outages, PeriodicOutage, RateSchedule, Rebindings};
pub use stats::{DropReason, PathStats};
