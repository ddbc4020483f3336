//! A client's end of a pipe.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use longhaul_connection::{IncomingPipe, OutgoingPipe, Transfer, Wish, buffers};
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_units::{Duration, Instant};
use longhaul_wire::{PipeRequest, PipeRole};

use super::api::{PipeOptions, PipeReport, pipe_name_is_valid};
use super::drain::{Output, drain};
use super::feed::feed;
use crate::api::Snapshot;
use crate::connection::circuit::Errand;
use crate::connection::shared::{Memory, Shared};
use crate::endpoint::client::{Client, Failure, Finished, Task};
use crate::error::{Error, Kept};
use crate::memory::budget::Budget;
use crate::progress::Progress;

/// Plays one end of a pipe. Blocks until the other end is there, and then until every byte is
/// where it should be, or the pipe breaks.
///
/// After an error a thread may still be stuck writing to [`PipeOptions::file`], if nobody reads there.
///
/// ```no_run
/// use longhaul::{ConnectOptions, Endpoint, PipeOptions, PipeRole, Progress, Rate, Stop};
///
/// let token = std::fs::read_to_string("token")?.trim().parse()?;
/// let mut connect = ConnectOptions::new(Endpoint::new("dtn2.example", 7420), token);
/// connect.rate = Some(Rate::from_mbps(400));
/// let frames = std::fs::File::open("frames.raw")?;
/// let options = PipeOptions::new(connect, "frames", PipeRole::Send, frames);
/// longhaul::pipe(&options, &Progress::default(), &Stop::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The receiver does not have the whole then.
pub fn pipe(options: &PipeOptions, progress: &Progress, stop: &Stop) -> Result<PipeReport, Error> {
    let started = clock::now();
    if !pipe_name_is_valid(&options.name) {
        return Err(Error::usage("a pipe has a name of 1 to 255 bytes, none zero"));
    }
    if options.connect.rate_schedule.is_some() && options.role == PipeRole::Receive {
        return Err(Error::usage("--rate with times is for the end that sends into a pipe"));
    }
    let circuit = options.connect.circuit.as_ref();
    if circuit.is_some() && options.role == PipeRole::Receive {
        return Err(Error::usage("the end that sends books the circuit"));
    }
    if circuit.is_some_and(|circuit| circuit.want.is_none()) {
        return Err(Error::usage("nobody knows the size of a pipe: say what to book"));
    }
    let failed = |failure| {
        let bytes = progress.snapshot().bytes_done;
        Error::of(failure, Some(Kept::of_pipe(options.role, bytes)))
    };
    let wish = Wish::Pipe(PipeRequest { role: options.role, name: options.name.clone() });
    let client = Client::new(&options.connect, wish, started).map_err(failed)?;
    let make = |_, shared: &Arc<Shared>| End::new(options, shared);
    let Finished { task, elapsed, link, .. } = client.run(make, progress, stop).map_err(failed)?;
    let setup = task.alone_until - started;
    Ok(PipeReport { bytes: task.bytes(), elapsed, setup, link })
}

/// The end that this host plays.
struct End {
    role: PipeRole,
    file: File,
    shared: Arc<Shared>,
    /// Bytes that were written to the file.
    written: Arc<AtomicU64>,
    /// When it was last seen that the other end is not there: its bytes came after that.
    alone_until: Instant,
    joined: bool,
    /// When the first lane was seen to carry data.
    validated: Option<Instant>,
    /// The user knows that the other end is waited for.
    announced: bool,
    /// True where the input is read for this attempt. Decided once: nobody can read it again.
    reads: Arc<OnceLock<bool>>,
}

impl End {
    fn new(options: &PipeOptions, shared: &Arc<Shared>) -> Result<Self, Failure> {
        let file = options.file.try_clone()?;
        let (role, budget) = (options.role, Budget::new(options.connect.memory));
        let (transfer, memory) = match role {
            PipeRole::Send => {
                let pipe = OutgoingPipe::new(clock::now(), shared.mailboxes.count());
                (Transfer::OutgoingPipe(Box::new(pipe)), Memory::OF_SOURCE)
            }
            PipeRole::Receive => {
                let mut pipe = IncomingPipe::new(buffers(budget.of_sink()) as u64);
                pipe.accept();
                (Transfer::IncomingPipe(Box::new(pipe)), Memory::OF_DRAIN)
            }
        };
        shared.begin(transfer, memory, budget, options.connect.stall_timeout);
        let alone_until = clock::now();
        let (shared, written, reads) = (shared.clone(), Arc::default(), Arc::default());
        Ok(Self {
            role,
            file,
            shared,
            written,
            alone_until,
            joined: false,
            validated: None,
            announced: false,
            reads,
        })
    }

    /// See [`Kept`].
    fn bytes(&self) -> u64 {
        match self.shared.lock().transfer() {
            Some(Transfer::OutgoingPipe(pipe)) => pipe.confirmed(),
            _ => self.written.load(Ordering::Relaxed),
        }
    }

    /// Whether the other end is there.
    fn is_joined(&self) -> bool {
        match self.shared.lock().transfer() {
            Some(Transfer::OutgoingPipe(pipe)) => pipe.is_joined(),
            // The server sends what it gets; of an empty pipe only its end.
            Some(Transfer::IncomingPipe(pipe)) => pipe.bytes() > 0 || pipe.is_at_end(),
            _ => false,
        }
    }

    /// True once the server has let this end in, as far as that shows.
    fn is_granted(&self, progress: &Progress) -> bool {
        match self.shared.lock().transfer() {
            // It reports as the source that it has become.
            Some(Transfer::IncomingPipe(pipe)) => pipe.source_report().is_some(),
            // Nothing says so; a refusal would have come by now.
            _ => self.validated.is_some_and(|at| {
                let answers = progress.snapshot().rtt.saturating_mul(ROUND_TRIPS) + ANSWER;
                clock::now() - at > answers
            }),
        }
    }

    /// What it is doing until the other end is there.
    fn waits_for(&self) -> &'static str {
        match self.role {
            PipeRole::Send => "waiting for the receiver of the pipe",
            PipeRole::Receive => "waiting for the sender of the pipe",
        }
    }
}

impl Task for End {
    const THREADS_END: bool = false;

    fn start(&self) -> io::Result<()> {
        let file = self.file.try_clone()?;
        match self.role {
            PipeRole::Send => {
                let reads = self.reads.clone();
                self.shared.spawn("input", move |shared| feed(shared, &file, &reads))
            }
            PipeRole::Receive => {
                let output = Output { file, written: self.written.clone() };
                self.shared.spawn("output", move |shared| drain(shared, Some(&output)))
            }
        }
    }

    fn errand(&self) -> Option<Errand> {
        (self.role == PipeRole::Send).then(|| Errand::Pipe(self.shared.clone()))
    }

    fn so_far(&self, _backlog: u64) -> Snapshot {
        Snapshot { bytes_done: self.bytes(), ..Snapshot::default() }
    }

    fn reason_for_peer(&self, reason: &str) -> String {
        match self.role {
            PipeRole::Send => reason.to_owned(),
            // Nobody else knows what was written.
            PipeRole::Receive => {
                format!("{reason}; {}", Kept::of_pipe(self.role, self.bytes()))
            }
        }
    }

    fn leave(&self) -> bool {
        match self.role {
            PipeRole::Send => !*self.reads.get_or_init(|| false),
            PipeRole::Receive => !self.is_joined(),
        }
    }

    fn on_look(&mut self, validated: bool, progress: &Progress) {
        if !self.joined {
            let now = clock::now();
            match self.is_joined() {
                true => self.joined = true,
                false => self.alone_until = now,
            }
        }
        if validated && self.validated.is_none() {
            self.validated = Some(clock::now());
        }
        if validated && !self.joined && !self.announced && self.is_granted(progress) {
            self.announced = true;
            progress.tell(self.waits_for());
        }
    }
}

/// Time in which a server answers, beside that of so many round trips.
const ANSWER: Duration = Duration::from_millis(300);
const ROUND_TRIPS: u32 = 3;
