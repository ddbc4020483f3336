//! The end of a pipe that sends.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use longhaul_connection::{Counts, Gate, OutgoingPipe, Spent, Stages, buffers};
use longhaul_objects::{ChainingValue, hash};
use longhaul_sys::clock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::{Bytes, Duration};
use longhaul_wire::{Bottleneck, SinkMessage, SourceReport, Summary};

use super::drain::Drain;
use crate::api::Failures;
use crate::buffer::{Buffer, Pool, Reuse, lock};
use crate::carrier::Mailbox;
use crate::crew::Crew;
use crate::hub::TransferHub;
use crate::mailboxes::{GateSeen, Mailboxes};
use crate::side::{SourceSide, named};

/// Drives an [`OutgoingPipe`]: its pieces are read from a file, or given by a [`Drain`].
pub(crate) struct Feed {
    pipe: Mutex<OutgoingPipe<Arc<Buffer>>>,
    /// A message, credit or room: the reader looks again.
    work: Condvar,
    gate: GateSeen,
    stopped: AtomicBool,
    mailboxes: Mailboxes,
    /// Where the data is read from; a server's is given its pieces.
    input: Option<File>,
    pool: Pool,
    readers: Crew,
    /// Of a server: where the pieces come from.
    upstream: OnceLock<Weak<Drain>>,
    cpu_at_start: Duration,
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
        Self::new(Some(input), buffers(memory), mailboxes)
    }

    /// One that deals to `mailboxes` what it is given.
    pub fn of_pieces(mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self::new(None, 0, mailboxes)
    }

    fn new(input: Option<File>, buffers: usize, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let mailboxes = Mailboxes::new(mailboxes);
        let pipe = OutgoingPipe::new(clock::now(), mailboxes.count());
        Self {
            work: Condvar::new(),
            gate: GateSeen::new(&pipe.gate),
            pipe: Mutex::new(pipe),
            stopped: AtomicBool::new(false),
            mailboxes,
            input,
            pool: Pool::new(buffers, Reuse::Warm),
            readers: Crew::default(),
            upstream: OnceLock::new(),
            cpu_at_start: clock::process_cpu_time(),
        }
    }

    /// `drain` gives it its pieces, and is told what becomes of them.
    pub fn follow(&self, drain: &Arc<Drain>) {
        let _ = self.upstream.set(Arc::downgrade(drain));
    }

    /// Changes where pieces go.
    pub fn direct(&self, change: impl FnOnce(&mut Gate)) {
        let mut pipe = lock(&self.pipe);
        change(&mut pipe.gate);
        self.gate.note_dealing(&pipe.gate);
        self.deal(&mut pipe);
        drop(pipe);
        self.work.notify_all();
    }

    /// See [`OutgoingPipe::is_under_way`].
    pub fn is_under_way(&self) -> bool {
        lock(&self.pipe).is_under_way()
    }

    /// See [`OutgoingPipe::is_sent`].
    pub fn is_sent(&self) -> bool {
        lock(&self.pipe).is_sent(&self.mailboxes)
    }

    /// Takes the next piece.
    pub fn push(&self, bytes: Arc<Buffer>, len: u32, value: ChainingValue) {
        let mut pipe = lock(&self.pipe);
        pipe.push(bytes, len, value);
        self.deal(&mut pipe);
    }

    /// No piece follows.
    pub fn finish(&self) {
        let mut pipe = lock(&self.pipe);
        pipe.finish();
        self.deal(&mut pipe);
    }

    /// Gives the lanes what they may have.
    fn deal(&self, pipe: &mut OutgoingPipe<Arc<Buffer>>) {
        while let Some(offer) = pipe.poll_offer(clock::now(), &self.mailboxes) {
            self.mailboxes.offer(offer.lane, offer.extent, offer.bytes);
        }
        self.gate.note_answer(&pipe.gate);
        self.mailboxes.wake_messages();
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
                lock(&self.pipe).begin_hashing(clock::now(), &self.mailboxes);
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
        let mut pipe = lock(&self.pipe);
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            let next = pipe.next_buffer(clock::now(), &self.mailboxes, || self.pool.try_take());
            self.gate.note_answer(&pipe.gate);
            if let Some(buffer) = next.map_err(|error| error.to_string())? {
                return Ok(Some(buffer));
            }
            pipe = self.wait(pipe);
        }
    }

    fn wait<'s>(
        &self,
        pipe: MutexGuard<'s, OutgoingPipe<Arc<Buffer>>>,
    ) -> MutexGuard<'s, OutgoingPipe<Arc<Buffer>>> {
        let waited = self.readers.rest(|| self.work.wait_timeout(pipe, PATIENCE));
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
    fn go_on(&self, change: impl FnOnce(&mut OutgoingPipe<Arc<Buffer>>)) {
        let mut pipe = lock(&self.pipe);
        change(&mut pipe);
        self.deal(&mut pipe);
        drop(pipe);
        self.work.notify_all();
    }

    /// Whether the other end is there.
    pub fn is_joined(&self) -> bool {
        lock(&self.pipe).is_joined()
    }

    /// Bytes that are verified at the sink.
    pub fn confirmed(&self) -> u64 {
        lock(&self.pipe).confirmed()
    }

    /// What the sink said at the end.
    pub fn result(&self) -> Option<Summary> {
        lock(&self.pipe).result().copied()
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
        let mut handled = Ok(());
        self.go_on(|pipe| handled = pipe.handle_message(message));
        handled.map_err(|error| error.to_string())?;
        if let Some(drain) = self.upstream.get().and_then(Weak::upgrade) {
            if self.result().is_some() {
                drain.finish();
            }
            drain.wake_messages();
        }
        Ok(())
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let message = lock(&self.pipe).poll_message();
        // Messages that the source makes are within the limits of the wire.
        message.is_some_and(|message| message.encode(out).is_ok())
    }

    fn on_credit(&self, credit: u64) {
        if self.gate.is_more(credit) {
            self.go_on(|pipe| {
                pipe.gate.handle_credit(credit);
            });
        }
    }

    fn on_room(&self) {
        if self.gate.has_room(&self.mailboxes) {
            self.gate.take_room();
            self.go_on(|_| ());
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
        let stages = lock(&self.pipe).gate.stages(clock::now(), &self.mailboxes);
        (stages, self.readers.spent())
    }

    fn set_memory(&self, memory: Bytes) {
        if self.input.is_some() {
            self.pool.grow(buffers(memory));
        }
    }

    fn counts(&self) -> Counts {
        lock(&self.pipe).counts()
    }

    fn awaits_circuit(&self) -> bool {
        lock(&self.pipe).gate.awaits_circuit()
    }

    fn idles(&self, bound: Bottleneck) -> bool {
        lock(&self.pipe).idles(bound, &self.mailboxes)
    }

    fn report(&self, sending: SourceReport) {
        let cpu_time = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        lock(&self.pipe).report(SourceReport { cpu_time, ..sending });
        self.mailboxes.wake_messages();
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
