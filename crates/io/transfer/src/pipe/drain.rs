//! The end of a pipe that receives.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use longhaul_connection::{
    Begun, Counts, GroupPart, IncomingPipe, PipeStep, SinkMemory, Spent, Unplaceable, WholeGroup,
    buffers,
};
use longhaul_objects::{ChainingValue, Piece, PipeError, hash};
use longhaul_sys::clock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{Bottleneck, ReceiverBounds, SourceMessage, SourceReport};

use super::feed::Feed;
use crate::api::Failures;
use crate::buffer::{Buffer, Pool, Reuse, lock};
use crate::carrier::Mailbox;
use crate::crew::Crew;
use crate::hub::TransferHub;
use crate::mailboxes::Mailboxes;
use crate::side::{SinkSide, named};

/// Drives an [`IncomingPipe`]: verifies pieces and passes them on in order.
pub(crate) struct Drain {
    state: Mutex<State>,
    work: Condvar,
    pool: Pool,
    outlet: Outlet,
    stopped: AtomicBool,
    mailboxes: Mailboxes,
    writers: Crew,
    cpu_at_start: Duration,
}

/// Where pieces go.
enum Outlet {
    /// To a file of this host.
    File(File),
    /// To the other client of the pipe, once it is there.
    Feed(OnceLock<Arc<Feed>>),
}

struct State {
    pipe: IncomingPipe<Buffer>,
    /// Since when the thread has something to do, and how long it had before.
    busy_since: Option<Instant>,
    was_busy: Duration,
}

/// Memory for pieces beyond what is promised.
const SPARE: Bytes = Bytes::from_mib(8);
const PATIENCE: Duration = Duration::from_millis(100);

/// Buffers for a promise of so many bytes.
fn with_spare(promised: Bytes) -> usize {
    SinkMemory { promised, spare: SPARE }.buffers()
}

impl Drain {
    /// One that writes to `output`, and promises `memory`.
    pub fn to_file(output: File, memory: Bytes, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let drain = Self::new(Outlet::File(output), memory, mailboxes);
        lock(&drain.state).pipe.accept();
        drain
    }

    /// One that passes pieces to a client that may not be there yet.
    pub fn to_client(memory: Bytes, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self::new(Outlet::Feed(OnceLock::new()), memory, mailboxes)
    }

    fn new(outlet: Outlet, memory: Bytes, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let state = State {
            pipe: IncomingPipe::new(buffers(memory) as u64),
            busy_since: None,
            was_busy: Duration::ZERO,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            pool: Pool::new(with_spare(memory), Reuse::Warm),
            outlet,
            stopped: AtomicBool::new(false),
            mailboxes: Mailboxes::new(mailboxes),
            writers: Crew::default(),
            cpu_at_start: clock::process_cpu_time(),
        }
    }

    /// The client that receives is there, and `feed` sends to it: the one that sends may begin.
    pub fn connect(&self, feed: &Arc<Feed>) {
        if let Outlet::Feed(place) = &self.outlet
            && place.set(feed.clone()).is_ok()
        {
            lock(&self.state).pipe.accept();
            self.wake_messages();
        }
    }

    /// Changes the state of the pipe, which knows then what memory is free.
    fn change<T>(&self, change: impl FnOnce(&mut IncomingPipe<Buffer>) -> T) -> T {
        self.update(&mut lock(&self.state).pipe, change)
    }

    fn update<T>(
        &self,
        pipe: &mut IncomingPipe<Buffer>,
        change: impl FnOnce(&mut IncomingPipe<Buffer>) -> T,
    ) -> T {
        pipe.set_given_back(self.pool.given_back());
        let result = change(pipe);
        // Under the lock, so before the source is asked for anything.
        while let Some(repair) = pipe.poll_repair() {
            self.mailboxes.post_repair(repair);
        }
        result
    }

    /// Verifies and passes on until the pipe ends or is stopped.
    fn work(&self) -> Result<(), String> {
        let _joined = self.writers.join();
        while let Some(step) = self.next_step().map_err(|error| error.to_string())? {
            match step {
                PipeStep::Hash(piece, buffer) => {
                    let value = hash::group_chaining_value(&buffer[..piece.len as usize], 0, true);
                    let hashed = self.change(|pipe| pipe.handle_hashed(piece, value, buffer));
                    drop(hashed.map_err(|error| error.to_string())?);
                }
                PipeStep::Pass(piece, value, buffer) => self.pass(piece, value, buffer)?,
                PipeStep::Waste(buffer) => drop(buffer),
                PipeStep::End => match &self.outlet {
                    Outlet::File(_) => self.finish(),
                    Outlet::Feed(feed) => feed.get().into_iter().for_each(|feed| feed.finish()),
                },
            }
            self.wake_messages();
        }
        Ok(())
    }

    /// Waits for something to do; `None` once the pipe is stopped.
    fn next_step(&self) -> Result<Option<PipeStep<Buffer>>, PipeError> {
        let mut state = lock(&self.state);
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if let Some(step) = self.update(&mut state.pipe, IncomingPipe::poll_step)? {
                state.busy_since.get_or_insert_with(clock::now);
                return Ok(Some(step));
            }
            if let Some(since) = state.busy_since.take() {
                state.was_busy += clock::now() - since;
            }
            let waited = self.writers.rest(|| self.work.wait_timeout(state, PATIENCE));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pass(&self, piece: Piece, value: ChainingValue, buffer: Buffer) -> Result<(), String> {
        match &self.outlet {
            Outlet::File(file) => write_all(file, &buffer[..piece.len as usize])
                .map_err(|error| format!("cannot write to standard output: {error}")),
            Outlet::Feed(feed) => {
                if let Some(feed) = feed.get() {
                    feed.push(Arc::new(buffer), piece.len, value);
                }
                Ok(())
            }
        }
    }

    /// Everything is where it should be: the source is told.
    pub fn finish(&self) {
        let cpu_time = clock::process_cpu_time().saturating_sub(self.cpu_at_start);
        self.change(|pipe| pipe.finish(cpu_time));
        self.wake_messages();
    }

    /// Of a server: whether the client that receives has to do something next.
    fn is_passing_on(&self) -> bool {
        match &self.outlet {
            Outlet::File(_) => false,
            Outlet::Feed(feed) => feed.get().is_some_and(|feed| feed.is_under_way()),
        }
    }

    pub fn wake_messages(&self) {
        self.mailboxes.wake_messages();
    }

    /// Whether all was passed on.
    pub fn is_at_end(&self) -> bool {
        lock(&self.state).pipe.is_at_end()
    }

    /// Bytes that were passed on.
    pub fn bytes(&self) -> u64 {
        lock(&self.state).pipe.bytes()
    }

    /// What the source said last of its sending.
    pub fn source_report(&self) -> Option<SourceReport> {
        lock(&self.state).pipe.source_report().copied()
    }
}

/// Writes all of `bytes`, also where others made the file non-blocking.
fn write_all(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(&[(file.as_fd(), Interest::Writable)], Some(clock::now() + PATIENCE))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl SinkSide for Drain {
    fn start(self: Arc<Self>, hub: &Arc<TransferHub>) -> io::Result<Vec<JoinHandle<()>>> {
        let hub = hub.clone();
        let thread = named("output").spawn(move || {
            if let Err(reason) = self.work() {
                hub.fail(reason);
            }
        })?;
        Ok(vec![thread])
    }

    fn handle(&self, message: SourceMessage) -> Result<(), String> {
        self.change(|pipe| pipe.handle_message(message)).map_err(|error| error.to_string())?;
        self.work.notify_one();
        self.wake_messages();
        Ok(())
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let message = self.change(IncomingPipe::poll_message);
        message.is_some_and(|message| message.encode(out).is_ok())
    }

    fn taken_below(&self) -> u32 {
        lock(&self.state).pipe.taken_below()
    }

    fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        self.change(|pipe| pipe.begin(part, || self.pool.try_take()))
    }

    fn on_group(&self, whole: WholeGroup<Buffer>) {
        lock(&self.state).pipe.handle_piece(whole);
        self.work.notify_one();
    }

    fn on_given_up(&self, buffer: Buffer) {
        self.change(IncomingPipe::handle_given_up);
        drop(buffer);
    }

    fn credit(&self) -> u64 {
        self.change(|pipe| pipe.credit())
    }

    fn bounds(&self) -> ReceiverBounds {
        lock(&self.state).pipe.bounds()
    }

    fn set_bounds(&self, bounds: ReceiverBounds) {
        let storage = match bounds.storage {
            Bottleneck::ReceiverDisk => Bottleneck::Output,
            // What the other client has not taken: its own connection is watched for it.
            _ if self.is_passing_on() => Bottleneck::Output,
            other => other,
        };
        lock(&self.state).pipe.set_bounds(ReceiverBounds { storage, ..bounds });
    }

    fn seen(&self) -> (Spent, Duration) {
        let state = lock(&self.state);
        let now = state.busy_since.map_or(Duration::ZERO, |since| clock::now() - since);
        (self.writers.spent(), state.was_busy + now)
    }

    fn set_memory(&self, memory: Bytes) {
        if self.pool.grow(with_spare(memory)) {
            lock(&self.state).pipe.grow_memory(buffers(memory) as u64);
            self.wake_messages();
        }
    }

    fn done(&self) -> Option<u64> {
        let state = lock(&self.state);
        state.pipe.is_done().then(|| state.pipe.bytes())
    }

    fn counts(&self) -> Counts {
        lock(&self.state).pipe.counts()
    }

    /// It waits for the other client to come, or for what takes its output.
    fn idles(&self) -> bool {
        let joined = match &self.outlet {
            Outlet::File(_) => true,
            Outlet::Feed(feed) => feed.get().is_some(),
        };
        !joined || self.bounds().storage == Bottleneck::Output
    }

    fn source_bound(&self) -> Bottleneck {
        self.source_report().map_or(Bottleneck::Unknown, |report| report.bound)
    }

    /// A pipe comes whole, or not at all.
    fn failures(&self) -> Failures {
        Failures::default()
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::ObjectId;

    #[test]
    fn a_piece_beyond_the_credit_takes_no_memory() {
        let drain = Drain::to_client(Bytes::from_mib(4), Vec::new());
        let free = drain.pool.free();
        let piece = |group| GroupPart { object: ObjectId(7), group, start: 0, len: 7 };
        for number in [4, 5, u32::MAX] {
            let refused = drain.begin_group(&piece(number)).map(drop);
            assert_eq!(refused, Err(Unplaceable::BeyondCredit));
        }
        assert_eq!(drain.pool.free(), free);
        let taken: Vec<_> = (0..4).map(|n| drain.begin_group(&piece(n)).unwrap()).collect();
        assert_eq!(drain.pool.free(), free - taken.len());
    }
}
