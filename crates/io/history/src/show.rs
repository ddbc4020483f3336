//! Contents of a history, for people.

use std::net::IpAddr;

use longhaul_rate_control::{Observation, PathMemory};
use longhaul_units::Losses;

use crate::paths::{COLUMNS, remembered};
use crate::record::{Direction, PathKey, Record};
use crate::store::{BUSY, History, HistoryError, unsigned};

/// A path that something is known of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// Which one.
    pub key: PathKey,
    /// Memory that a transfer that began now would get; nothing where all is too old.
    pub memory: Option<PathMemory>,
    /// The observations, the newest first.
    pub seen: Vec<Seen>,
}

/// An observation, as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When, in seconds since 1970.
    pub at: u64,
    /// Record that a transfer left.
    pub record: Record,
}

impl History {
    /// Every path of which something is known, or those to or from `host`, a name or address; the one
    /// seen last first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn paths(&self, host: Option<&str>, now: u64) -> Result<Vec<KnownPath>, HistoryError> {
        let connection = self.connection(BUSY)?;
        let mut rows = connection.prepare(&format!(
            "SELECT {COLUMNS}, packets, congestion, random, socket, host, sender, unknown, \
             peer, local, remote, direction, token FROM observations WHERE {OF_HOST} ORDER BY seen DESC, \
             rowid DESC"
        ))?;
        let mut rows = rows.query([host])?;
        let mut paths: Vec<(PathKey, Vec<_>, Vec<Seen>)> = Vec::new();
        while let Some(row) = rows.next()? {
            let text = |column| row.get::<_, String>(column);
            let number = |column| row.get::<_, i64>(column).map(unsigned);
            let address = |column| Ok::<_, rusqlite::Error>(text(column)?.parse::<IpAddr>());
            // Written by nobody we know.
            let (Ok(local), Ok(remote)) = (address(15)?, address(16)?) else { continue };
            let direction = match text(17)?.as_str() {
                "push" => Direction::Push,
                _ => Direction::Pull,
            };
            let key = PathKey { peer: text(14)?, local, remote, direction, token: text(18)? };
            let one = remembered(row, now)?;
            let lost = Losses {
                congestion: number(8)?,
                random: number(9)?,
                socket: number(10)?,
                host: number(11)?,
                sender: number(12)?,
                unknown: number(13)?,
            };
            let seen: Observation = one.seen;
            let record = Record { seen, packets: number(7)?, lost, profile: text(6)? };
            let place = paths.iter().position(|(known, ..)| *known == key).unwrap_or_else(|| {
                paths.push((key, Vec::new(), Vec::new()));
                paths.len() - 1
            });
            let (_, found, all) = &mut paths[place];
            found.push(one);
            all.push(Seen { at: number(0)?, record });
        }
        let known = paths.into_iter().map(|(key, found, seen)| KnownPath {
            key,
            memory: PathMemory::of(&found),
            seen,
        });
        Ok(known.collect())
    }

    /// Forgets all paths and circuits, or those to or from `host`, a name or address; gives the number
    /// of observations and circuits that are gone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn clear(&self, host: Option<&str>) -> Result<usize, HistoryError> {
        let mut connection = self.connection(BUSY)?;
        let transaction = connection.transaction()?;
        let paths = format!("DELETE FROM observations WHERE {OF_HOST}");
        let paths = transaction.execute(&paths, [host])?;
        let circuits = "DELETE FROM circuits WHERE ?1 IS NULL OR host = ?1";
        let circuits = transaction.execute(circuits, [host])?;
        transaction.execute(&format!("DELETE FROM swallowed WHERE {OF_HOST}"), [host])?;
        transaction.commit()?;
        // What was deleted is not to be found in the log either.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(paths + circuits)
    }
}

const OF_HOST: &str = "(?1 IS NULL OR peer = ?1 OR remote = ?1)";
