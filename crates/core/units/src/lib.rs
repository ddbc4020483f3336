//! Types that every Longhaul crate shares: time, rate, size, the number spaces of a
//! lane, marks of congestion, what a transfer is held up by and loses, and what memory of paths was for it.
//!
//! The crate holds no protocol logic. All arithmetic is on integers, so that a run is the same on
//! every machine; the only clock is the one the caller passes in.
//!
//! ```
//! use longhaul_units::{Bytes, Duration, Instant, Rate};
//!
//! let rate: Rate = "1.6Gbps".parse().unwrap();
//! assert_eq!(rate.bytes_in(Duration::from_millis(10)), 2_000_000);
//! assert_eq!(rate.time_for(2_000_000), Duration::from_millis(10));
//! let start = Instant::from_nanos(5);
//! assert_eq!((start + rate.time_for(200)) - start, Duration::from_micros(1));
//! assert_eq!("12MB".parse::<Bytes>().unwrap(), Bytes::new(12_000_000));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bottleneck;
mod bytes;
mod dscp;
mod ecn;
mod entry_code;
mod losses;
mod memory_use;
mod number;
mod quantity;
mod range_set;
mod rate;
mod registry;
mod text;
mod time;

pub use bottleneck::Bottleneck;
pub use bytes::Bytes;
pub use core::time::Duration;
pub use dscp::Dscp;
pub use ecn::{Ecn, EcnCounts};
pub use entry_code::EntryCode;
pub use losses::{Cause, Losses};
pub use memory_use::MemoryUse;
pub use number::{Extent, LaneId, ObjectId, PacketNumber, PathId, StreamId};
pub use quantity::{ParseQuantityError, parse_time};
pub use range_set::RangeSet;
pub use rate::Rate;
pub use text::{acts_on_terminals, counted, shortened, shown, shown_path, without_numbers};
pub use time::Instant;
