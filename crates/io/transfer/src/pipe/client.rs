//! A client's end of a pipe.

use std::sync::Arc;

use longhaul_connection::{Gate, Wish};
use longhaul_sys::clock;
use longhaul_units::{Duration, Instant};
use longhaul_wire::{PipeRequest, PipeRole, SourceReport};

use super::api::{PipeError, PipeOptions, PipeReport, pipe_name_is_valid};
use super::drain::Drain;
use super::feed::Feed;
use crate::api::{Snapshot, Stop};
use crate::budget::Budget;
use crate::carrier::Mailbox;
use crate::circuit::Errand;
use crate::client::{Client, Failure, Finished, Task, profile};
use crate::hub::{Side, State};
use crate::progress::Progress;

/// Plays one end of a pipe. Blocks until the other end is there, and then until every byte is
/// where it should be, or the pipe breaks.
///
/// After an error a thread may still be stuck writing to [`PipeOptions::file`], if nobody reads there.
///
/// # Errors
/// See [`PipeError`].
pub fn pipe(
    options: &PipeOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<PipeReport, PipeError> {
    let started = clock::now();
    if !pipe_name_is_valid(&options.name) {
        return Err(PipeError::Usage("a pipe has a name of 1 to 255 bytes, none zero".into()));
    }
    if options.circuit.is_some() && options.role == PipeRole::Receive {
        return Err(PipeError::Usage("the end that sends books the circuit".into()));
    }
    if options.circuit.as_ref().is_some_and(|circuit| circuit.want.is_none()) {
        return Err(PipeError::Usage("nobody knows the size of a pipe: say what to book".into()));
    }
    let client = Client {
        host: &options.host,
        port: options.port,
        token: &options.token,
        profile: profile(&options.profile, options.rate)?,
        rate: options.rate,
        protect: options.protect,
        carrier: options.carrier,
        lanes: options.lanes,
        memory: Budget::new(options.memory),
        idle_timeout: options.idle_timeout,
        stall_timeout: options.stall_timeout,
        circuit: options.circuit.as_ref(),
        wish: Wish::Pipe(PipeRequest { role: options.role, name: options.name.clone() }),
        started,
    };
    // A second carrier is tried only while nothing was read: the other end was not there.
    let make = |_, mailboxes: &[_]| End::new(options, mailboxes);
    let Finished { task, elapsed, link, .. } = client.run(make, progress, stop)?;
    let setup = task.joined.map_or(elapsed, |at| at - started);
    Ok(PipeReport { bytes: task.part.bytes(), elapsed, setup, link })
}

/// The end that this host plays.
struct End {
    part: Part,
    /// When both ends were there.
    joined: Option<Instant>,
    /// The user knows that the other end is waited for.
    told: bool,
}

enum Part {
    Feed(Arc<Feed>),
    Drain(Arc<Drain>),
}

impl End {
    fn new(options: &PipeOptions, mailboxes: &[Arc<Mailbox>]) -> Result<Self, Failure> {
        let (file, mailboxes) = (options.file.try_clone()?, mailboxes.to_vec());
        let memory = Budget::new(options.memory);
        let part = match options.role {
            PipeRole::Send => {
                Part::Feed(Arc::new(Feed::of_file(file, memory.of_source(), mailboxes)))
            }
            PipeRole::Receive => {
                Part::Drain(Arc::new(Drain::to_file(file, memory.of_sink(), mailboxes)))
            }
        };
        Ok(Self { part, joined: None, told: false })
    }
}

impl Part {
    /// Bytes that came through as far as known here.
    fn bytes(&self) -> u64 {
        match self {
            Self::Feed(feed) => feed.confirmed(),
            Self::Drain(drain) => drain.bytes(),
        }
    }

    /// What it is doing until the other end is there.
    fn waits_for(&self) -> &'static str {
        match self {
            Self::Feed(_) => "waiting for the receiver of the pipe",
            Self::Drain(_) => "waiting for the sender of the pipe",
        }
    }

    /// Whether the other end is there.
    fn is_joined(&self) -> bool {
        match self {
            Self::Feed(feed) => feed.is_joined(),
            // The server sends what it gets; of an empty pipe only its end.
            Self::Drain(drain) => drain.bytes() > 0 || drain.is_at_end(),
        }
    }
}

impl Task for End {
    const THREADS_END: bool = false;

    fn side(&self) -> Side {
        match &self.part {
            Part::Feed(feed) => Side::Source(feed.clone()),
            Part::Drain(drain) => Side::Sink(drain.clone()),
        }
    }

    fn hold(&self) -> Option<Errand> {
        let Part::Feed(feed) = &self.part else { return None };
        feed.direct(Gate::hold);
        Some(Errand::Pipe(feed.clone()))
    }

    fn so_far(&self, _backlog: u64) -> Snapshot {
        Snapshot { bytes_done: self.part.bytes(), ..Snapshot::default() }
    }

    fn source_report(&self) -> Option<SourceReport> {
        match &self.part {
            Part::Feed(_) => None,
            Part::Drain(drain) => drain.source_report(),
        }
    }

    fn cpu_remote(&self) -> Option<Duration> {
        match &self.part {
            Part::Feed(feed) => feed.result().map(|result| result.cpu_time),
            Part::Drain(drain) => drain.source_report().map(|report| report.cpu_time),
        }
    }

    fn on_look(&mut self, state: &State, progress: &Progress) {
        if self.joined.is_none() && self.part.is_joined() {
            self.joined = Some(clock::now());
        }
        if state.validated.is_some() && self.joined.is_none() && !self.told {
            self.told = true;
            progress.tell(self.part.waits_for());
        }
    }
}
