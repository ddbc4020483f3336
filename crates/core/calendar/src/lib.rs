//! The calendar of circuits: how much of each link is free when, and what is booked on it.
//!
//! Implements Varying-Bandwidth List Scheduling and its relatives (Veeraraghavan and others,
//! "Scheduling and transport for file transfers on high-speed optical circuits", Journal of Grid
//! Computing 1, 2003; here "the VBLS paper"). `docs/circuits.md` tells what each operation means.
//!
//! The crate knows ticks and channels only; a [`Grid`] says what they stand for. It has no clock
//! (the caller advances the [`Book`]), no store, no users and no prices: those belong to the
//! service. All arithmetic is exact, so the same operations give the same book everywhere.
//!
//! The contract: capacity is never overbooked, no booking exceeds its Rmax, an operation that
//! fails changes nothing, and a promised finish only ever gets earlier.
//!
//! ```
//! use longhaul_calendar::{Book, BookConfig, FileRequest, Grid, Margin, Path, Request};
//! use longhaul_units::{Bytes, Duration, Rate};
//!
//! let grid = Grid::new(Duration::from_millis(100), Rate::from_gbps(10)).unwrap();
//! let mut book = Book::new(BookConfig::default(), 0);
//! let link = book.add_link(4);
//!
//! // 5 GB with 1 % margin over at most two channels, from tick 50 on.
//! let volume = grid.volume(Bytes::new(5_000_000_000), Margin::from_ppm(10_000)).unwrap();
//! let request = Request::File(FileRequest::new(volume, 2, 50));
//! let id = book.book(&request, &[Path::single(link)]).unwrap();
//! assert_eq!(format!("{:?}", book.get(id).unwrap().vector), "{(50, 71, 2)}");
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod book;
mod capacity;
mod explain;
mod fill;
mod grid;
mod links;
mod path;
mod place;
mod profile;
mod request;
pub mod testing;
mod vector;
mod window;

#[cfg(test)]
mod tests;

pub use book::{Book, BookConfig, BookError, Booking, BookingId, Moved, Order};
pub use capacity::{Calendar, Capacity, FOREVER, ReserveError, Segment, Walk};
pub use explain::{Alternative, Binding, Explanation};
pub use grid::{Grid, Margin};
pub use links::{LinkSet, Plan};
pub use path::{PathCapacity, PathWalk};
pub use profile::{Profile, ProfileWalk};
pub use request::{FileRequest, HoldRequest, LinkId, Path, PlanError, Policy, Request};
pub use vector::{Allocation, TrcVector};
