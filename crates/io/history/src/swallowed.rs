//! Servers to which UDP was swallowed lately.

use std::net::IpAddr;
use std::time::Duration;

use crate::store::{BUSY_AT_WORK, History, HistoryError, signed};

impl History {
    /// True where UDP to `peer` at `remote` was swallowed within the hour before `now` (seconds since 1970).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_udp_swallowed(
        &self,
        peer: &str,
        remote: IpAddr,
        now: u64,
    ) -> Result<bool, HistoryError> {
        let since = signed(now.saturating_sub(SWALLOWED.as_secs()));
        let found = self.connection(BUSY_AT_WORK)?.query_row(
            "SELECT EXISTS (SELECT 1 FROM swallowed WHERE peer = ?1 AND remote = ?2 AND seen > ?3)",
            (peer, remote.to_string(), since),
            |row| row.get(0),
        )?;
        Ok(found)
    }

    /// UDP to `peer` at `remote` is swallowed. What is older than an hour is forgotten.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_udp_swallowed(
        &self,
        peer: &str,
        remote: IpAddr,
        now: u64,
    ) -> Result<(), HistoryError> {
        let since = signed(now.saturating_sub(SWALLOWED.as_secs()));
        let connection = self.connection(BUSY_AT_WORK)?;
        connection.execute("DELETE FROM swallowed WHERE seen <= ?1", [since])?;
        connection.execute(
            "INSERT OR REPLACE INTO swallowed VALUES (?1, ?2, ?3)",
            (peer, remote.to_string(), signed(now)),
        )?;
        Ok(())
    }
}

/// Time for which both carriers are tried at once from then on.
const SWALLOWED: Duration = Duration::from_secs(3_600);
