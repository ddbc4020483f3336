use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::runtime::Runtime;

use super::{Store, StoreError, decode, decode_state, encode, explain, position, runtime};
use crate::ledger::Record;

/// A store that several nodes share: one leads, the others wait for its lease to end.
///
/// Every append renews the lease and checks the epoch in its own transaction. Taking the lead
/// changes the same row, so it waits for a running append and undoes later ones.
#[derive(Debug)]
pub struct Postgres {
    runtime: Runtime,
    options: PgConnectOptions,
    /// `None` after an error: the next operation connects again.
    connection: Option<PgConnection>,
    lease: f64,
    node: String,
    url: String,
    epoch: i64,
}

impl Postgres {
    /// Connects to the database at `database`. `node` and `url` show others the leader.
    pub fn open(
        database: &str,
        lease: Duration,
        node: &str,
        url: &str,
    ) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(database).map_err(failed)?;
        let mut this = Self {
            runtime: runtime()?,
            options: options.disable_statement_logging(),
            connection: None,
            lease: lease.as_secs_f64(),
            node: node.into(),
            url: url.into(),
            epoch: 0,
        };
        this.connect()?;
        Ok(this)
    }

    fn connect(&mut self) -> Result<(), StoreError> {
        if self.connection.is_none() {
            let opened = self.runtime.block_on(tokio_timeout(async {
                let mut connection = PgConnection::connect_with(&self.options).await?;
                let exists: bool =
                    sqlx::query_scalar("SELECT to_regclass('compacted') IS NOT NULL")
                        .fetch_one(&mut connection)
                        .await?;
                if !exists {
                    sqlx::raw_sql(SCHEMA).execute(&mut connection).await?;
                }
                Ok(connection)
            }));
            self.connection = Some(opened?);
        }
        Ok(())
    }

    /// Runs `work` on the connection; a connection that failed is not used again.
    fn with<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.connect()?;
        let Some(mut connection) = self.connection.take() else {
            return Err(StoreError::Failed("no connection".into()));
        };
        let result = self.runtime.block_on(tokio_timeout(work(&mut connection)));
        if result.is_ok() {
            self.connection = Some(connection);
        }
        result
    }
}

impl Store for Postgres {
    fn lead(&mut self) -> Result<u64, StoreError> {
        let (node, url, lease) = (self.node.clone(), self.url.clone(), self.lease);
        let (led, epoch, by, at): (bool, i64, String, String) = self.with(async |connection| {
            let lead = sqlx::query_as(LEAD).bind(node).bind(url).bind(lease);
            if let Some((epoch, node, url)) = lead.fetch_optional(&mut *connection).await? {
                return Ok((true, epoch, node, url));
            }
            let other = sqlx::query_as("SELECT epoch, node, url FROM leader");
            let (epoch, node, url) = other.fetch_one(connection).await?;
            Ok((false, epoch, node, url))
        })?;
        if !led {
            return Err(StoreError::Led { node: by, url: at });
        }
        self.epoch = epoch;
        Ok(epoch.unsigned_abs())
    }

    fn renew(&mut self) -> Result<(), StoreError> {
        let (lease, epoch) = (self.lease, self.epoch);
        let renewed = self.with(async |connection| {
            let renew = sqlx::query(RENEW).bind(epoch).bind(lease);
            renew.execute(connection).await.map(|done| done.rows_affected())
        })?;
        if renewed == 1 { Ok(()) } else { Err(StoreError::Fenced) }
    }

    fn read(&mut self, after: u64, limit: u32) -> Result<Vec<Record>, StoreError> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let rows: Vec<_> = self.with(async |connection| {
            let rows = sqlx::query_as(READ).bind(after).bind(i64::from(limit));
            rows.fetch_all(connection).await
        })?;
        rows.into_iter().map(decode).collect()
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let rows = encode(records)?;
        let (lease, epoch) = (self.lease, self.epoch);
        let led = self.with(async |connection| {
            let mut transaction = connection.begin().await?;
            let renew = sqlx::query(RENEW).bind(epoch).bind(lease);
            if renew.execute(&mut *transaction).await?.rows_affected() != 1 {
                return Ok(false);
            }
            let insert = sqlx::query(APPEND).bind(epoch).bind(rows);
            insert.execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(true)
        })?;
        if led { Ok(()) } else { Err(StoreError::Fenced) }
    }

    fn state(&mut self) -> Result<Option<(u64, String)>, StoreError> {
        let found =
            self.with(async |connection| sqlx::query_as(STATE).fetch_optional(connection).await)?;
        Ok(found.map(decode_state))
    }

    fn compact(&mut self, seq: u64, state: &str) -> Result<(), StoreError> {
        let (lease, epoch, seq) = (self.lease, self.epoch, position(seq)?);
        // A part at a time, so that none takes longer than the database is waited for; the state
        // stands for them from the first part on.
        let mut gone = 1;
        while gone > 0 {
            let led = self.with(async |connection| {
                let mut transaction = connection.begin().await?;
                let renew = sqlx::query(RENEW).bind(epoch).bind(lease);
                if renew.execute(&mut *transaction).await?.rows_affected() != 1 {
                    return Ok(None);
                }
                let keep = sqlx::query(KEEP).bind(seq).bind(state);
                keep.execute(&mut *transaction).await?;
                let forget = sqlx::query(FORGET).bind(seq).bind(PART);
                let gone = forget.execute(&mut *transaction).await?.rows_affected();
                transaction.commit().await?;
                Ok(Some(gone))
            })?;
            gone = led.ok_or(StoreError::Fenced)?;
        }
        Ok(())
    }

    fn resign(&mut self) {
        let epoch = self.epoch;
        // If this fails, the lease ends by itself.
        let _ = self.with(async |connection| {
            let end = sqlx::query("UPDATE leader SET expires = now() WHERE epoch = $1").bind(epoch);
            end.execute(connection).await
        });
    }
}

/// A database that does not answer must not hold the service up for ever.
async fn tokio_timeout<T>(
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(result) => result.map_err(failed),
        Err(_) => Err(StoreError::Failed("the database does not answer".into())),
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    explain(&error, &["53100"], &["25006"])
}

const PATIENCE: Duration = Duration::from_secs(10);
/// Nodes that start together make the tables once.
const SCHEMA: &str = "
BEGIN;
SELECT pg_advisory_xact_lock(7430);
CREATE TABLE IF NOT EXISTS booking_event (
    seq bigint PRIMARY KEY,
    epoch bigint NOT NULL,
    tick bigint NOT NULL,
    project text NOT NULL,
    actor text NOT NULL,
    \"order\" json NOT NULL,
    outcome json NOT NULL
);
CREATE TABLE IF NOT EXISTS leader (
    id int PRIMARY KEY CHECK (id = 1),
    epoch bigint NOT NULL,
    node text NOT NULL,
    url text NOT NULL,
    expires timestamptz NOT NULL
);
INSERT INTO leader VALUES (1, 0, '', '', '-infinity') ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS compacted (
    id int PRIMARY KEY CHECK (id = 1),
    seq bigint NOT NULL,
    state text NOT NULL
);
COMMIT;
";
const LEAD: &str = "
UPDATE leader SET epoch = epoch + 1, node = $1, url = $2,
       expires = now() + make_interval(secs => $3)
WHERE expires < now() OR node = $1 RETURNING epoch, node, url";
const RENEW: &str = "
UPDATE leader SET expires = now() + make_interval(secs => $2) WHERE epoch = $1";
const STATE: &str = "SELECT seq, state FROM compacted";
const KEEP: &str = "
INSERT INTO compacted VALUES (1, $1, $2)
ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, state = excluded.state
WHERE compacted.seq < excluded.seq";
const FORGET: &str = "
DELETE FROM booking_event WHERE seq IN
(SELECT seq FROM booking_event WHERE seq <= $1 ORDER BY seq LIMIT $2)";
/// Records that are taken out at once.
const PART: i64 = 100_000;
const READ: &str = "
SELECT seq, tick, \"order\"::text, outcome::text FROM booking_event
WHERE seq > $1 ORDER BY seq LIMIT $2";
const APPEND: &str = "
INSERT INTO booking_event (seq, epoch, tick, project, actor, \"order\", outcome)
SELECT r.seq, $1, r.tick, r.project, r.actor, r.\"order\", r.outcome
FROM json_to_recordset($2::text::json)
     AS r(seq bigint, tick bigint, project text, actor text, \"order\" json, outcome json)";
