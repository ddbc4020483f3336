//! An emulated long path between a client and a server on this host, without privileges.
//!
//! The client talks to the relay's address and believes it to be the server. Datagrams go through
//! [`longhaul_pathsim`], one path in each direction; the control connection gets the same delay,
//! but no loss and no share of the rate: TCP repairs its losses, and what it carries is small.
//!
//! Each direction has a thread that receives and releases in batches. A datagram enters the path
//! at the time the kernel got it, not when the thread saw it, so the thread may be late by
//! anything less than the delay without changing the path. How late it released is reported.

mod line;
mod tcp;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_pathsim::{PathConfig, PathStats, Probability};
use longhaul_sys::threads;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_sys::wait::Waker;
use longhaul_units::{Bytes, Rate};

/// The path to emulate, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatedPath {
    /// Rate of the narrowest link, at the IP layer.
    pub rate: Rate,
    /// Round trip without queues.
    pub rtt: Duration,
    /// Datagrams lost at random, in each direction.
    pub loss: Probability,
    /// Bytes that may wait for the narrowest link.
    pub queue: Bytes,
    /// Larger packets vanish, as they do on a path whose ICMP is filtered.
    pub mtu: u32,
    /// Decides which datagrams are lost.
    pub seed: u64,
}

impl EmulatedPath {
    /// Bytes under way when the path is full.
    pub fn bandwidth_delay_product(&self) -> Bytes {
        Bytes::new(self.rate.bytes_in(self.rtt))
    }

    fn one_way(&self) -> PathConfig {
        PathConfig::default()
            .delay(self.rtt / 2)
            .rate(self.rate, self.queue)
            .loss(self.loss)
            .mtu(self.mtu)
    }
}

/// A running relay. Dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    forward: Option<JoinHandle<io::Result<DirectionReport>>>,
    backward: Option<JoinHandle<io::Result<DirectionReport>>>,
    control: Option<JoinHandle<()>>,
}

/// What the relay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayReport {
    /// From the client to the server.
    pub forward: DirectionReport,
    /// From the server to the client.
    pub backward: DirectionReport,
}

/// What the relay did in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionReport {
    /// The emulated path's own counters: what was offered, lost and why, delivered.
    pub path: PathStats,
    /// Longest time in the queue of the narrowest link.
    pub queue_delay_max: Duration,
    /// Datagrams released.
    pub released: u64,
    /// Typical time by which they were released late: a relay's mean, a testbed's median.
    pub lateness_typical: Duration,
    /// Longest such time.
    pub lateness_max: Duration,
    /// Super-packets that this host dropped before the relay could read them, which the emulated
    /// path has no part in.
    pub overflows: u64,
    /// Datagrams that this host would not send on.
    pub unsent: u64,
    /// CPU time of the direction's thread, where it has one.
    pub cpu: Option<Duration>,
}

impl Relay {
    /// Takes clients at `listen`, over TCP and UDP, and connects them to `server` over `path`.
    ///
    /// # Errors
    /// The addresses cannot be bound; or `InvalidInput`, when there cannot be such a path.
    pub fn start(listen: SocketAddr, server: SocketAddr, path: &EmulatedPath) -> io::Result<Self> {
        let config = path.one_way();
        let front = UdpSocket::bind(listen, &UdpOptions::default())?;
        let shared = Arc::new(Shared {
            front,
            flows: udp::Flows::new(server),
            stop: AtomicBool::new(false),
            wakers: [Waker::new()?, Waker::new()?, Waker::new()?],
        });
        let listener = std::net::TcpListener::bind(listen)?;
        let [forward, backward] =
            [path.seed, !path.seed].map(|seed| line::Line::new(&config, seed));
        let (forward, backward) = (forward?, backward?);
        let delay = path.rtt / 2;
        let control = {
            let shared = shared.clone();
            threads::spawn("relay-control", move || tcp::run(&shared, &listener, server, delay))?
        };
        let mut relay = Self { shared, forward: None, backward: None, control: Some(control) };
        let shared = relay.shared.clone();
        relay.forward =
            Some(threads::spawn("relay-forward", move || udp::forward(&shared, forward))?);
        let shared = relay.shared.clone();
        relay.backward =
            Some(threads::spawn("relay-backward", move || udp::backward(&shared, backward))?);
        Ok(relay)
    }

    /// Ends the relay and tells what it did.
    ///
    /// # Errors
    /// A socket failed meanwhile.
    pub fn stop(mut self) -> io::Result<RelayReport> {
        self.end();
        let join = |thread: Option<JoinHandle<io::Result<DirectionReport>>>| match thread {
            Some(thread) => thread.join().map_err(|_| io::Error::other("the relay panicked"))?,
            None => Ok(DirectionReport::default()),
        };
        let forward = join(self.forward.take())?;
        Ok(RelayReport { forward, backward: join(self.backward.take())? })
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wakers.iter().for_each(Waker::wake);
        if let Some(control) = self.control.take() {
            // A panic there has been printed, and there is nothing to return.
            let _ = control.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
        for thread in [self.forward.take(), self.backward.take()].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

/// What the threads of a relay share.
#[derive(Debug)]
struct Shared {
    /// Where clients send to.
    front: UdpSocket,
    flows: udp::Flows,
    stop: AtomicBool,
    /// For each thread: forward, backward, control.
    wakers: [Waker; 3],
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Indices into [`Shared::wakers`].
const FORWARD: usize = 0;
const BACKWARD: usize = 1;
const CONTROL: usize = 2;

#[cfg(test)]
mod tests;
