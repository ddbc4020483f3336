//! The end that asks once, and takes what a server answers.

use std::io;
use std::sync::{Arc, OnceLock};

use longhaul_connection::{IncomingAnswers, Transfer, Wish};
use longhaul_sys::stop::Stop;
use longhaul_units::{Duration, Instant, shown, shown_path};
use longhaul_wire::{AnswerMessage, EntryEnd, MAX_PATH};

use crate::api::Snapshot;
use crate::connection::circuit::Errand;
use crate::connection::shared::{Memory, Shared, ThreadError};
use crate::endpoint::client::{Client, Finished, Task};
use crate::error::Error;
use crate::memory::budget::Budget;
use crate::options::{CarrierChoice, ConnectOptions};
use crate::progress::Progress;

/// Takes answers, but for the last, in the order in which they come.
pub(crate) type Take = Arc<dyn Fn(&Shared, AnswerMessage) -> Result<(), ThreadError> + Send + Sync>;

/// The end that asked.
pub(crate) struct Asking {
    pub shared: Arc<Shared>,
    take: Take,
    /// True where answers are taken for this attempt. Decided once: nobody takes them back.
    takes: Arc<OnceLock<bool>>,
}

impl Asking {
    fn new(connect: &ConnectOptions, take: Take, shared: &Arc<Shared>) -> Self {
        begin(connect, shared);
        Self { shared: shared.clone(), take, takes: Arc::default() }
    }
}

/// Asks `wish`, and blocks until all that is answered was taken.
///
/// # Errors
/// The server does not grant it, or not all was answered.
pub(crate) fn ask(
    options: &ConnectOptions,
    wish: Wish,
    take: &Take,
    started: Instant,
    stop: &Stop,
) -> Result<Finished<Asking>, Error> {
    let connect = over_messages(options);
    let failed = |failure| Error::of(failure, None);
    let client = Client::new(&connect, wish, started).map_err(failed)?;
    let make = |_, shared: &Arc<Shared>| Ok(Asking::new(&connect, take.clone(), shared));
    client.run(make, &Progress::default(), stop).map_err(failed)
}

/// Checks a path at a server.
///
/// # Errors
/// None has such a name.
pub(crate) fn check_path(path: &[u8]) -> Result<(), Error> {
    match path.len() > MAX_PATH || path.contains(&0) {
        true => {
            let reason = format!("a path at a server has at most {MAX_PATH} bytes, none zero");
            Err(Error::usage(reason))
        }
        false => Ok(()),
    }
}

/// Begins the transfer of the end that asks.
pub(crate) fn begin(connect: &ConnectOptions, shared: &Shared) {
    let transfer = Transfer::IncomingAnswers(IncomingAnswers::default());
    let ConnectOptions { memory, stall_timeout, .. } = *connect;
    shared.begin(transfer, Memory::None, Budget::new(memory), stall_timeout);
}

/// Notes something that the server could not look at.
pub(crate) fn note_unlisted(shared: &Shared, path: &[u8], end: &EntryEnd) {
    shared.note_failure(&shown_path(path), &EntryEnd::new(end.code, &shown(&end.reason)));
}

/// As `options` say, but for what messages alone do not need: they go over one TCP connection.
pub(crate) fn over_messages(options: &ConnectOptions) -> ConnectOptions {
    let mut connect = options.clone();
    (connect.carrier, connect.lanes) = (CarrierChoice::Tcp, 1);
    (connect.circuit, connect.links) = (None, Vec::new());
    connect
}

impl Task for Asking {
    // The one who takes what is answered may block.
    const THREADS_END: bool = false;

    fn start(&self) -> io::Result<()> {
        let (take, takes) = (self.take.clone(), self.takes.clone());
        self.shared.spawn("answers", move |shared| follow(shared, &take, &takes))
    }

    fn errand(&self) -> Option<Errand> {
        None
    }

    fn so_far(&self, _backlog: u64) -> Snapshot {
        Snapshot::default()
    }

    fn leave(&self) -> bool {
        !*self.takes.get_or_init(|| false)
    }
}

/// Takes answers until the last one.
fn follow(shared: &Shared, take: &Take, takes: &OnceLock<bool>) -> Result<(), ThreadError> {
    let mut half = shared.lock();
    while !shared.is_stopped() {
        let answer = shared
            .update(&mut half, |half| half.incoming_answers().and_then(|it| it.poll_answer()));
        match answer {
            Some(_) if !takes.get_or_init(|| true) => return Ok(()),
            Some(AnswerMessage::End { .. }) => return Ok(()),
            Some(answer) => {
                drop(half);
                take(shared, answer)?;
                half = shared.lock();
            }
            None => half = shared.rest(half, PATIENCE),
        }
    }
    Ok(())
}

/// For an answer that was not asked for.
pub(crate) const UNASKED: &str = "answers what was not asked";
/// A thread that waits looks this often if it was stopped.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);
