//! `longhaul ls`: names and status of what a server has.

pub(crate) mod served;

use std::io;
use std::sync::Arc;

use longhaul_connection::{Transfer, Wish};
use longhaul_files::ListedPattern;
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_units::Duration;
use longhaul_wire::{AnswerMessage, ListRequest, Listed};

use crate::api::EndedEntries;
use crate::connection::shared::{Shared, ThreadError};
use crate::endpoint::client::Finished;
use crate::error::Error;
use crate::options::ConnectOptions;
use crate::transfers::asking::{Take, UNASKED, ask, check_path, note_unlisted};

pub(crate) use served::ServedListings;

/// Takes what is listed, in the order in which it comes, on a thread of the library. Where it fails the
/// listing ends.
pub type ListSink = Arc<dyn Fn(Vec<Listed>) -> io::Result<()> + Send + Sync>;

/// A listing. Of the connection's options server, token, route, memory and timeouts count: answers are
/// messages, which go over one TCP connection.
#[derive(Clone)]
#[non_exhaustive]
pub struct ListOptions {
    /// The server, and how it is reached.
    pub connect: ConnectOptions,
    /// Path at the server; empty is its root.
    pub path: Vec<u8>,
    /// All that is below a directory, not only what is in it.
    pub recursive: bool,
    /// Takes what is found.
    pub sink: ListSink,
}

impl ListOptions {
    /// Lists `path`, and nothing below its directories, to `sink`.
    pub fn new(connect: ConnectOptions, path: impl Into<Vec<u8>>, sink: ListSink) -> Self {
        Self { connect, path: path.into(), recursive: false, sink }
    }
}

/// How a listing went.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListReport {
    /// Number of things that were listed.
    pub listed: u64,
    /// Things that are there and could not be looked at.
    pub failures: EndedEntries,
    /// Start of the call to its end.
    pub elapsed: Duration,
}

/// Lists what a server has. Blocks until all was listed, and taken.
///
/// ```no_run
/// use std::sync::Arc;
/// use longhaul::{ConnectOptions, DEFAULT_PORT, Endpoint, ListOptions, Stop};
///
/// let token = std::fs::read_to_string("token")?.trim().parse()?;
/// let connect = ConnectOptions::new(Endpoint::new("dtn2.example", DEFAULT_PORT), token);
/// let print = Arc::new(|all: Vec<longhaul::Listed>| {
///     all.iter().for_each(|it| println!("{}", it.path));
///     Ok(())
/// });
/// longhaul::list(&ListOptions::new(connect, "run-17", print), &Stop::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// There is no such path, or not all was listed. That some of it could not be looked at is no error; see
/// [`ListReport::failures`].
pub fn list(options: &ListOptions, stop: &Stop) -> Result<ListReport, Error> {
    let started = clock::now();
    check_path(&options.path)?;
    let ListOptions { connect, path, recursive, .. } = options;
    let wish = Wish::List(ListRequest { recursive: *recursive, path: path.clone() });
    let pattern = ListedPattern::new(path, *recursive);
    let wrong = |error| connect.wrong_pattern(&wish, (0, path), &error);
    let pattern = pattern.map_err(wrong)?.map(Arc::new);
    let sink = options.sink.clone();
    let take: Take =
        Arc::new(move |shared: &Shared, answer| take(shared, answer, &sink, pattern.as_deref()));
    let finished = ask(connect, wish, &take, started, stop)?;
    let Finished { task, elapsed, .. } = finished;
    let listed = task.shared.lock().transfer().and_then(Transfer::done).unwrap_or(0);
    Ok(ListReport { listed, failures: task.shared.failures(), elapsed })
}

/// Takes an answer, which may name only what `pattern` admits.
fn take(
    shared: &Shared,
    answer: AnswerMessage,
    sink: &ListSink,
    pattern: Option<&ListedPattern>,
) -> Result<(), ThreadError> {
    let admits = |path: &[u8]| pattern.is_none_or(|it| it.admits(path));
    match answer {
        AnswerMessage::Listed(all) => {
            if !all.iter().all(|listed| admits(listed.path.as_bytes())) {
                return Err(ThreadError::Misanswered(NO_MATCH));
            }
            sink(all).map_err(ThreadError::Output)
        }
        AnswerMessage::Unlisted { path, .. } if !admits(&path) => {
            Err(ThreadError::Misanswered(NO_MATCH))
        }
        AnswerMessage::Unlisted { path, end } => {
            note_unlisted(shared, &path, &end);
            Ok(())
        }
        AnswerMessage::Hashed(_) | AnswerMessage::Left(_) | AnswerMessage::End { .. } => {
            Err(ThreadError::Misanswered(UNASKED))
        }
    }
}

const NO_MATCH: &str = "lists what the pattern does not match";
