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
mod show;
mod swallowed;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_rate_control::Observation;
use longhaul_units::Losses;
use rusqlite::Connection;

pub use circuits::CircuitRecord;
pub use lease::{LEASE_TIME, Lease};
pub use show::{KnownPath, Seen};

/// The memory of paths.
#[derive(Debug)]
pub struct History {
    connection: Mutex<Connection>,
    notices: Vec<String>,
}

/// Why there is no memory of paths, or nothing of this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The file cannot be had.
    #[error("{}: {error}", file.display())]
    File {
        /// Its name.
        file: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A newer program has written it.
    #[error("{}: written by a newer longhaul", .0.display())]
    Newer(PathBuf),
    /// SQLite returned an error.
    #[error("the history: {0}")]
    Store(#[from] rusqlite::Error),
}

/// Which path, seen from this host, which sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathKey {
    /// The other host, as it was named; at a server, the client's address.
    pub peer: String,
    /// This host's address.
    pub local: IpAddr,
    /// The other's.
    pub remote: IpAddr,
    /// Direction of the request.
    pub direction: Direction,
    /// At a server, the identifier of the client's token: many clients may have one address, and what
    /// one of them makes of its path the others need not believe. At a client empty.
    pub token: String,
}

/// Direction of a request for data that this host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This host, a client.
    Push,
    /// The other; this host is a server.
    Pull,
}

impl Direction {
    /// The name, in the file and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

/// Record that a transfer leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Observation of the path.
    pub seen: Observation,
    /// Packets that it sent.
    pub packets: u64,
    /// Of those, lost.
    pub lost: Losses,
    /// The profile whose controller was at work at the end: under `fobs` that of the member.
    pub profile: String,
}

impl History {
    /// Notices about the file for the user: it was damaged and starts empty, ...
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The file, to be waited for no longer than `patience` while another process writes to it.
    fn connection(&self, patience: Duration) -> Result<MutexGuard<'_, Connection>, HistoryError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.busy_timeout(patience)?;
        Ok(connection)
    }
}

/// The present time, seconds since 1970.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// As SQLite has integers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reverses [`signed`]. Other values of the file may come too.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Time for which a reader waits for another process that writes.
const BUSY: Duration = Duration::from_secs(2);
/// The same while a transfer begins or goes on: its data are worth more. A commit takes some milliseconds.
const BUSY_AT_WORK: Duration = Duration::from_millis(100);
/// The same when it has ended, and what it has learnt would be lost.
const BUSY_AT_END: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
