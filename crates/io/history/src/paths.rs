//! History of paths: kept, recalled, forgotten.

use longhaul_rate_control::{FORGOTTEN, Observation, PathMemory, Profile, Remembered};
use longhaul_units::{Duration, Rate};
use rusqlite::{Row, Transaction, TransactionBehavior, named_params};

use crate::record::{PathKey, Record};
use crate::store::{BUSY_AT_END, BUSY_AT_WORK, History, HistoryError, signed, unsigned};

impl History {
    /// History of a path.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn recall(&self, key: &PathKey, now: u64) -> Result<Option<PathMemory>, HistoryError> {
        let connection = self.connection(BUSY_AT_WORK)?;
        let mut rows = connection.prepare(&format!(
            "SELECT {COLUMNS} FROM observations WHERE {OF_PATH} ORDER BY seen DESC, rowid DESC"
        ))?;
        let found = rows.query_map(texts(key), |row| remembered(row, now))?;
        let found = found.collect::<Result<Vec<_>, _>>()?;
        Ok(PathMemory::of(&found))
    }

    /// Adds what a transfer has seen of a path, and forgets what is old or too much.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record(&self, key: &PathKey, record: &Record, now: u64) -> Result<(), HistoryError> {
        let mut connection = self.connection(BUSY_AT_END)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        insert(&transaction, key, record, now)?;
        transaction.execute(
            &format!(
                "DELETE FROM observations WHERE rowid IN (SELECT rowid FROM observations WHERE {OF_PATH} \
                 ORDER BY seen DESC, rowid DESC LIMIT -1 OFFSET {OF_ONE_PATH})"
            ),
            texts(key),
        )?;
        // The holder of a token fills no more of it by many addresses.
        transaction.execute(
            "DELETE FROM observations WHERE rowid IN (SELECT rowid FROM observations WHERE token = ?1 \
             AND token <> '' ORDER BY seen DESC, rowid DESC LIMIT -1 OFFSET ?2)",
            (&key.token, OF_ONE_TOKEN),
        )?;
        transaction.execute(
            "DELETE FROM observations WHERE seen < ?1 OR seen > ?2",
            [signed(now.saturating_sub(FORGOTTEN.as_secs())), signed(now + DAY)],
        )?;
        transaction.execute(
            "DELETE FROM observations WHERE rowid IN (SELECT rowid FROM observations ORDER BY seen DESC, \
             rowid DESC LIMIT -1 OFFSET ?1)",
            [IN_ALL],
        )?;
        transaction.execute("DELETE FROM leases WHERE until < ?1", [signed(now)])?;
        Ok(transaction.commit()?)
    }

    /// Forgets a path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn forget(&self, key: &PathKey) -> Result<(), HistoryError> {
        let forget = format!("DELETE FROM observations WHERE {OF_PATH}");
        self.connection(BUSY_AT_WORK)?.execute(&forget, texts(key))?;
        Ok(())
    }
}

fn insert(
    transaction: &Transaction<'_>,
    key: &PathKey,
    record: &Record,
    now: u64,
) -> rusqlite::Result<()> {
    let [peer, local, remote, direction, token] = texts(key);
    let Record { seen, packets, lost, profile } = record;
    let micros = u64::try_from(seen.round_trip.as_micros()).unwrap_or(u64::MAX);
    transaction.execute(
        "INSERT INTO observations VALUES (:peer, :local, :remote, :direction, :seen, :rate, \
         :by_path, :rtt, :packet, :chance, :packets, :congestion, :random, :socket, :host, :sender, \
         :unknown, :profile, :token)",
        named_params! {
            ":peer": peer,
            ":local": local,
            ":remote": remote,
            ":direction": direction,
            ":seen": signed(now),
            ":rate": signed(seen.rate.as_bps()),
            ":by_path": seen.by_path,
            ":rtt": signed(micros),
            ":packet": signed(seen.packet),
            ":chance": seen.chance_ppm,
            ":packets": signed(*packets),
            ":congestion": signed(lost.congestion),
            ":random": signed(lost.random),
            ":socket": signed(lost.socket),
            ":host": signed(lost.host),
            ":sender": signed(lost.sender),
            ":unknown": signed(lost.unknown),
            ":profile": profile,
            ":token": token,
        },
    )?;
    Ok(())
}

/// Of a row that begins with [`COLUMNS`].
pub(crate) fn remembered(row: &Row<'_>, now: u64) -> rusqlite::Result<Remembered> {
    let number = |column| row.get::<_, i64>(column).map(unsigned);
    let small =
        |column| Ok::<_, rusqlite::Error>(u32::try_from(number(column)?).unwrap_or(u32::MAX));
    let at = number(0)?;
    let of_day = at.abs_diff(now) % DAY;
    Ok(Remembered {
        seen: Observation {
            rate: Rate::from_bps(number(1)?),
            by_path: row.get(2)?,
            round_trip: Duration::from_micros(number(3)?),
            packet: number(4)?,
            chance_ppm: small(5)?,
        },
        age: Duration::from_secs(now.saturating_sub(at)),
        hours_apart: Duration::from_secs(of_day.min(DAY - of_day)),
        profile: Profile::by_name(&row.get::<_, String>(6)?).map(|profile| profile.name),
    })
}

/// The columns of [`OF_PATH`].
pub(crate) fn texts(key: &PathKey) -> [String; 5] {
    let PathKey { peer, local, remote, direction, token } = key;
    let (local, remote) = (local.to_string(), remote.to_string());
    [peer.clone(), local, remote, direction.name().to_owned(), token.clone()]
}

pub(crate) const OF_PATH: &str =
    "peer = ?1 AND local = ?2 AND remote = ?3 AND direction = ?4 AND token = ?5";
pub(crate) const COLUMNS: &str = "seen, rate_bps, by_path, rtt_us, packet, chance_ppm, profile";
/// More of one path say nothing that the newest do not.
const OF_ONE_PATH: u32 = 32;
/// Sixteen paths in full, of many clients that share it.
const OF_ONE_TOKEN: u32 = 512;
/// About a megabyte.
const IN_ALL: u32 = 4_096;
pub(crate) const DAY: u64 = 24 * 3_600;
