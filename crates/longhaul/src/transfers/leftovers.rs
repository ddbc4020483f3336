//! `longhaul resume` at a server: copies that were interrupted there.

pub(crate) mod served;

use std::sync::{Arc, Mutex};
use std::time::Duration as Age;

use longhaul_connection::Wish;
use longhaul_files::{UnfinishedCopy, is_hidden_name};
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_wire::{AnswerMessage, Left, LeftState, LeftoversRequest};

use crate::api::EndedEntries;
use crate::connection::shared::{Shared, ThreadError};
use crate::error::Error;
use crate::options::ConnectOptions;
use crate::transfers::asking::{Take, UNASKED, ask, check_path, note_unlisted};

pub(crate) use served::ServedLeftovers;

/// Unfinished copies of a server that are wanted. Of the connection's options those of a
/// [listing](crate::ListOptions) count.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeftoversOptions {
    /// The server, and how it is reached.
    pub connect: ConnectOptions,
    /// Path of a directory there; empty is the root.
    pub path: Vec<u8>,
    /// Removes all that they keep, but of those that run. A server has to allow deletion.
    pub discard: bool,
}

impl LeftoversOptions {
    /// Those below `path`, left as they are.
    pub fn new(connect: ConnectOptions, path: impl Into<Vec<u8>>) -> Self {
        Self { connect, path: path.into(), discard: false }
    }
}

/// Unfinished copies of a server.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LeftoversReport {
    /// Each, and true where what it kept was removed.
    pub copies: Vec<(UnfinishedCopy, bool)>,
    /// Directories that could not be looked at, and copies that could not be discarded.
    pub failures: EndedEntries,
}

/// Finds the copies to a directory of a server, and to those below it, that are not finished.
///
/// # Errors
/// There is no such directory, the server does not let this client look or discard, or not all was listed.
pub fn leftovers(options: &LeftoversOptions, stop: &Stop) -> Result<LeftoversReport, Error> {
    check_path(&options.path)?;
    let request = LeftoversRequest { discard: options.discard, path: options.path.clone() };
    let found = Arc::new(Mutex::new(Vec::new()));
    let taking = found.clone();
    let take: Take =
        Arc::new(move |shared: &Shared, answer| take(shared, answer, &mut lock(&taking)));
    let wish = Wish::Leftovers(request);
    let finished = ask(&options.connect, wish, &take, clock::now(), stop)?;
    let copies = std::mem::take(&mut *lock(&found));
    Ok(LeftoversReport { copies, failures: finished.task.shared.failures() })
}

/// Takes an answer.
fn take(
    shared: &Shared,
    answer: AnswerMessage,
    found: &mut Vec<(UnfinishedCopy, bool)>,
) -> Result<(), ThreadError> {
    match answer {
        AnswerMessage::Left(all) => {
            if !all.iter().all(is_hidden) {
                return Err(ThreadError::Misanswered("names what holds no interrupted copy"));
            }
            found.extend(all.into_iter().map(copy));
            match found.len() > COPIES_MAX {
                true => Err(ThreadError::Misanswered("lists more copies than are kept in mind")),
                false => Ok(()),
            }
        }
        AnswerMessage::Unlisted { path, end } => {
            note_unlisted(shared, &path, &end);
            Ok(())
        }
        AnswerMessage::Listed(_) | AnswerMessage::Hashed(_) | AnswerMessage::End { .. } => {
            Err(ThreadError::Misanswered(UNASKED))
        }
    }
}

fn is_hidden(left: &Left) -> bool {
    left.path.as_bytes().rsplit(|byte| *byte == b'/').next().is_some_and(is_hidden_name)
}

fn copy(left: Left) -> (UnfinishedCopy, bool) {
    let sources = left.sources.split(|byte| *byte == 0);
    let copy = UnfinishedCopy {
        path: left.path.as_bytes().to_vec(),
        idle: Age::from_secs(left.idle),
        bytes: left.bytes,
        total: left.total,
        runs: left.state == LeftState::Running,
        sources: sources.filter(|it| !it.is_empty()).map(<[u8]>::to_vec).collect(),
    };
    (copy, left.state == LeftState::Discarded)
}

/// Of one server: with the longest paths they take 256 MiB.
const COPIES_MAX: usize = 1 << 16;
