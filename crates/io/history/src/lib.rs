//! History of paths: what transfers learn, kept in one SQLite file of this user for later ones.
//!
//! A [`History`] holds an observation for each transfer that this host sent, by [`PathKey`], and what
//! circuits to a host wasted. Nothing is ever read, changed and written in steps that another process
//! could come between. What becomes of the observations is [`longhaul_rate_control::PathMemory`]'s
//! business; what is in the file, and for how long, docs/operating.md says ("History of paths").
//!
//! Time is an argument: seconds of Unix time, see [`unix_time`].
//!
//! ```
//! use longhaul_history::{Direction, History, PathKey};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let history = History::open(&folder.path().join("history.db")).unwrap();
//! let key = PathKey {
//!     peer: "dtn.example.org".into(),
//!     local: "192.0.2.1".parse().unwrap(),
//!     remote: "192.0.2.7".parse().unwrap(),
//!     direction: Direction::Push,
//!     token: String::new(),
//! };
//! assert_eq!(history.recall(&key, 1_700_000_000).unwrap(), None);
//! ```
#![forbid(unsafe_code)]

mod circuits;
mod file;
mod lease;
mod paths;
mod record;
mod show;
mod store;
mod swallowed;

pub use circuits::CircuitRecord;
pub use lease::{LEASE_TIME, Lease};
pub use record::{Direction, PathKey, Record};
pub use show::{KnownPath, Seen};
pub use store::{History, HistoryError, unix_time};

#[cfg(test)]
mod tests;
