use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_sys::files::FileLock;
use longhaul_sys::threads;
use sqlx::error::DatabaseError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};
use tokio::runtime::Runtime;

use super::{Store, StoreError, decode, decode_state, encode, explain, position, runtime};
use crate::ledger::Record;

/// The embedded store: one file, written ahead (WAL) and synced once per group.
///
/// Another process that opens it is turned away; the lock dies with the process that held it.
#[derive(Debug)]
pub struct Sqlite {
    runtime: Runtime,
    connection: SqliteConnection,
    epoch: i64,
    /// The log written ahead.
    ahead: PathBuf,
    /// Ends before the lock is given up.
    checkpoints: Checkpoints,
    /// Held while the store is open.
    _lock: FileLock,
}

impl Sqlite {
    /// Opens or makes the file at `path`, which may grow to `max_bytes`.
    pub fn open(path: &Path, max_bytes: Option<u64>) -> Result<Self, StoreError> {
        let lock = lock(path)?;
        let runtime = runtime()?;
        let mut options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .locking_mode(SqliteLockingMode::Normal)
            .disable_statement_logging();
        options = options.pragma("wal_autocheckpoint", "0");
        if let Some(bytes) = max_bytes {
            options = options.pragma("max_page_count", (bytes / PAGE_BYTES).max(1).to_string());
        }
        let connection = runtime.block_on(async {
            let mut connection = SqliteConnection::connect_with(&options).await?;
            sqlx::raw_sql(SCHEMA).execute(&mut connection).await?;
            Ok(connection)
        });
        let connection = connection.map_err(failed)?;
        let ahead = ahead_of(path);
        let checkpoints = Checkpoints::start(options, ahead.clone())?;
        Ok(Self { runtime, connection, epoch: 0, ahead, checkpoints, _lock: lock })
    }

    /// Restarts the log written ahead once it is long. That takes turns with writers: from another
    /// connection it would make them wait as SQLite does, by sleeping up to 100 ms at a time.
    fn restart_log(&mut self) {
        if self.checkpoints.log_is_long.load(Ordering::Acquire) {
            // Nearly all was carried over just now. What fails is done later.
            let restart = sqlx::query("PRAGMA wal_checkpoint(RESTART)");
            let _ = self.runtime.block_on(restart.execute(&mut self.connection));
            self.checkpoints.log_is_long.store(false, Ordering::Release);
        }
    }
}

impl Store for Sqlite {
    fn lead(&mut self) -> Result<u64, StoreError> {
        let next = sqlx::query_scalar("UPDATE leader SET epoch = epoch + 1 RETURNING epoch");
        let led = self.runtime.block_on(next.fetch_one(&mut self.connection));
        self.epoch = led.map_err(|error| unwritten(&self.ahead, error))?;
        Ok(self.epoch.unsigned_abs())
    }

    fn renew(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn read(&mut self, after: u64, limit: u32) -> Result<Vec<Record>, StoreError> {
        let rows = sqlx::query_as(READ).bind(i64::try_from(after).unwrap_or(i64::MAX)).bind(limit);
        let rows: Vec<_> =
            self.runtime.block_on(rows.fetch_all(&mut self.connection)).map_err(failed)?;
        rows.into_iter().map(decode).collect()
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let rows = encode(records)?;
        self.restart_log();
        let (connection, epoch) = (&mut self.connection, self.epoch);
        let written = self.runtime.block_on(async {
            // One statement is one transaction: all rows or none, one sync.
            let insert = sqlx::query(APPEND).bind(epoch).bind(rows);
            insert.execute(connection).await.map(|done| done.rows_affected())
        });
        match written.map_err(|error| unwritten(&self.ahead, error))? {
            0 if !records.is_empty() => Err(StoreError::Fenced),
            _ => Ok(()),
        }
    }

    fn state(&mut self) -> Result<Option<(u64, String)>, StoreError> {
        let found = sqlx::query_as(STATE).fetch_optional(&mut self.connection);
        Ok(self.runtime.block_on(found).map_err(failed)?.map(decode_state))
    }

    fn compact(&mut self, seq: u64, state: &str) -> Result<(), StoreError> {
        let (connection, epoch, seq) = (&mut self.connection, self.epoch, position(seq)?);
        let kept = self.runtime.block_on(async {
            let mut transaction = connection.begin().await?;
            // The records first: their pages may be all the room there is.
            sqlx::query(FORGET).bind(seq).execute(&mut *transaction).await?;
            let keep = sqlx::query(KEEP).bind(seq).bind(state).bind(epoch);
            let kept = keep.execute(&mut *transaction).await?.rows_affected();
            if kept > 0 {
                transaction.commit().await?;
            }
            Ok(kept)
        });
        let kept = kept.map_err(|error| unwritten(&self.ahead, error))?;
        if kept > 0 { Ok(()) } else { Err(StoreError::Fenced) }
    }

    fn resign(&mut self) {}
}

/// Carries the log written ahead over into the file, on a connection and a thread of its own: in
/// the writer's way, each of its syncs would be a pause that bookings notice.
#[derive(Debug)]
struct Checkpoints {
    /// Until the writer has restarted the log, the thread leaves it alone.
    log_is_long: Arc<AtomicBool>,
    /// Closed to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    fn start(options: SqliteConnectOptions, ahead: PathBuf) -> Result<Self, StoreError> {
        let (stop, stopped) = channel::<()>();
        let runtime = runtime()?;
        let opened = runtime.block_on(SqliteConnection::connect_with(&options));
        let mut connection = opened.map_err(failed)?;
        let log_is_long = Arc::new(AtomicBool::new(false));
        let long = log_is_long.clone();
        let thread = threads::spawn("checkpoints", move || {
            let mut lengthened = false;
            while stopped.recv_timeout(CHECKPOINT_EVERY) == Err(RecvTimeoutError::Timeout) {
                if long.load(Ordering::Acquire) {
                    continue;
                }
                // What fails now is done later; the next append reports a full disk.
                let passive = sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)");
                let done: Result<(i64, i64, i64), _> =
                    runtime.block_on(passive.fetch_one(&mut connection));
                if !lengthened && done.as_ref().is_ok_and(|(_, pages, _)| *pages > PAGES_BUSY) {
                    lengthened = true;
                    // Without room for it, bookings are kept as before, only slower.
                    let _ = lengthen(&ahead, LENGTH_AHEAD);
                }
                if done.is_ok_and(|(_, pages, _)| pages > PAGES_AHEAD) {
                    long.store(true, Ordering::Release);
                }
            }
        });
        let thread = thread.map_err(|error| StoreError::Failed(error.to_string()))?;
        Ok(Self { log_is_long, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// The log written ahead.
fn ahead_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Makes the log written ahead `to` bytes long, at which it restarts. Writing over what is there
/// takes the file system one write to sync, a longer file its journal as well, which waits for
/// others'. What is appended lies behind whatever SQLite has written, and makes no sense to it.
fn lengthen(path: &Path, to: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    let zeros = vec![0; PIECE];
    while file.metadata()?.len() < to {
        file.write_all(&zeros)?;
        // The writer's next sync should find little to do.
        file.sync_data()?;
    }
    Ok(())
}

/// Keeps other processes out.
fn lock(path: &Path) -> Result<FileLock, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let shown = Path::new(&name).display();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&name);
    let file = file.map_err(|error| match error.kind() {
        _ if is_read_only(&error) => StoreError::ReadOnly,
        std::io::ErrorKind::StorageFull => StoreError::Full,
        _ => StoreError::Failed(format!("{shown}: {error}")),
    })?;
    FileLock::try_take(&file).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => StoreError::Led {
            node: format!("another process, which uses {},", path.display()),
            url: String::new(),
        },
        _ => StoreError::Failed(format!("{shown}: {error}")),
    })
}

/// The meaning of a write's error. For a file that became read-only while it was open SQLite
/// reports the same as for a disk that fails (SQLITE_IOERR_WRITE); it has written no whole
/// transaction then.
fn unwritten(ahead: &Path, error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(DatabaseError::code);
    if code.as_deref() == Some("778")
        && let Err(why) = OpenOptions::new().append(true).open(ahead)
        && is_read_only(&why)
    {
        return StoreError::ReadOnly;
    }
    failed(error)
}

fn is_read_only(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), ReadOnlyFilesystem | PermissionDenied)
}

fn failed(error: sqlx::Error) -> StoreError {
    // Primary and extended codes: SQLITE_FULL, and SQLITE_READONLY with its kinds.
    explain(&error, &["13"], &["8", "264", "520", "776", "1032", "1288", "1544"])
}

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS booking_event (
    seq INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    project TEXT NOT NULL,
    actor TEXT NOT NULL,
    \"order\" TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS leader (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL) STRICT;
INSERT OR IGNORE INTO leader VALUES (1, 0);
CREATE TABLE IF NOT EXISTS compacted (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT;
";
const STATE: &str = "SELECT seq, state FROM compacted";
const FORGET: &str = "DELETE FROM booking_event WHERE seq <= ?1";
const KEEP: &str = "
INSERT OR REPLACE INTO compacted SELECT 1, ?1, ?2 WHERE (SELECT epoch FROM leader) = ?3";
const READ: &str =
    "SELECT seq, tick, \"order\", outcome FROM booking_event WHERE seq > ?1 ORDER BY seq LIMIT ?2";
const APPEND: &str = "
INSERT INTO booking_event (seq, epoch, tick, project, actor, \"order\", outcome)
SELECT value ->> 'seq', ?1, value ->> 'tick', value ->> 'project', value ->> 'actor',
       value -> 'order', value -> 'outcome'
FROM json_each(?2) WHERE (SELECT epoch FROM leader) = ?1";
/// SQLite's own default.
const PAGE_BYTES: u64 = 4096;
/// Often, so that little is left when the log restarts: the writer waits for that.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(100);
/// Pages of the log written ahead above which it restarts: 64 MiB.
const PAGES_AHEAD: i64 = 16_384;
/// Pages of the log above which the store counts as busy.
const PAGES_BUSY: i64 = 512;
/// Bytes of all pages ahead, each with a header of 24.
const LENGTH_AHEAD: u64 = PAGES_AHEAD.unsigned_abs() * (PAGE_BYTES + 24);
/// Bytes by which it is lengthened at a time.
const PIECE: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Command, Order};

    fn record(seq: u64) -> Record {
        let order = Order {
            actor: "op".into(),
            project: "net".into(),
            operator: true,
            key: None,
            command: Command::Replan,
        };
        Record { seq, tick: seq, order, outcome: vec![] }
    }

    #[test]
    fn a_store_that_takes_no_more_writes_says_so_keeps_all_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&folder.path().join("book.db"), None).unwrap();
        store.lead().unwrap();
        store.append(&[record(1)]).unwrap();
        let set_read_only = |store: &mut Sqlite, on: &str| {
            let pragma = format!("PRAGMA query_only = {on}");
            let set = sqlx::raw_sql(sqlx::AssertSqlSafe(pragma)).execute(&mut store.connection);
            store.runtime.block_on(set).unwrap();
        };
        set_read_only(&mut store, "on");
        assert!(matches!(store.append(&[record(2)]), Err(StoreError::ReadOnly)));
        assert!(matches!(store.lead(), Err(StoreError::ReadOnly)));
        assert_eq!(store.read(0, 9).unwrap(), [record(1)]);
        set_read_only(&mut store, "off");
        store.append(&[record(2)]).unwrap();
        assert_eq!(store.read(1, 9).unwrap(), [record(2)]);
    }

    #[test]
    fn a_long_log_restarts_with_the_next_records() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&folder.path().join("book.db"), None).unwrap();
        store.lead().unwrap();
        let records: Vec<Record> = (1..=60).map(record).collect();
        for record in &records[..50] {
            store.append(std::slice::from_ref(record)).unwrap();
        }
        let pages = |store: &mut Sqlite| {
            let query = sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)");
            let done: (i64, i64, i64) =
                store.runtime.block_on(query.fetch_one(&mut store.connection)).unwrap();
            done.1
        };
        let before = pages(&mut store);
        store.checkpoints.log_is_long.store(true, Ordering::Release);
        store.append(&records[50..]).unwrap();
        assert!(!store.checkpoints.log_is_long.load(Ordering::Acquire));
        let after = pages(&mut store);
        assert!(after < before, "{before} pages before, {after} after");
        assert_eq!(store.read(0, 99).unwrap(), records);
    }

    #[test]
    fn records_in_a_lengthened_log_survive_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("book.db");
        let mut store = Sqlite::open(&path, None).unwrap();
        store.lead().unwrap();
        let records: Vec<Record> = (1..=60).map(record).collect();
        let append = |store: &mut Sqlite, records: &[Record]| {
            records.iter().for_each(|one| store.append(std::slice::from_ref(one)).unwrap());
        };
        append(&mut store, &records[..20]);
        lengthen(&ahead_of(&path), 2 << 20).unwrap();
        append(&mut store, &records[20..40]);
        // As it lies on the disk when the process is killed.
        let found = folder.path().join("found.db");
        std::fs::copy(&path, &found).unwrap();
        std::fs::copy(ahead_of(&path), ahead_of(&found)).unwrap();
        let mut found = Sqlite::open(&found, None).unwrap();
        assert_eq!(found.read(0, 99).unwrap(), records[..40]);
        append(&mut store, &records[40..]);
        assert_eq!(store.read(0, 99).unwrap(), records);
        assert!(std::fs::metadata(ahead_of(&path)).unwrap().len() >= 2 << 20);
    }
}
