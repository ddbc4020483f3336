//! The file while it is open, and how long one waits for it.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

/// The memory of paths.
#[derive(Debug)]
pub struct History {
    pub(crate) connection: Mutex<Connection>,
    pub(crate) notices: Vec<String>,
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

impl History {
    /// Notices about the file for the user: it was damaged and starts empty, ...
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The file, to be waited for no longer than `patience` while another process writes to it.
    pub(crate) fn connection(
        &self,
        patience: Duration,
    ) -> Result<MutexGuard<'_, Connection>, HistoryError> {
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
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reverses [`signed`]. Other values of the file may come too.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Time for which a reader waits for another process that writes.
pub(crate) const BUSY: Duration = Duration::from_secs(2);
/// The same while a transfer begins or goes on: its data are worth more. A commit takes some milliseconds.
pub(crate) const BUSY_AT_WORK: Duration = Duration::from_millis(100);
/// The same when it has ended, and what it has learnt would be lost.
pub(crate) const BUSY_AT_END: Duration = Duration::from_secs(1);
