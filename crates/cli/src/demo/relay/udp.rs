//! The datagram threads, one in each direction.

use longhaul_sys::sync::lock;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_sys::clock::{self, WallOffset};
use longhaul_sys::udp::{Route, UdpOptions, UdpSocket, Wait};
use longhaul_sys::wait::{self, Interest};
use longhaul_units::Instant;

use super::line::{Batch, FlowIndex, Line, SuperPacket};
use super::{BACKWARD, DirectionReport, FORWARD, Shared};

/// The clients, each with a socket of its own towards the server, as address translation does it.
#[derive(Debug)]
pub(super) struct Flows {
    server: SocketAddr,
    all: Mutex<Vec<Arc<Flow>>>,
}

#[derive(Debug)]
struct Flow {
    client: SocketAddr,
    upstream: UdpSocket,
}

impl Flows {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self { server, all: Mutex::default() }
    }

    fn copy(&self) -> Vec<Arc<Flow>> {
        lock(&self.all).clone()
    }

    /// A new client's flow; none when there are too many.
    fn add(&self, client: SocketAddr) -> io::Result<Option<Arc<Flow>>> {
        let mut all = lock(&self.all);
        if all.len() == FLOWS_MAX {
            return Ok(None);
        }
        let local: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let upstream = UdpSocket::bind(SocketAddr::new(local, 0), &UdpOptions::default())?;
        upstream.connect(self.server)?;
        let flow = Arc::new(Flow { client, upstream });
        all.push(flow.clone());
        Ok(Some(flow))
    }
}

/// From clients to the server, until the relay is stopped.
pub(super) fn forward(shared: &Shared, line: Line) -> io::Result<DirectionReport> {
    let mut thread = Thread::new(line);
    let mut flows: Vec<Arc<Flow>> = Vec::new();
    while !shared.stopped() {
        let offset = WallOffset::sample();
        for _ in 0..READS {
            let Some((packet, from, at)) = thread.receive(&shared.front, offset, 0)? else { break };
            let known = flows.iter().position(|flow| flow.client == from);
            let index = match known {
                Some(index) => index,
                None => {
                    let Some(flow) = shared.flows.add(from)? else { continue };
                    flows.push(flow);
                    shared.wakers[BACKWARD].wake();
                    flows.len() - 1
                }
            };
            thread.line.accept(at, SuperPacket { flow: index as FlowIndex, ..packet });
        }
        thread.release(|batch| {
            let flow = &flows[usize::from(batch.flow)];
            (&flow.upstream, Route::CONNECTED.with_traffic_class(batch.traffic_class))
        });
        let waker = &shared.wakers[FORWARD];
        let sources =
            [(shared.front.as_fd(), Interest::Readable), (waker.as_fd(), Interest::Readable)];
        thread.wait(&sources)?;
    }
    Ok(thread.report())
}

/// From the server to clients, until the relay is stopped.
pub(super) fn backward(shared: &Shared, line: Line) -> io::Result<DirectionReport> {
    let mut thread = Thread::new(line);
    let mut flows = shared.flows.copy();
    while !shared.stopped() {
        if shared.wakers[BACKWARD].clear() {
            flows = shared.flows.copy();
        }
        let offset = WallOffset::sample();
        for (index, flow) in flows.iter().enumerate() {
            for _ in 0..READS {
                let received = thread.receive(&flow.upstream, offset, index)?;
                let Some((packet, _, at)) = received else { break };
                thread.line.accept(at, SuperPacket { flow: index as FlowIndex, ..packet });
            }
        }
        thread.release(|batch| {
            let flow = &flows[usize::from(batch.flow)];
            (&shared.front, Route::to(flow.client).with_traffic_class(batch.traffic_class))
        });
        let mut sources = vec![(shared.wakers[BACKWARD].as_fd(), Interest::Readable)];
        sources.extend(flows.iter().map(|flow| (flow.upstream.as_fd(), Interest::Readable)));
        thread.wait(&sources)?;
    }
    Ok(thread.report())
}

/// What both directions do alike.
struct Thread {
    line: Line,
    cpu: Duration,
    /// When datagrams were released last.
    last: Instant,
    released: u64,
    late_sum: Duration,
    late_max: Duration,
    /// Latest drop count of each socket that is read.
    overflows: Vec<u32>,
    unsent: u64,
}

impl Thread {
    fn new(line: Line) -> Self {
        // Without it releases come up to 50 us later, which does no harm.
        let _ = clock::use_precise_timers();
        Self {
            line,
            cpu: clock::thread_cpu_time(),
            last: Instant::ZERO,
            released: 0,
            late_sum: Duration::ZERO,
            late_max: Duration::ZERO,
            overflows: Vec::new(),
            unsent: 0,
        }
    }

    /// One super-packet, who sent it, and when it came.
    fn receive(
        &mut self,
        socket: &UdpSocket,
        offset: WallOffset,
        index: usize,
    ) -> io::Result<Option<(SuperPacket, SocketAddr, Instant)>> {
        let buffers = &mut [IoSliceMut::new(self.line.room())];
        let Some(got) = socket.recv(buffers, Wait::No)? else { return Ok(None) };
        if self.overflows.len() <= index {
            self.overflows.resize(index + 1, 0);
        }
        self.overflows[index] = got.overflow;
        let now = clock::now();
        let at = got.kernel_time.map_or(now, |stamp| offset.to_instant(stamp).min(now));
        let (len, segment) = (got.len, got.segment);
        let packet = SuperPacket { len, segment, traffic_class: got.traffic_class, flow: 0 };
        Ok(Some((packet, got.from, at)))
    }

    /// Sends on what has arrived, each batch to where `way` says.
    fn release<'a>(&mut self, way: impl Fn(&Batch<'_>) -> (&'a UdpSocket, Route)) {
        let now = clock::now();
        let due = self.line.next_arrival().is_some_and(|at| at <= now);
        if !due || now < self.last + GRAIN {
            return;
        }
        self.last = now;
        let Self { line, released, late_sum, late_max, unsent, .. } = self;
        line.release(now, SEGMENTS, |batch| {
            let (socket, route) = way(batch);
            let segment = (batch.count > 1).then_some(batch.segment);
            match socket.send(&route, batch.payload, segment, Wait::UntilReady) {
                Ok(_) => *released += batch.count,
                // A full queue below: lost, as on any line.
                Err(_) => *unsent += batch.count,
            }
            *late_sum += batch.late_sum;
            *late_max = batch.late_max.max(*late_max);
        });
    }

    fn wait(&self, sources: &[(std::os::fd::BorrowedFd<'_>, Interest)]) -> io::Result<()> {
        let next = self.line.next_arrival().map(|at| at.max(self.last + GRAIN));
        wait::wait(sources, next)?;
        Ok(())
    }

    fn report(self) -> DirectionReport {
        let path = self.line.path();
        let datagrams = u32::try_from(self.released + self.unsent).unwrap_or(u32::MAX);
        DirectionReport {
            path: *path.stats(),
            queue_delay_max: path.queue_stats().max_delay,
            released: self.released,
            lateness_typical: self.late_sum / datagrams.max(1),
            lateness_max: self.late_max,
            overflows: self.overflows.iter().map(|count| u64::from(*count)).sum(),
            unsent: self.unsent,
            cpu: Some(clock::thread_cpu_time().saturating_sub(self.cpu)),
        }
    }
}

/// At least so long from one release to the next: some eight full packets at 1 Gb/s, about what
/// a network card gathers for one interrupt.
const GRAIN: Duration = Duration::from_micros(100);
/// Super-packets read before those that arrived are looked at.
const READS: usize = 16;
/// A thread waits for all flows and its waker, sixteen in all.
const FLOWS_MAX: usize = 15;
/// Datagrams of one call that every kernel takes.
const SEGMENTS: u16 = 64;
