//! One transfer at a time builds on a memory: two that jump to half of the known rate would send all of
//! it, unvalidated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::paths::{OF_PATH, texts};
use crate::record::PathKey;
use crate::store::{BUSY_AT_WORK, History, HistoryError, signed};

/// The right to build on the memory of a path, until [`LEASE_TIME`] after it was taken or renewed.
#[derive(Debug)]
pub struct Lease {
    key: PathKey,
    number: i64,
}

impl History {
    /// The right to build on the memory of a path, if nobody has it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn lease(&self, key: &PathKey, now: u64) -> Result<Option<Lease>, HistoryError> {
        let number = number();
        let [peer, local, remote, direction, token] = texts(key);
        // One that ends later than any would was given before the clock was set.
        let taken = self.connection(BUSY_AT_WORK)?.execute(
            "INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET number = \
             ?6, until = ?7 WHERE until <= ?8 OR until > ?7",
            (peer, local, remote, direction, token, number, signed(end(now)), signed(now)),
        )?;
        Ok((taken == 1).then(|| Lease { key: key.clone(), number }))
    }

    /// Holds on to it; `false` if it had ended and another has it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn renew(&self, lease: &Lease, now: u64) -> Result<bool, HistoryError> {
        let [peer, local, remote, direction, token] = texts(&lease.key);
        let renewed = self.connection(BUSY_AT_WORK)?.execute(
            &format!("UPDATE leases SET until = ?7 WHERE {OF_PATH} AND number = ?6"),
            (peer, local, remote, direction, token, lease.number, signed(end(now))),
        )?;
        Ok(renewed == 1)
    }

    /// Gives it back.
    ///
    /// # Errors
    /// The file cannot be written; it ends by itself.
    pub fn give_back(&self, lease: &Lease) -> Result<(), HistoryError> {
        let [peer, local, remote, direction, token] = texts(&lease.key);
        self.connection(BUSY_AT_WORK)?.execute(
            &format!("DELETE FROM leases WHERE {OF_PATH} AND number = ?6"),
            (peer, local, remote, direction, token, lease.number),
        )?;
        Ok(())
    }
}

fn end(now: u64) -> u64 {
    now.saturating_add(LEASE_TIME.as_secs())
}

/// Of no other lease: by the nanosecond, and in this process by count.
fn number() -> i64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    i64::try_from(time).unwrap_or(0).wrapping_add(signed(next))
}

/// Time for which a lease holds unless it is renewed: a transfer that was killed stands in nobody's
/// way for longer.
pub const LEASE_TIME: Duration = Duration::from_secs(60);
