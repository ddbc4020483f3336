//! Records of what circuits to a host have wasted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior};
use serde::Deserialize;

use crate::store::{
    BUSY, BUSY_AT_END, BUSY_AT_WORK, History, HistoryError, signed, unix_time, unsigned,
};

/// Record of earlier circuits to a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CircuitRecord {
    /// Circuits that ended.
    pub circuits: u32,
    /// Unused bytes, in parts per million of what they allowed: smoothed.
    pub wasted_ppm: u32,
    /// Mean deviation from that, likewise.
    pub deviation_ppm: u32,
    /// The rate to ask for, where a higher one lost much.
    #[serde(default)]
    pub max_rate_bps: Option<u64>,
}

impl History {
    /// Record of circuits to `host`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn circuit(&self, host: &str) -> Result<CircuitRecord, HistoryError> {
        let found = self.connection(BUSY_AT_WORK)?.query_row(OF_HOST, [host], record).optional()?;
        Ok(found.unwrap_or_default())
    }

    /// Records of circuits to any host, or to `host`, by name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn circuits(
        &self,
        host: Option<&str>,
    ) -> Result<Vec<(String, CircuitRecord)>, HistoryError> {
        let connection = self.connection(BUSY)?;
        let mut rows = connection.prepare(
            "SELECT circuits, wasted_ppm, deviation_ppm, max_rate_bps, host FROM circuits WHERE ?1 IS \
             NULL OR host = ?1 ORDER BY host",
        )?;
        let rows = rows.query_map([host], |row| Ok((row.get(4)?, record(row)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Changes what is known of circuits to `host`; no other process changes it meanwhile.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn learn_circuit(
        &self,
        host: &str,
        now: u64,
        learn: impl FnOnce(&mut CircuitRecord),
    ) -> Result<(), HistoryError> {
        let mut connection = self.connection(BUSY_AT_END)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = transaction.query_row(OF_HOST, [host], record).optional()?;
        let mut known = found.unwrap_or_default();
        learn(&mut known);
        write(&transaction, host, &known, now)?;
        transaction.execute(
            "DELETE FROM circuits WHERE host NOT IN (SELECT host FROM circuits ORDER BY seen DESC \
             LIMIT ?1)",
            [HOSTS_MAX],
        )?;
        Ok(transaction.commit()?)
    }
}

/// Takes in what an earlier program kept beside `file`; gives the name of its file, which is then of no
/// more use.
pub(crate) fn take_over(
    transaction: &Transaction<'_>,
    file: &Path,
    notices: &mut Vec<String>,
) -> rusqlite::Result<Option<PathBuf>> {
    let old = file.with_file_name("circuits.json");
    let text = match fs::read_to_string(&old) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            notices.push(format!("{}: not taken over: {error}", old.display()));
            return Ok(None);
        }
    };
    let known: BTreeMap<String, CircuitRecord> = match serde_json::from_str(&text) {
        Ok(known) => known,
        Err(error) => {
            notices.push(format!("{}: not taken over: {error}", old.display()));
            return Ok(None);
        }
    };
    for (host, known) in known {
        write(transaction, &host, &known, unix_time())?;
    }
    Ok(Some(old))
}

fn write(
    transaction: &Transaction<'_>,
    host: &str,
    known: &CircuitRecord,
    now: u64,
) -> rusqlite::Result<()> {
    let CircuitRecord { circuits, wasted_ppm, deviation_ppm, max_rate_bps } = *known;
    transaction.execute(
        "INSERT OR REPLACE INTO circuits VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (host, signed(now), circuits, wasted_ppm, deviation_ppm, max_rate_bps.map(signed)),
    )?;
    Ok(())
}

fn record(row: &Row<'_>) -> rusqlite::Result<CircuitRecord> {
    Ok(CircuitRecord {
        circuits: row.get(0)?,
        wasted_ppm: row.get(1)?,
        deviation_ppm: row.get(2)?,
        max_rate_bps: row.get::<_, Option<i64>>(3)?.map(unsigned),
    })
}

const OF_HOST: &str =
    "SELECT circuits, wasted_ppm, deviation_ppm, max_rate_bps FROM circuits WHERE host = ?1";
/// Keeps the file small.
const HOSTS_MAX: u32 = 1_000;
