//! Signals of a host that move before a receiver that shares its processor drops datagrams: their
//! lead, and their false alarms (docs/host-awareness.md, "Which signal leads").
//!
//! A reader takes datagrams from its socket and works on them; a sentinel on another core looks at all
//! signals each millisecond, while loads come to the reader's core and leave it. Over loopback, so that
//! the work of receiving is the sender's, and all that is seen comes from the scheduling of the reader.

mod judge;
mod reader;
mod sender;
mod sentinel;
mod trace;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::{Instant, Rate};

pub use self::judge::{Signal, Signals};
use self::reader::Reader;
use crate::testbed::Host;

/// The run to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// UDP payload that is sent.
    pub rate: Rate,
    /// Receive buffer, as `SO_RCVBUF` is asked for; the kernel doubles it.
    pub buffer: usize,
    /// Core of the sender and of the sentinel.
    pub ours: usize,
    /// Core of the reader, and of what comes to compete with it.
    pub shared: usize,
    /// When the load comes and leaves.
    pub spells: Vec<[Instant; 2]>,
    /// Length of the run.
    pub length: Duration,
}

/// Outcome of a watch.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// Account of each signal.
    pub signals: Signals,
    /// All that was seen: docs/host-awareness.md, "Traces".
    pub trace: String,
    /// Bytes that were read.
    pub bytes: u64,
}

/// Sends, reads and watches over the loopback of `host`. Without privileges the sentinel does not run
/// before the sender, and the buffer is no larger than `net.core.rmem_max`.
///
/// # Errors
/// Cores that do not exist, one core for both, and those of sockets and samplers.
pub fn watch(host: &Host, wanted: &Watch) -> io::Result<Watched> {
    if wanted.ours == wanted.shared {
        let why = "the sentinel needs another core than the reader";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    host.run(|| {
        let mut sockets = UdpOptions::default();
        sockets.receive_buffer = wanted.buffer;
        let at = SocketAddr::new(host.ipv4(), 0);
        let socket = Arc::new(UdpSocket::bind(at, &sockets)?);
        let stop = Arc::new(AtomicBool::new(false));
        let reader = Reader::start(socket.clone(), wanted.shared, stop.clone())?;
        let sender = sender::start(socket.local_addr(), wanted, stop.clone())?;
        let sentinel = sentinel::start(reader.seen.clone(), socket, wanted, stop.clone())?;
        let end = clock::now() + wanted.length;
        while clock::now() < end && !host.is_interrupted() {
            clock::sleep_until((clock::now() + GLANCE).min(end));
        }
        stop.store(true, Ordering::Relaxed);
        let samples = joined(sentinel)?;
        joined(sender)?;
        joined(reader.thread)?;
        let span = samples.first().zip(samples.last());
        let (first, last) = span.ok_or_else(|| io::Error::other("nothing was seen"))?;
        let within = |spell: &&[Instant; 2]| spell[0] >= first.at && spell[1] <= last.at;
        let spells: Vec<[Instant; 2]> = wanted.spells.iter().filter(within).copied().collect();
        let signals = Signals::of(&samples, &spells);
        let trace = trace::text(wanted, &samples, &spells);
        Ok(Watched { signals, trace, bytes: last.bytes })
    })?
}

fn joined<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Between two looks whether all is to end early.
const GLANCE: Duration = Duration::from_millis(50);
