//! The end of a pipe that sends.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use longhaul_connection::{Counts, Spent, Stage, Stages};
use longhaul_objects::{ChainingValue, PipeSource, PipeSourceEvent, hash};
use longhaul_sys::clock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::{Bytes, Duration};
use longhaul_wire::{Bottleneck, SinkMessage, SourceReport, Summary};

use super::drain::Drain;
use crate::api::Failures;
use crate::budget::groups;
use crate::buffer::{Buffer, Pool, Reuse, lock};
use crate::carrier::Mailbox;
use crate::crew::Crew;
use crate::deal::Dealer;
use crate::hub::TransferHub;
use crate::side::{SourceSide, named};

/// Deals pieces to the lanes: those that it reads from a file, or is given by a [`Drain`].
pub(crate) struct Feed {
    state: Mutex<State>,
    /// A message, credit or room: the reader looks again.
    work: Condvar,
    credit: AtomicU64,
    /// Pieces wait for room in the lanes, or the reader does.
    lanes_full: AtomicBool,
    stopped: AtomicBool,
    dealer: Dealer,
    /// Where the data is read from; a server's is given its pieces.
    input: Option<File>,
    pool: Pool,
    stages: Mutex<Stages>,
    readers: Crew,
    /// Of a server: where the pieces come from.
    upstream: OnceLock<Weak<Drain>>,
    cpu_at_start: Duration,
}

#[derive(Default)]
struct State {
    source: PipeSource,
    /// Pieces without a number.
    waiting: VecDeque<(Arc<Buffer>, u32, ChainingValue)>,
    /// Pieces that may have to be sent again.
    kept: BTreeMap<u32, Arc<Buffer>>,
    /// No piece follows those that wait.
    ended: bool,
}

impl State {
    fn is_under_way(&self) -> bool {
        !self.waiting.is_empty() || self.source.unconfirmed() > 0 || self.ended
    }
}

/// A piece that is not full goes when nothing more has come for so long.
const LINGER: Duration = Duration::from_millis(1);
/// The reader looks again after this long, whatever it missed.
const PATIENCE: Duration = Duration::from_millis(20);
/// How soon the reader sees that it is stopped while nothing comes.
const STOP_LATENCY: Duration = Duration::from_millis(100);

impl Feed {
    /// One that deals to `mailboxes` what it reads from `input` into `memory`.
    pub fn of_file(input: File, memory: Bytes, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self::new(Some(input), groups(memory), mailboxes)
    }

    /// One that deals to `mailboxes` what it is given.
    pub fn of_pieces(mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let feed = Self::new(None, 0, mailboxes);
        feed.enter(Stage::Input);
        feed
    }

    fn new(input: Option<File>, buffers: usize, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            credit: AtomicU64::new(0),
            lanes_full: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            dealer: Dealer::new(mailboxes),
            input,
            pool: Pool::new(buffers, Reuse::Warm),
            stages: Mutex::new(Stages::new(clock::now())),
            readers: Crew::default(),
            upstream: OnceLock::new(),
            cpu_at_start: clock::process_cpu_time(),
        }
    }

    /// `drain` gives it its pieces, and is told what becomes of them.
    pub fn follow(&self, drain: &Arc<Drain>) {
        let _ = self.upstream.set(Arc::downgrade(drain));
    }

    /// Nothing is dealt before [`Self::deal_to`].
    pub fn hold(&self) {
        self.dealer.hold();
    }

    /// See [`Dealer::deal_to`].
    pub fn deal_to(&self, lanes: Range<u16>) {
        self.dealer.deal_to(lanes);
        self.go_on();
    }

    /// See [`Dealer::set_awaits_circuit`].
    pub fn set_awaits_circuit(&self, awaits: bool) {
        self.dealer.set_awaits_circuit(awaits);
    }

    /// Whether the sink has to do something next: take a piece, or the end.
    pub fn is_under_way(&self) -> bool {
        lock(&self.state).is_under_way()
    }

    /// Whether the input is at its end, and the lanes have sent all of it.
    pub fn is_sent(&self) -> bool {
        let state = lock(&self.state);
        state.ended && state.waiting.is_empty() && self.dealer.backlog() == 0
    }

    /// Takes the next piece.
    pub fn push(&self, bytes: Arc<Buffer>, len: u32, value: ChainingValue) {
        let mut state = lock(&self.state);
        state.waiting.push_back((bytes, len, value));
        self.deal(&mut state);
    }

    /// No piece follows.
    pub fn finish(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        self.deal(&mut state);
    }

    /// Gives the lanes what they may have.
    fn deal(&self, state: &mut State) {
        while !state.waiting.is_empty() && self.may_deal(state) {
            let Some((bytes, len, value)) = state.waiting.pop_front() else { break };
            let piece = state.source.push(len, value);
            state.kept.insert(piece.number, bytes.clone());
            self.dealer.deal(piece.extent(), bytes);
        }
        if state.ended && state.waiting.is_empty() {
            state.source.finish();
        }
        if self.input.is_none() {
            self.enter(match state.waiting.is_empty() {
                true => Stage::Input,
                false if self.lanes_full.load(Ordering::Relaxed) => Stage::Reading,
                false => Stage::Credit,
            });
        }
        self.dealer.wake_messages();
    }

    fn may_deal(&self, state: &State) -> bool {
        let full = self.dealer.is_full();
        self.lanes_full.store(full, Ordering::Relaxed);
        !full
            && !self.dealer.is_held()
            && state.source.may_send(self.credit.load(Ordering::Relaxed))
    }

    fn enter(&self, stage: Stage) {
        lock(&self.stages).enter(clock::now(), stage, self.dealer.hungry());
    }

    /// Reads, hashes and deals pieces until the file or the pipe ends.
    fn read(&self, input: &File) -> Result<(), String> {
        let _joined = self.readers.join();
        while let Some(mut buffer) = self.next_buffer()? {
            let (len, ended) = self
                .fill(input, &mut buffer)
                .map_err(|error| format!("cannot read standard input: {error}"))?;
            if self.is_stopped() {
                break;
            }
            if len > 0 {
                self.enter(Stage::Reading);
                let value = hash::group_chaining_value(&buffer[..len], 0, true);
                self.push(Arc::new(buffer), len as u32, value);
            }
            if ended {
                self.finish();
                break;
            }
        }
        Ok(())
    }

    /// Memory for the next piece, as soon as one may be sent; `None` when the pipe is stopped.
    fn next_buffer(&self) -> Result<Option<Buffer>, String> {
        let mut state = lock(&self.state);
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            if state.source.is_full() {
                return Err("a pipe ends after 2^32 - 1 pieces, and there is more to send".into());
            }
            let may = state.waiting.is_empty() && self.may_deal(&state);
            let buffer = if may { self.pool.try_take() } else { None };
            let stage = match &buffer {
                _ if !state.source.is_accepted() || self.dealer.is_held() => Stage::Answer,
                Some(_) => Stage::Input,
                None if may => Stage::Memory,
                None if self.lanes_full.load(Ordering::Relaxed) => Stage::Reading,
                None => Stage::Credit,
            };
            self.enter(stage);
            if buffer.is_some() {
                return Ok(buffer);
            }
            state = self.wait(state);
        }
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let waited = self.readers.rest(|| self.work.wait_timeout(state, PATIENCE));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads a piece: as much as fits, or as came without a pause. Whether the input ended behind it.
    fn fill(&self, mut input: &File, buffer: &mut Buffer) -> io::Result<(usize, bool)> {
        let mut len = 0;
        while len < buffer.len() && !self.is_stopped() {
            let patience = if len > 0 { LINGER } else { STOP_LATENCY };
            let deadline = Some(clock::now() + patience);
            let source = [(input.as_fd(), Interest::Readable)];
            if self.readers.rest(|| wait(&source, deadline))? == 0 {
                if len > 0 {
                    break;
                }
                continue;
            }
            match input.read(&mut buffer[len..]) {
                Ok(0) => return Ok((len, true)),
                Ok(count) => len += count,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((len, false))
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Something that the reader or a waiting piece waits for has changed.
    fn go_on(&self) {
        let mut state = lock(&self.state);
        if !state.waiting.is_empty() {
            self.deal(&mut state);
        }
        drop(state);
        self.work.notify_all();
    }

    /// Whether the other end is there.
    pub fn is_joined(&self) -> bool {
        lock(&self.state).source.is_accepted()
    }

    /// Bytes that are verified at the sink.
    pub fn confirmed(&self) -> u64 {
        let state = lock(&self.state);
        state.source.bytes() - state.source.unconfirmed()
    }

    /// What the sink said at the end.
    pub fn result(&self) -> Option<Summary> {
        lock(&self.state).source.result().copied()
    }
}

/// A file that others made non-blocking, or a signal: nothing is wrong.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

impl SourceSide for Feed {
    fn start(self: Arc<Self>, hub: &Arc<TransferHub>) -> io::Result<Vec<JoinHandle<()>>> {
        let Some(input) = &self.input else { return Ok(Vec::new()) };
        let (input, feed, hub) = (input.try_clone()?, self.clone(), hub.clone());
        let thread = named("input").spawn(move || {
            if let Err(reason) = feed.read(&input) {
                hub.fail(reason);
            }
        })?;
        Ok(vec![thread])
    }

    fn handle(&self, message: SinkMessage) -> Result<(), String> {
        let mut state = lock(&self.state);
        state.source.handle(message).map_err(|error| error.to_string())?;
        while let Some(event) = state.source.poll_event() {
            match event {
                PipeSourceEvent::Forget(piece) => drop(state.kept.remove(&piece.number)),
                PipeSourceEvent::Resend(piece) => {
                    if let Some(bytes) = state.kept.get(&piece.number) {
                        self.dealer.deal(piece.extent(), bytes.clone());
                    }
                }
            }
        }
        let done = state.source.result().is_some();
        drop(state);
        self.go_on();
        if let Some(drain) = self.upstream.get().and_then(Weak::upgrade) {
            if done {
                drain.finish();
            }
            drain.wake_messages();
        }
        Ok(())
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let message = lock(&self.state).source.poll_message();
        // Messages that the source makes are within the limits of the wire.
        message.is_some_and(|message| message.encode(out).is_ok())
    }

    fn on_credit(&self, credit: u64) {
        if self.credit.fetch_max(credit, Ordering::Relaxed) < credit {
            self.go_on();
        }
    }

    fn on_room(&self) {
        if self.lanes_full.load(Ordering::Relaxed) && self.dealer.has_room() {
            self.lanes_full.store(false, Ordering::Relaxed);
            self.go_on();
        }
    }

    fn on_delivered(&self) {
        // A buffer may be free: whoever promises memory wants to know.
        if let Some(drain) = self.upstream.get().and_then(Weak::upgrade) {
            drain.wake_messages();
        }
    }

    fn is_drained(&self) -> bool {
        // Nobody knows when more comes: what was dealt is all there is.
        true
    }

    fn seen(&self) -> (Stages, Spent) {
        let mut stages = lock(&self.stages);
        stages.update(clock::now(), self.dealer.hungry());
        (*stages, self.readers.spent())
    }

    fn set_memory(&self, memory: Bytes) {
        if self.input.is_some() {
            self.pool.grow(groups(memory));
        }
    }

    fn counts(&self) -> Counts {
        let state = lock(&self.state);
        let (moved, unconfirmed) = (state.source.bytes(), state.source.unconfirmed());
        Counts { moved, settled: moved - unconfirmed, ..Counts::default() }
    }

    fn awaits_circuit(&self) -> bool {
        self.dealer.awaits_circuit()
    }

    /// It waits for the other end to come, or for its input.
    fn idles(&self, bound: Bottleneck) -> bool {
        let state = lock(&self.state);
        !state.source.is_accepted()
            || !state.is_under_way()
            || self.awaits_circuit()
            || bound == Bottleneck::Reservation && self.dealer.backlog() > 0
    }

    fn report(&self, sending: SourceReport) {
        let cpu_time = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        lock(&self.state).source.report(SourceReport { cpu_time, ..sending });
        self.dealer.wake_messages();
    }

    fn done(&self) -> Option<u64> {
        self.result().map(|result| result.bytes.get())
    }

    /// A pipe comes whole, or not at all.
    fn failures(&self) -> Failures {
        Failures::default()
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.pool.close();
        self.work.notify_all();
    }
}
