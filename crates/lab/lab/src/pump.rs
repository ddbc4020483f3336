//! Kernel TCP across a testbed, from memory to memory.

mod reach;
mod round_trips;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::tcp::{self, TcpOptions};
use longhaul_units::{Instant, Rate};

pub use self::reach::Reach;
pub use self::round_trips::RoundTrips;
use crate::testbed::{Host, Testbed};

/// Connections that send as much as goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpPump {
    /// By the kernel's name, never the default of whatever host this is.
    pub congestion_control: String,
    /// Connections side by side, at least one.
    pub streams: u16,
    /// Bytes that each connection may buffer at each end; the kernel's choice by default.
    pub buffer: Option<u32>,
    /// Bytes of a write, more than zero.
    pub block: usize,
}

/// The amount that [`TcpPump::transfer`] moves, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Bytes in all.
    pub bytes: u64,
    /// After so long it is cut, and what has arrived counts; by default it lasts until all has.
    pub length: Option<Duration>,
    /// After so long it has failed.
    pub patience: Duration,
}

/// The amount that [`TcpPump::transfer`] moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes that arrived.
    pub bytes: u64,
    /// From before the first connection is made until the receiver has the last byte, or the cut.
    pub time: Duration,
    /// CPU time of the sending threads.
    pub cpu_send: Duration,
    /// CPU time of the receiving threads.
    pub cpu_receive: Duration,
    /// Segments sent, with those sent again.
    pub segments_sent: u64,
    /// Segments sent again.
    pub segments_resent: u64,
}

/// Connections that send until this is dropped.
#[derive(Debug)]
pub struct Pumping {
    flow: Arc<Flow>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl TcpPump {
    /// With blocks of 256 KiB and the kernel's choice of buffers.
    pub fn new(congestion_control: &str, streams: u16) -> Self {
        let congestion_control = congestion_control.to_owned();
        Self { congestion_control, streams, buffer: None, block: BLOCK }
    }

    /// Goodput of all connections together from the first host to the last, as the receiver gets
    /// it, counted for `length` from the time `settle` after the start.
    ///
    /// # Errors
    /// A congestion control that the kernel does not have, a path on which nobody answers.
    pub fn goodput(
        &self,
        testbed: &Testbed,
        settle: Duration,
        length: Duration,
    ) -> io::Result<Rate> {
        let (from, to) = testbed.ends();
        let flow = Flow::new(u64::MAX, clock::now() + settle + length + PATIENCE);
        let pairs = self.connect(from, to, &Reach::direct(), &flow)?;
        flow.run(self.block, &pairs, || {
            std::thread::sleep(settle);
            let (start, before) = (clock::now(), flow.received.load(Ordering::Relaxed));
            std::thread::sleep(length);
            let bytes = flow.received.load(Ordering::Relaxed) - before;
            Rate::from_bytes_over(bytes, clock::now() - start)
        })
        .map(|(goodput, _)| goodput)
    }

    /// Moves so many bytes; each connection takes the next block as soon as it has room.
    ///
    /// # Errors
    /// `TimedOut` when the patience is over and when the testbed is interrupted, and those of
    /// [`TcpPump::goodput`] and of what leads to the receiver.
    pub fn transfer(
        &self,
        from: &Host,
        to: &Host,
        reach: &Reach<'_>,
        volume: &Volume,
    ) -> io::Result<Transferred> {
        let start = clock::now();
        let cut = volume.length.map(|length| start + length);
        let flow = Flow::new(volume.bytes, start + volume.patience);
        let pairs = self.connect(from, to, reach, &flow)?;
        let ((ended, received), cpu) = flow.run(self.block, &pairs, || {
            flow.wait(from, cut.unwrap_or(flow.deadline));
            (clock::now(), flow.received.load(Ordering::Relaxed))
        })?;
        let whole = received >= volume.bytes;
        if !whole && (from.is_interrupted() || cut.is_none_or(|cut| ended < cut)) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let end = if whole { flow.end() } else { ended };
        let mut moved = Transferred {
            bytes: received,
            time: end.since(start),
            cpu_send: cpu[0],
            cpu_receive: cpu[1],
            segments_sent: 0,
            segments_resent: 0,
        };
        for (stream, _) in &pairs {
            let info = tcp::info(stream)?;
            moved.segments_sent += u64::from(info.segments_sent);
            moved.segments_resent += u64::from(info.segments_resent);
        }
        Ok(moved)
    }

    /// Sends from one host to another until what this returns is dropped.
    ///
    /// # Errors
    /// Errors of [`TcpPump::goodput`], and of starting threads.
    pub fn start(&self, from: &Host, to: &Host) -> io::Result<Pumping> {
        let flow = Arc::new(Flow::new(u64::MAX, clock::now() + PATIENCE));
        let pairs = self.connect(from, to, &Reach::direct(), &flow)?;
        let (stop, stopped) = channel();
        let (block, own) = (self.block, flow.clone());
        let thread = std::thread::Builder::new().name("pump".into()).spawn(move || {
            // Nothing is ever sent: the other end is dropped when it is time.
            own.run(block, &pairs, || stopped.recv()).map(|_| ())
        })?;
        Ok(Pumping { flow, stop: Some(stop), thread: Some(thread) })
    }

    /// Pairs of sending and receiving ends, under the congestion control asked for.
    fn connect(
        &self,
        from: &Host,
        to: &Host,
        reach: &Reach<'_>,
        flow: &Flow,
    ) -> io::Result<Vec<(TcpStream, TcpStream)>> {
        let listener = reach.listen(to)?;
        let target = listener.local_addr()?;
        let mut options = TcpOptions::default();
        options.buffer = self.buffer;
        // The window that connections can have is settled when they are made.
        options.apply(&listener)?;
        options.congestion_control = Some(self.congestion_control.clone());
        let mut pairs = Vec::new();
        for _ in 0..self.streams {
            let deadline = flow.deadline.min(clock::now() + PATIENCE);
            let stream = from.run(|| reach.dial(target, deadline))??;
            options.apply(&stream)?;
            let used = tcp::congestion_control(&stream)?;
            if used != self.congestion_control {
                return Err(io::Error::other(format!("the kernel used {used}")));
            }
            let accepted = reach::accept(&listener, deadline, &|| !from.is_interrupted())?;
            pairs.push((stream, accepted));
        }
        Ok(pairs)
    }
}

impl Pumping {
    /// Bytes that have arrived.
    pub fn received(&self) -> u64 {
        self.flow.received.load(Ordering::Relaxed)
    }
}

impl Drop for Pumping {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Connections that broke show in what was received.
            let _ = thread.join();
        }
    }
}

/// State that the threads of one run share.
#[derive(Debug)]
struct Flow {
    deadline: Instant,
    /// Bytes that no connection has taken yet.
    left: AtomicU64,
    received: AtomicU64,
    bytes: u64,
    /// When the last byte arrived, in nanoseconds; zero before.
    ended: AtomicU64,
    done: AtomicBool,
}

impl Flow {
    fn new(bytes: u64, deadline: Instant) -> Self {
        Self {
            deadline,
            left: AtomicU64::new(bytes),
            received: AtomicU64::new(0),
            bytes,
            ended: AtomicU64::new(0),
            done: AtomicBool::new(false),
        }
    }

    /// Sends and receives on threads of their own until `watch` returns; tells what that returned,
    /// and the CPU time of senders and receivers.
    fn run<T>(
        &self,
        block: usize,
        pairs: &[(TcpStream, TcpStream)],
        watch: impl FnOnce() -> T,
    ) -> io::Result<(T, [Duration; 2])> {
        std::thread::scope(|scope| {
            let mut threads = [Vec::new(), Vec::new()];
            for (stream, accepted) in pairs {
                threads[0].push(scope.spawn(move || metered(|| self.send(stream, block))));
                threads[1].push(scope.spawn(move || metered(|| self.receive(accepted))));
            }
            let seen = watch();
            self.done.store(true, Ordering::Relaxed);
            for (stream, accepted) in pairs {
                // What is still under way is of no interest; some may have ended already.
                let _ = stream.shutdown(Shutdown::Both);
                let _ = accepted.shutdown(Shutdown::Read);
            }
            let mut cpu = [Duration::ZERO; 2];
            for (total, threads) in cpu.iter_mut().zip(threads) {
                for thread in threads {
                    *total += join(thread)?;
                }
            }
            Ok((seen, cpu))
        })
    }

    fn send(&self, mut stream: &TcpStream, block: usize) -> io::Result<()> {
        // Nobody answers when a path loses everything.
        stream.set_write_timeout(Some(PATIENCE))?;
        let memory = vec![0x5a; block];
        loop {
            let take = |left: u64| (left > 0).then(|| left.saturating_sub(block as u64));
            let Ok(before) = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            else {
                return Ok(());
            };
            let length = before.min(block as u64) as usize;
            if let Err(error) = stream.write_all(&memory[..length]) {
                // Cut off at the end, or too slow for the last block.
                return if self.done.load(Ordering::Relaxed) { Ok(()) } else { Err(error) };
            }
        }
    }

    fn receive(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut block = vec![0; BLOCK];
        loop {
            let length = match stream.read(&mut block)? {
                0 => return Ok(()),
                length => length as u64,
            };
            if self.received.fetch_add(length, Ordering::Relaxed) + length >= self.bytes {
                self.ended.store(clock::now().as_nanos(), Ordering::Relaxed);
            }
        }
    }

    /// Waits until everything has arrived, a time or the deadline passes, or the testbed is
    /// interrupted.
    fn wait(&self, host: &Host, until: Instant) {
        let until = until.min(self.deadline);
        let going = || clock::now() < until && !host.is_interrupted();
        while self.ended.load(Ordering::Relaxed) == 0 && going() {
            std::thread::sleep(TURN);
        }
    }

    fn end(&self) -> Instant {
        Instant::from_nanos(self.ended.load(Ordering::Relaxed))
    }
}

/// CPU time of the calling thread for `work`.
fn metered(work: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let before = clock::thread_cpu_time();
    work()?;
    Ok(clock::thread_cpu_time().saturating_sub(before))
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const BLOCK: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(30);
const TURN: Duration = Duration::from_millis(2);
