//! Files of this host, compared.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use longhaul_files::{Found, Hashing, is_hidden_name};
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use longhaul_units::{Bytes, Duration, Rate};
use longhaul_wire::{AnswerMessage, EntryPath, Hashed, Question};

use super::comparison::Comparison;
use crate::api::Snapshot;
use crate::connection::shared::ThreadError;
use crate::directory::open_directory;
use crate::error::{Error, ErrorKind, Side};
use crate::progress::Progress;

/// Compares what is below `path` of this host.
pub(super) fn compare(
    path: &Path,
    comparison: &Mutex<Comparison>,
    progress: &Progress,
    stop: &Stop,
) -> Result<(), Error> {
    let unusable = |reason: String| {
        let path = path.display().to_string();
        Error::path(path.clone(), format!("{path}: {reason}"))
    };
    let root = open_directory(path)?.without(is_hidden_name);
    let hashing = Hashing::open(&root, b"").map_err(|end| unusable(end.reason))?;
    let work = Work { hashing, comparison, asked: Mutex::default(), stop };
    let started = clock::now();
    thread::scope(|scope| {
        let helpers: Result<Vec<_>, _> =
            (0..threads()).map(|_| threads::spawn_scoped(scope, "hash", || work.help())).collect();
        let helpers = helpers.map_err(|error| Error::here(error.to_string()))?;
        while helpers.iter().any(|helper| !helper.is_finished()) {
            progress.set(snapshot(comparison, clock::now() - started));
            thread::sleep(LOOK);
        }
        progress.set(snapshot(comparison, clock::now() - started));
        helpers.into_iter().try_for_each(|helper| match helper.join() {
            Ok(done) => done.map_err(|error| Error::here(error.to_string())),
            Err(_) => Err(Error::here("a thread that hashes ended early")),
        })
    })?;
    match stop.is_requested() {
        true => Err(Error::new(ErrorKind::Stopped, Side::Here, "stopped")),
        false => Ok(()),
    }
}

fn snapshot(comparison: &Mutex<Comparison>, elapsed: Duration) -> Snapshot {
    let snapshot = lock(comparison).snapshot();
    let rate = Rate::from_bytes_over(snapshot.bytes_done, elapsed);
    Snapshot { elapsed, rate, ..snapshot }
}

struct Work<'a> {
    hashing: Hashing,
    comparison: &'a Mutex<Comparison>,
    asked: Mutex<Asked>,
    stop: &'a Stop,
}

#[derive(Default)]
struct Asked {
    /// Questions that no thread has taken, and the number of the first.
    questions: VecDeque<Question>,
    first: u64,
    /// Threads that look at a file with which all may have to help.
    beginning: usize,
}

impl Work<'_> {
    /// Compares until all is. Any number of threads.
    fn help(&self) -> Result<(), ThreadError> {
        let mut buffer = Vec::new();
        while !self.stop.is_requested() {
            if let Some(hashed) = self.hashing.help(&mut buffer) {
                self.take(hashed)?;
                continue;
            }
            match self.next() {
                Some((number, Question::Hash(path))) => {
                    let hashed = self.hashing.begin(number, &path, &mut buffer);
                    lock(&self.asked).beginning -= 1;
                    self.take(hashed)?;
                }
                Some((_, Question::List(path))) => self.list(&path)?,
                None if lock(&self.asked).beginning == 0 && !self.hashing.wants_help() => {
                    return Ok(());
                }
                None => thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    fn next(&self) -> Option<(u64, Question)> {
        let mut asked = lock(&self.asked);
        while asked.questions.is_empty() {
            let more = lock(self.comparison).next_questions(QUESTIONS_BYTES)?;
            asked.questions = more.questions.into();
        }
        let (number, question) = (asked.first, asked.questions.pop_front()?);
        asked.first += 1;
        asked.beginning += usize::from(matches!(question, Question::Hash(_)));
        Some((number, question))
    }

    fn take(&self, hashed: Option<Hashed>) -> Result<(), ThreadError> {
        let answer = AnswerMessage::Hashed(hashed.into_iter().collect());
        lock(self.comparison).take(answer)
    }

    fn list(&self, path: &EntryPath) -> Result<(), ThreadError> {
        let listing = self.hashing.list(path, NAMES_MOST).map_err(ThreadError::Input)?;
        for found in listing {
            let answer = match found {
                Found::There(listed) => AnswerMessage::Listed(vec![listed]),
                Found::Unlisted { path, end } => AnswerMessage::Unlisted { path, end },
            };
            lock(self.comparison).take(answer)?;
            if self.stop.is_requested() {
                break;
            }
        }
        Ok(())
    }
}

/// Threads that hash, at either end.
pub(super) fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS_MOST)
}

/// More would wait for the disk, or for one another.
const THREADS_MOST: usize = 16;
const LOOK: Duration = Duration::from_millis(50);
/// Until a thread without questions looks again.
const PAUSE: Duration = Duration::from_millis(2);
/// Bytes of questions that wait.
const QUESTIONS_BYTES: usize = 16 << 10;
/// Memory for names of directories that are still to be listed.
const NAMES_MOST: Bytes = Bytes::from_mib(64);
