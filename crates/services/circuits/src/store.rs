//! The store of the log.
//!
//! A store keeps records in order and makes them durable in groups: [`Store::append`] returns when
//! the whole group is, or fails and keeps none of it (when the connection broke in the middle it
//! may keep all of it: read again). One process at a time leads; the epoch that [`Store::lead`]
//! draws is checked by every append, so that a leader that was thought dead can do no harm.

mod postgres;
mod sqlite;

use std::path::PathBuf;
use std::time::Duration;

use sqlx::error::{DatabaseError, Error};

pub use self::postgres::Postgres;
pub use self::sqlite::Sqlite;
use crate::ledger::{Event, Order, Record};

/// A durable log of records.
pub trait Store: Send {
    /// Takes the lead, or goes on leading; returns the epoch.
    fn lead(&mut self) -> Result<u64, StoreError>;

    /// Says that the leader lives, which must still lead. To be called more often than the lease lasts.
    fn renew(&mut self) -> Result<(), StoreError>;

    /// Up to `limit` records after position `after`, in order.
    fn read(&mut self, after: u64, limit: u32) -> Result<Vec<Record>, StoreError>;

    /// Makes records durable, all or none.
    fn append(&mut self, records: &[Record]) -> Result<(), StoreError>;

    /// The ledger's state that stands for the records that were taken out, with the position of
    /// the last of them; `None` if all are there.
    fn state(&mut self) -> Result<Option<(u64, String)>, StoreError>;

    /// Puts `state` in the place of the records up to position `seq`. However it ends, either all
    /// records are there or the state is, perhaps beside records that nobody needs.
    fn compact(&mut self, seq: u64, state: &str) -> Result<(), StoreError>;

    /// Gives up the lead, so that others need not wait for the lease to end.
    fn resign(&mut self);
}

/// Why a store did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No room is left.
    #[error("the store is full")]
    Full,
    /// It can be read only.
    #[error("the store is read-only")]
    ReadOnly,
    /// Another process leads.
    #[error("{node} leads")]
    Led {
        /// Its name.
        node: String,
        /// Where it serves.
        url: String,
    },
    /// Another process has taken the lead.
    #[error("another node has taken the lead")]
    Fenced,
    /// It holds something that is no log.
    #[error("the store holds something that is no log: {0}")]
    Corrupt(String),
    /// It cannot be reached, or reports a fault of its own.
    #[error("the store fails: {0}")]
    Failed(String),
}

/// Where to find a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file of this machine.
    Sqlite {
        /// Its path; it is made if it does not exist.
        path: PathBuf,
        /// Bytes that it may take.
        max_bytes: Option<u64>,
    },
    /// A PostgreSQL database.
    Postgres {
        /// `postgres://...`
        url: String,
        /// Time to wait for a leader that gives no sign of life.
        lease: Duration,
    },
}

/// Opens a store; makes its tables if there are none.
///
/// `node` and `url` show others the leader and its address.
pub fn open(location: &Location, node: &str, url: &str) -> Result<Box<dyn Store>, StoreError> {
    Ok(match location {
        Location::Sqlite { path, max_bytes } => Box::new(Sqlite::open(path, *max_bytes)?),
        Location::Postgres { url: database, lease } => {
            Box::new(Postgres::open(database, *lease, node, url)?)
        }
    })
}

/// All records of a store, in order, from the first that its state does not stand for.
pub fn read_all(store: &mut dyn Store) -> Result<Vec<Record>, StoreError> {
    let mut records: Vec<Record> = Vec::new();
    let compacted = store.state()?.map_or(0, |(seq, _)| seq);
    loop {
        let after = records.last().map_or(compacted, |record| record.seq);
        let page = store.read(after, PAGE)?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}

/// A position as databases have it.
fn position(seq: u64) -> Result<i64, StoreError> {
    i64::try_from(seq).map_err(|_| StoreError::Corrupt(format!("position {seq}")))
}

/// A state as it comes from a database.
fn decode_state((seq, state): (i64, String)) -> (u64, String) {
    (seq.unsigned_abs(), state)
}

/// A runtime for one connection, used from one thread.
fn runtime() -> Result<tokio::runtime::Runtime, StoreError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    built.map_err(|error| StoreError::Failed(error.to_string()))
}

/// A group of records as one JSON text, which a single statement takes apart again.
fn encode(records: &[Record]) -> Result<String, StoreError> {
    #[derive(serde::Serialize)]
    struct Row<'a> {
        seq: i64,
        tick: i64,
        project: &'a str,
        actor: &'a str,
        order: &'a Order,
        outcome: &'a [Event],
    }
    let mut rows = Vec::with_capacity(records.len());
    for record in records {
        rows.push(Row {
            seq: position(record.seq)?,
            tick: position(record.tick)?,
            project: &record.order.project,
            actor: &record.order.actor,
            order: &record.order,
            outcome: &record.outcome,
        });
    }
    serde_json::to_string(&rows).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// A record from the columns seq, tick, order, outcome.
fn decode((seq, tick, order, outcome): (i64, i64, String, String)) -> Result<Record, StoreError> {
    let wrong = |why: String| StoreError::Corrupt(format!("record {seq}: {why}"));
    Ok(Record {
        seq: u64::try_from(seq).map_err(|error| wrong(error.to_string()))?,
        tick: u64::try_from(tick).map_err(|error| wrong(error.to_string()))?,
        order: serde_json::from_str(&order).map_err(|error| wrong(error.to_string()))?,
        outcome: serde_json::from_str(&outcome).map_err(|error| wrong(error.to_string()))?,
    })
}

/// The meaning of a database's error, by the codes that mean a full and a read-only store.
fn explain(error: &Error, full: &[&str], read_only: &[&str]) -> StoreError {
    let code = error.as_database_error().and_then(DatabaseError::code);
    match code.as_deref() {
        Some(code) if full.contains(&code) => StoreError::Full,
        Some(code) if read_only.contains(&code) => StoreError::ReadOnly,
        _ => StoreError::Failed(error.to_string()),
    }
}

/// Records that are read at once.
const PAGE: u32 = 10_000;
