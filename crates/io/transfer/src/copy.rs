//! `longhaul cp`: a copy between this host and a server.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use longhaul_connection::{Gate, Wish};
use longhaul_objects::{Fsync, SinkConfig, TopNames};
use longhaul_sys::clock;
use longhaul_units::{Duration, Instant};
use longhaul_wire::{CloseCode, Direction, Protect, Request, SourceReport};

use crate::api::{CopyOptions, CopyReport, Location, Snapshot, Stop};
use crate::budget::Budget;
use crate::carrier::Mailbox;
use crate::circuit::Errand;
use crate::client::{Client, Failure, Finished, Task, profile};
use crate::control::ConnectError;
use crate::files::{
    Destination, DestinationError, SinkOptions, SourceTree, Target, own_name, source_label,
    transfer_id,
};
use crate::hub::Side;
use crate::progress::Progress;
use crate::sink::SinkDriver;
use crate::source::SourceDriver;
use crate::tcp::JoinError;

/// Why a copy did not come to its end. What is durable stays, and a rerun goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Nothing to do it with: both sides local, both remote, several servers, an unknown profile.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached or does not let us in.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connections of the TCP carrier cannot be made.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The local destination cannot be used.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// The server does not grant the request.
    #[error("{server} refuses: {reason}")]
    Refused {
        /// The server.
        server: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// No packet came through.
    #[error(
        "no UDP packet comes through to {server} (blocked by a firewall?); what is kept: nothing \
         was sent; try --carrier tcp"
    )]
    UdpBlocked {
        /// The server.
        server: SocketAddr,
    },
    /// The connection ended before the copy was complete.
    #[error(
        "the connection to {server} ended: {reason}; what was written is kept, run the same command again to go on"
    )]
    Lost {
        /// The server.
        server: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The server failed: disk full, ...
    #[error(
        "{server} cannot go on: {reason}; what was written is kept, run the same command again to \
         go on"
    )]
    Server {
        /// The server.
        server: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// The server did what no server may do.
    #[error(
        "{server} breaks the protocol: {reason}; the copy was ended, what was written before stays"
    )]
    Violation {
        /// The server.
        server: SocketAddr,
        /// What it did.
        reason: String,
    },
    /// This host failed: disk full, ...
    #[error("{0}; what was written is kept, run the same command again to go on")]
    Local(String),
    /// The user stopped it.
    #[error("stopped; what was written is kept, run the same command again to go on")]
    Stopped,
}

impl From<Failure> for CopyError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Usage(reason) => Self::Usage(reason),
            Failure::Connect(error) => Self::Connect(error),
            Failure::Join(error) => Self::Join(error),
            Failure::Destination(error) => Self::Destination(error),
            Failure::Refused { server, reason } => Self::Refused { server, reason },
            Failure::UdpBlocked { server } => Self::UdpBlocked { server },
            Failure::Closed { server, code: CloseCode::STORAGE, by_peer: true, reason } => {
                Self::Server { server, reason }
            }
            Failure::Closed {
                server,
                code: CloseCode::PROTOCOL_VIOLATION,
                by_peer: false,
                reason,
            } => Self::Violation { server, reason },
            Failure::Closed { server, reason, .. } => Self::Lost { server, reason },
            Failure::Local(reason) => Self::Local(reason),
            Failure::Stopped => Self::Stopped,
        }
    }
}

/// Copies as `options` say. Blocks until everything is durable at the destination, or failed.
///
/// # Errors
/// See [`CopyError`]. A copy of which some entries failed is no error; see
/// [`CopyReport::failures`].
pub fn copy(
    options: &CopyOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<CopyReport, CopyError> {
    let started = clock::now();
    let job = Job::new(options)?;
    if options.circuit.is_some() && job.direction == Direction::Pull {
        return Err(CopyError::Usage(
            "the side with the files books the circuit: run this at the server, as a copy to here"
                .into(),
        ));
    }
    if !options.verify && options.protect == Protect::Clear {
        return Err(CopyError::Usage(UNCHECKED.into()));
    }
    let client = Client {
        host: &job.host,
        port: job.port,
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
        wish: Wish::Copy(job.request(options)),
        started,
    };
    let make = |server, mailboxes: &[_]| Part::new(options, &job, server, mailboxes);
    Ok(report(client.run(make, progress, stop)?, options.verify, started))
}

/// What is to be done, sorted out.
struct Job {
    host: String,
    port: u16,
    direction: Direction,
    /// Here.
    local: Vec<PathBuf>,
    /// There.
    remote: Vec<Vec<u8>>,
}

impl Job {
    fn new(options: &CopyOptions) -> Result<Self, CopyError> {
        let usage = |text: &str| Err(CopyError::Usage(text.into()));
        let mut local = Vec::new();
        let mut remote = Vec::new();
        let mut server = None;
        for source in &options.sources {
            match source {
                Location::Local(path) => local.push(path.clone()),
                Location::Remote { host, port, path } => {
                    if *server.get_or_insert((host, port)) != (host, port) {
                        return usage("all sources have to be at one server");
                    }
                    remote.push(path.clone());
                }
            }
        }
        let nameless = |path: &Vec<u8>| options.copy_contents || own_name(path).is_none();
        if remote.iter().any(nameless) && !remote.iter().all(nameless) {
            return usage("contents of directories and whole sources cannot be mixed in one copy");
        }
        if !options.copy_contents {
            let paths = local.iter().map(|path| path.as_os_str().as_bytes());
            check_names(paths.chain(remote.iter().map(Vec::as_slice)))?;
        }
        match (&options.destination, server) {
            _ if options.sources.is_empty() => usage("nothing to copy"),
            (Location::Remote { host, port, path }, None) => Ok(Self {
                host: host.clone(),
                port: *port,
                direction: Direction::Push,
                local,
                remote: vec![path.clone()],
            }),
            (Location::Local(path), Some((host, port))) if local.is_empty() => Ok(Self {
                host: host.clone(),
                port: *port,
                direction: Direction::Pull,
                local: vec![path.clone()],
                remote,
            }),
            (Location::Local(_), None) => {
                usage("both sides are on this host: one has to be lh://HOST/PATH")
            }
            _ => usage("one side has to be on this host"),
        }
    }

    /// What a server may call what it sends.
    fn names(&self, options: &CopyOptions) -> TopNames {
        let own = |path| own_name(path).filter(|_| !options.copy_contents);
        TopNames::asked(self.remote.iter().map(|path| own(path)))
    }

    fn request(&self, options: &CopyOptions) -> Request {
        let label = match self.direction {
            Direction::Push => source_label(&self.local, options.copy_contents),
            Direction::Pull => [0; 16],
        };
        Request {
            direction: self.direction,
            // Several sources need one.
            destination_is_directory: options.destination_is_directory || self.local.len() > 1,
            sync_at_end: options.fsync == Fsync::End,
            copy_contents: options.copy_contents,
            unhashed: !options.verify,
            label,
            paths: self.remote.clone(),
        }
    }
}

/// Each source goes to the destination under its own name: no two of them may have one.
fn check_names<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Result<(), CopyError> {
    let mut names = BTreeSet::new();
    for path in paths {
        if let Some(name) = own_name(path)
            && !names.insert(name)
        {
            return Err(CopyError::Usage(format!(
                "two sources are called {}, and one would take the other's place: copy them one \
                 after the other, to different directories",
                name.escape_ascii()
            )));
        }
    }
    Ok(())
}

/// The side of a copy that this host plays.
enum Part {
    Source(Arc<SourceDriver>),
    Sink(Arc<SinkDriver>),
}

impl Part {
    fn new(
        options: &CopyOptions,
        job: &Job,
        server: SocketAddr,
        mailboxes: &[Arc<Mailbox>],
    ) -> Result<Self, Failure> {
        let memory = Budget::new(options.memory);
        if job.direction == Direction::Push {
            let tree = SourceTree::local(&job.local, options.copy_contents).direct(options.direct);
            let driver =
                SourceDriver::new(tree, options.verify, memory.of_source(), mailboxes.to_vec());
            return Ok(Self::Source(Arc::new(driver)));
        }
        let destination = job.local.first().map_or(FilePath::new("."), PathBuf::as_path);
        let place = server.to_string();
        let mut source = vec![place.as_bytes()];
        source.extend(job.remote.iter().map(Vec::as_slice));
        let label = OsStr::as_bytes(destination.as_os_str());
        let transfer = transfer_id(&source, label, options.verify);
        let several = job.remote.len() > 1;
        let names = job.names(options);
        let sink_options = SinkOptions {
            is_directory: options.destination_is_directory || several,
            transfer,
            fsync: options.fsync,
            direct: options.direct,
            only_empty: names == TopNames::Contents && !options.merge,
        };
        let (tree, resume) = Target::open(Destination::Local(destination), &sink_options)
            .map_err(Failure::Destination)?;
        let config = sink_config(options.fsync, transfer, memory, names);
        let driver = SinkDriver::new(tree, config, resume, options.verify, mailboxes.to_vec());
        Ok(Self::Sink(Arc::new(driver)))
    }
}

impl Task for Part {
    const THREADS_END: bool = true;

    fn side(&self) -> Side {
        match self {
            Self::Source(source) => Side::Source(source.clone()),
            Self::Sink(sink) => Side::Sink(sink.clone()),
        }
    }

    fn hold(&self) -> Option<Errand> {
        let Self::Source(source) = self else { return None };
        source.direct(Gate::hold);
        Some(Errand::Copy(source.clone()))
    }

    fn so_far(&self, backlog: u64) -> Snapshot {
        match self {
            Self::Source(source) => {
                let stats = source.stats();
                let sent = stats.sent_bytes.saturating_sub(backlog) + stats.resumed_bytes;
                Snapshot {
                    bytes_done: stats.confirmed_bytes.max(sent).min(stats.bytes),
                    bytes_total: stats.complete.then_some(stats.bytes),
                    files_done: stats.confirmed.into(),
                    files_total: stats.complete.then_some(stats.entries.into()),
                    resumed_bytes: stats.resumed_bytes,
                    ..Snapshot::default()
                }
            }
            Self::Sink(sink) => {
                let stats = sink.stats();
                Snapshot {
                    bytes_done: stats.received_bytes + stats.resumed_bytes,
                    bytes_total: stats.complete.then_some(stats.bytes),
                    files_done: stats.confirmed.into(),
                    files_total: stats.complete.then_some(stats.entries.into()),
                    resumed_bytes: stats.resumed_bytes,
                    ..Snapshot::default()
                }
            }
        }
    }

    fn source_report(&self) -> Option<SourceReport> {
        match self {
            Self::Source(_) => None,
            Self::Sink(sink) => sink.source_report(),
        }
    }

    fn cpu_remote(&self) -> Option<Duration> {
        match self {
            Self::Source(source) => source.result().map(|result| result.cpu_time),
            Self::Sink(sink) => sink.source_report().map(|report| report.cpu_time),
        }
    }
}

fn report(finished: Finished<Part>, verify: bool, started: Instant) -> CopyReport {
    let Finished { task, elapsed, validated, link } = finished;
    let (bytes, files, resumed_bytes, failures) = match &task {
        Part::Source(source) => {
            let told = source.result().map_or((0, 0, 0), |result| {
                (result.bytes.get(), result.confirmed, result.resumed.get())
            });
            (told.0, told.1, told.2, source.failures())
        }
        Part::Sink(sink) => {
            let stats = sink.stats();
            let (bytes, resumed) = (stats.confirmed_bytes, stats.resumed_bytes);
            (bytes, stats.confirmed.into(), resumed, sink.failures())
        }
    };
    CopyReport {
        bytes,
        files,
        elapsed,
        setup: validated.map_or(elapsed, |at| at - started),
        resumed_bytes,
        discarded: matches!(&task, Part::Sink(sink) if sink.discards()),
        verified: verify && failures.is_empty(),
        failures,
        link,
    }
}

/// Neither on the way nor by its hash.
pub(crate) const UNCHECKED: &str = "nothing would notice corrupted data: what is neither verified nor \
                                    protected on its way is not copied";

/// What a sink of this program is told.
pub(crate) fn sink_config(
    fsync: Fsync,
    transfer: [u8; 16],
    memory: Budget,
    names: TopNames,
) -> SinkConfig {
    let mut nonce = [0; 16];
    // Without randomness TLS would have failed before.
    let _ = aws_lc_rs::rand::fill(&mut nonce);
    SinkConfig { capacity: memory.of_sink().get(), fsync, transfer, nonce, names }
}

#[cfg(test)]
mod tests;
