//! The file: its making, its damage, its tables.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use longhaul_units::shown;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};

use crate::circuits;
use crate::store::{BUSY, History, HistoryError};

impl History {
    /// Opens `file`, which is made, with its folder, where it does not exist. A damaged one is renamed,
    /// and [`History::notices`] report it.
    ///
    /// # Errors
    /// It cannot be read or written, or a newer program has written it.
    pub fn open(file: &Path) -> Result<Self, HistoryError> {
        let failed = |error| HistoryError::File { file: file.into(), error };
        let folder = file.parent().unwrap_or(Path::new("."));
        // It tells with whom this user exchanges data.
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let mut notices = Vec::new();
        let connection = match connect(file, &mut notices) {
            Err(HistoryError::Store(error)) if is_damage(&error) => {
                // One of several that find the damage moves the file, the others find a new one.
                let lock = File::open(folder).map_err(failed)?;
                flock(&lock, FlockOperation::LockExclusive)
                    .map_err(|error| failed(error.into()))?;
                match connect(file, &mut notices) {
                    Err(HistoryError::Store(error)) if is_damage(&error) => {
                        let renamed = rename_damaged(file).map_err(failed)?;
                        notices.push(format!(
                            "the history was damaged ({}) and starts empty; the damaged file is {}",
                            shown(&error.to_string()),
                            renamed.display()
                        ));
                        connect(file, &mut notices)?
                    }
                    other => other?,
                }
            }
            other => other?,
        };
        Ok(Self { connection: Mutex::new(connection), notices })
    }
}

fn connect(file: &Path, notices: &mut Vec<String>) -> Result<Connection, HistoryError> {
    // To open a FIFO waits for somebody who reads it.
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        let error = io::Error::other("it is no file");
        return Err(HistoryError::File { file: file.into(), error });
    }
    // SQLite's other files get the mode of this one.
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(file);
    made.map_err(|error| HistoryError::File { file: file.into(), error })?;
    let mut connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    // With a log a commit waits for no disk. What a power cut takes is the newest, never the file.
    begin_log(&connection)?;
    connection.pragma_update(None, "synchronous", "normal")?;
    // What is forgotten is gone.
    connection.pragma_update_and_check(None, "secure_delete", "on", |_| Ok(()))?;
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(found)).into());
    }
    let version = |connection: &Connection| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, "user_version", |row| row.get(0))
    };
    if version(&connection)? < VERSION {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been first.
        let found = version(&transaction)?;
        if found < VERSION {
            for (_, step) in (0..).zip(STEPS).filter(|(from, _)| *from >= found) {
                transaction.execute_batch(step)?;
            }
            let taken_over = match found {
                0 => circuits::take_over(&transaction, file, notices)?,
                _ => None,
            };
            transaction.pragma_update(None, "user_version", VERSION)?;
            transaction.commit()?;
            if let Some(taken_over) = taken_over {
                // It would be taken over once more with a new history only.
                let _ = fs::remove_file(taken_over);
            }
        }
    }
    match version(&connection)? {
        VERSION => Ok(connection),
        _ => Err(HistoryError::Newer(file.into())),
    }
}

/// SQLite does not wait for others who begin the log at the same time, as for all other locks.
fn begin_log(connection: &Connection) -> rusqlite::Result<()> {
    let began = Instant::now();
    loop {
        let done = connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()));
        let busy = |error: &rusqlite::Error| {
            error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && began.elapsed() < BUSY
        };
        match done {
            Err(error) if busy(&error) => std::thread::sleep(BUSY / 200),
            done => return done,
        }
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Renames a damaged file and removes what belongs to it; returns its new name.
fn rename_damaged(file: &Path) -> io::Result<PathBuf> {
    let beside = |suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let renamed = beside(".damaged");
    fs::rename(file, &renamed)?;
    // They belong to what was moved, and would be taken for the new one's.
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(beside(suffix));
    }
    Ok(renamed)
}

const VERSION: i64 = STEPS.len() as i64;
/// The steps from each version to the next.
const STEPS: [&str; 3] = [FIRST, BY_TOKEN, SWALLOWED];
const FIRST: &str = "
    CREATE TABLE observations (
        peer TEXT NOT NULL,
        local TEXT NOT NULL,
        remote TEXT NOT NULL,
        direction TEXT NOT NULL,
        seen INTEGER NOT NULL,
        rate_bps INTEGER NOT NULL,
        by_path INTEGER NOT NULL,
        rtt_us INTEGER NOT NULL,
        packet INTEGER NOT NULL,
        chance_ppm INTEGER NOT NULL,
        packets INTEGER NOT NULL,
        congestion INTEGER NOT NULL,
        random INTEGER NOT NULL,
        socket INTEGER NOT NULL,
        host INTEGER NOT NULL,
        sender INTEGER NOT NULL,
        unknown INTEGER NOT NULL,
        profile TEXT NOT NULL
    ) STRICT;
    CREATE INDEX of_path ON observations (peer, local, remote, direction, seen);
    CREATE INDEX by_time ON observations (seen);
    CREATE TABLE leases (
        peer TEXT NOT NULL,
        local TEXT NOT NULL,
        remote TEXT NOT NULL,
        direction TEXT NOT NULL,
        number INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (peer, local, remote, direction)
    ) STRICT;
    CREATE TABLE circuits (
        host TEXT NOT NULL PRIMARY KEY,
        seen INTEGER NOT NULL,
        circuits INTEGER NOT NULL,
        wasted_ppm INTEGER NOT NULL,
        deviation_ppm INTEGER NOT NULL,
        max_rate_bps INTEGER
    ) STRICT;
";
/// Nobody knows whose pulls were seen before.
const BY_TOKEN: &str = "
    ALTER TABLE observations ADD COLUMN token TEXT NOT NULL DEFAULT '';
    DELETE FROM observations WHERE direction = 'pull';
    DROP INDEX of_path;
    CREATE INDEX of_path ON observations (peer, local, remote, direction, token, seen);
    CREATE INDEX of_token ON observations (token, seen);
    DROP TABLE leases;
    CREATE TABLE leases (
        peer TEXT NOT NULL,
        local TEXT NOT NULL,
        remote TEXT NOT NULL,
        direction TEXT NOT NULL,
        token TEXT NOT NULL,
        number INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (peer, local, remote, direction, token)
    ) STRICT;
";
const SWALLOWED: &str = "
    CREATE TABLE swallowed (
        peer TEXT NOT NULL,
        remote TEXT NOT NULL,
        seen INTEGER NOT NULL,
        PRIMARY KEY (peer, remote)
    ) STRICT;
";
