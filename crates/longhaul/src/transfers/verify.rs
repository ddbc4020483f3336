//! `longhaul verify`: files compared with a list of hashes, hashed where they are.

mod comparison;
mod here;
mod served;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use longhaul_connection::Wish;
use longhaul_files::HashList;
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_units::Duration;
use longhaul_wire::{AnswerMessage, VerifyRequest};

use crate::api::Snapshot;
use crate::connection::circuit::Errand;
use crate::connection::shared::{Shared, ThreadError};
use crate::endpoint::client::{Client, Finished, Task};
use crate::error::{Error, ErrorKind, Side};
use crate::options::ConnectOptions;
use crate::progress::Progress;
use crate::transfers::asking::{self, PATIENCE, check_path, over_messages};
use comparison::Comparison;

pub use comparison::{Finding, FindingKind, FindingSink};
pub(crate) use served::ServedHashes;

/// A comparison of files with a list of hashes.
#[derive(Clone)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// The directory that names of the list are relative to.
    pub place: VerifyPlace,
    /// Names and hashes.
    pub hashes: Arc<HashList>,
    /// Files that are there and not in the list are no findings: nobody looks for them.
    pub ignore_extra: bool,
    /// Takes what is not as in the list.
    pub sink: FindingSink,
}

/// The place of the files.
#[derive(Clone, Debug)]
pub enum VerifyPlace {
    /// A directory of this host.
    Here(PathBuf),
    /// One at a server, which hashes them. Of the connection's options those count that count of a listing.
    There {
        /// The server, and how it is reached.
        connect: Box<ConnectOptions>,
        /// Path there; empty is its root.
        path: Vec<u8>,
    },
}

impl VerifyOptions {
    /// Compares files in `place` with `hashes`, and tells `sink` what is not alike.
    pub fn new(place: VerifyPlace, hashes: Arc<HashList>, sink: FindingSink) -> Self {
        Self { place, hashes, ignore_extra: false, sink }
    }
}

/// End of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files that have the hash of the list.
    pub files: u64,
    /// Bytes that were hashed.
    pub bytes: u64,
    /// Names of the list that are not there.
    pub missing: u64,
    /// Files that have another hash.
    pub changed: u64,
    /// Files that are not in the list, in directories that it is about.
    pub extra: u64,
    /// Names that could not be looked at.
    pub failed: u64,
    /// Start of the call to its end.
    pub elapsed: Duration,
}

impl VerifyReport {
    /// True if all is as in the list.
    pub fn is_alike(&self) -> bool {
        self.missing + self.changed + self.extra + self.failed == 0
    }
}

/// Compares files with a list of hashes. Blocks until all were compared.
///
/// ```no_run
/// use std::sync::Arc;
/// use longhaul::{HashList, Progress, Stop, VerifyOptions, VerifyPlace};
///
/// let list = std::io::BufReader::new(std::fs::File::open("run-17.b3")?);
/// let hashes = Arc::new(HashList::read(list)?);
/// let print = Arc::new(|found: &longhaul::Finding| { println!("{found}"); Ok(()) });
/// let options = VerifyOptions::new(VerifyPlace::Here("/data".into()), hashes, print);
/// let report = longhaul::verify(&options, &Progress::default(), &Stop::default())?;
/// assert!(report.is_alike());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The place cannot be looked at, or not all was compared. That files differ is no error; see [`VerifyReport`].
pub fn verify(
    options: &VerifyOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<VerifyReport, Error> {
    let started = clock::now();
    let comparison = Arc::new(Mutex::new(Comparison::new(options)));
    match &options.place {
        VerifyPlace::Here(path) => here::compare(path, &comparison, progress, stop)?,
        VerifyPlace::There { connect, path } => {
            compare_there((connect, path), &comparison, progress, stop)?;
        }
    }
    let report = lock(&comparison).report();
    Ok(VerifyReport { elapsed: clock::now() - started, ..report })
}

fn compare_there(
    (connect, path): (&ConnectOptions, &[u8]),
    comparison: &Arc<Mutex<Comparison>>,
    progress: &Progress,
    stop: &Stop,
) -> Result<(), Error> {
    check_path(path)?;
    let connect = over_messages(connect);
    let request = VerifyRequest { path: path.to_vec(), questions: Vec::new(), is_last: false };
    let failed = |failure| Error::of(failure, None);
    let client = Client::new(&connect, Wish::Verify(request), clock::now()).map_err(failed)?;
    let make = |_, shared: &Arc<Shared>| Ok(Comparing::new(&connect, comparison, shared));
    let Finished { task, .. } = client.run(make, progress, stop).map_err(failed)?;
    if lock(&task.comparison).is_whole() {
        return Ok(());
    }
    let message = "the server left questions without an answer";
    Err(Error::new(ErrorKind::Violation, Side::There, message))
}

/// The end that asked.
struct Comparing {
    shared: Arc<Shared>,
    comparison: Arc<Mutex<Comparison>>,
    /// Its state when nobody was taking findings, who may block.
    seen: Mutex<Snapshot>,
}

impl Comparing {
    fn new(
        options: &ConnectOptions,
        comparison: &Arc<Mutex<Comparison>>,
        shared: &Arc<Shared>,
    ) -> Self {
        lock(comparison).begin();
        asking::begin(options, shared);
        Self { shared: shared.clone(), comparison: comparison.clone(), seen: Mutex::default() }
    }
}

impl Task for Comparing {
    // The one who takes what is found may block.
    const THREADS_END: bool = false;

    fn start(&self) -> io::Result<()> {
        let comparison = self.comparison.clone();
        self.shared.spawn("answers", move |shared| converse(shared, &comparison))
    }

    fn errand(&self) -> Option<Errand> {
        None
    }

    fn so_far(&self, _backlog: u64) -> Snapshot {
        let mut seen = lock(&self.seen);
        if let Ok(comparison) = self.comparison.try_lock() {
            *seen = comparison.snapshot();
        }
        seen.clone()
    }

    /// Compared files are not asked for again; extra files would be found twice.
    fn leave(&self) -> bool {
        !lock(&self.comparison).has_looked_beside()
    }
}

/// Asks, and takes answers until the last one.
fn converse(shared: &Shared, comparison: &Mutex<Comparison>) -> Result<(), ThreadError> {
    let mut half = shared.lock();
    while !shared.is_stopped() {
        let may_ask = half.incoming_answers().is_some_and(|it| it.may_ask());
        if may_ask && let Some(more) = lock(comparison).next_questions(QUESTIONS_BYTES) {
            drop(half);
            shared.change(|half| half.incoming_answers().map(|it| it.ask(more)));
            half = shared.lock();
        }
        let answer = shared
            .update(&mut half, |half| half.incoming_answers().and_then(|it| it.poll_answer()));
        match answer {
            Some(AnswerMessage::End { .. }) => return Ok(()),
            Some(answer) => {
                drop(half);
                lock(comparison).take(answer)?;
                half = shared.lock();
            }
            None => half = shared.rest(half, PATIENCE),
        }
    }
    Ok(())
}

/// Bytes of questions in a message.
const QUESTIONS_BYTES: usize = 16 << 10;
