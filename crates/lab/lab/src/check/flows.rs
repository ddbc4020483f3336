//! Traffic to measure a path with: datagrams that carry a number and a time, and kernel TCP.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use longhaul_sys::clock::WallOffset;
use longhaul_sys::udp::{Received, Route, SendError, UdpOptions, UdpSocket, Wait};
use longhaul_sys::{clock, host};
use longhaul_units::{Ecn, Instant, Rate};

use crate::testbed::{Host, Testbed};

/// Datagrams to send from the first host to the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) ipv6: bool,
    /// In all.
    pub(super) count: u32,
    /// IP-layer bytes of each.
    pub(super) size: u16,
    /// Sent in one call.
    pub(super) train: u32,
    /// IP-layer bits per second.
    pub(super) rate: Rate,
    /// Time that the path may keep the last ones.
    pub(super) linger: Duration,
}

/// Their outcome.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// From the first call to the last.
    pub(super) sending: Duration,
    /// In the order of arrival.
    pub(super) arrivals: Vec<Arrival>,
    /// Port that they were sent to.
    pub(super) port: u16,
    /// Super-packets that found the receiving socket full.
    pub(super) overflow: u32,
}

/// A datagram that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) number: u32,
    pub(super) at: Instant,
    /// From the call that sent it to the kernel's stamp on arrival.
    pub(super) delay: Duration,
    /// Congestion Experienced.
    pub(super) marked: bool,
}

/// Sends and receives; all datagrams are ECN-capable.
pub(super) fn stream(testbed: &Testbed, spec: &Stream) -> io::Result<Outcome> {
    let (sender, receiver) = sockets(testbed, spec.ipv6)?;
    let to = receiver.local_addr();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, spec, &done));
        // On a thread of its own, whose priority ends with it.
        let sending = scope.spawn(|| send(&sender, to, spec)).join();
        done.store(true, Ordering::Release);
        let arrivals = join(receiving)?;
        let sending = sending.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let overflow = receiver.memory()?.drops;
        Ok(Outcome { sending: sending?, arrivals, port: to.port(), overflow })
    })
}

/// Round trips of `count` datagrams, sent at intervals of `interval`: the way there and the way back,
/// each from a call that sends to the kernel's stamp on arrival. How long hosts take to wake up and
/// answer is no part of them.
pub(super) fn echoes(
    testbed: &Testbed,
    ipv6: bool,
    count: u32,
    interval: Duration,
    linger: Duration,
) -> io::Result<Vec<Duration>> {
    let (near, far) = sockets(testbed, ipv6)?;
    let done = AtomicBool::new(false);
    let to = far.local_addr();
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            attend();
            let mut probe = [0; PROBE];
            while !done.load(Ordering::Acquire) {
                let Some(got) = receive_once(&far, &mut probe)? else { continue };
                let there = arrival(&got).since(time(&probe, 0));
                probe[8..16].copy_from_slice(&(there.as_nanos() as u64).to_be_bytes());
                probe[..8].copy_from_slice(&clock::now().as_nanos().to_be_bytes());
                far.send(&Route::to(got.from), &[IoSlice::new(&probe)], None, Wait::UntilReady)?;
            }
            Ok::<_, io::Error>(())
        });
        let listen = scope.spawn(|| {
            attend();
            let (mut trips, mut probe) = (Vec::new(), [0; PROBE]);
            while !done.load(Ordering::Acquire) {
                let Some(got) = receive_once(&near, &mut probe)? else { continue };
                let there = Duration::from_nanos(time(&probe, 8).as_nanos());
                trips.push(there + arrival(&got).since(time(&probe, 0)));
            }
            Ok::<_, io::Error>(trips)
        });
        let sent = (0..count).try_for_each(|_| {
            let now = clock::now();
            let mut probe = [0; PROBE];
            probe[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
            near.send(&Route::to(to), &[IoSlice::new(&probe)], None, Wait::UntilReady)?;
            clock::sleep_until(now + interval);
            Ok::<_, io::Error>(())
        });
        std::thread::sleep(linger);
        done.store(true, Ordering::Release);
        join(echo)?;
        let trips = join(listen)?;
        sent.map(|()| trips)
    })
}

fn time(probe: &[u8; PROBE], at: usize) -> Instant {
    let bytes = std::array::from_fn(|index| probe[at + index]);
    Instant::from_nanos(u64::from_be_bytes(bytes))
}

/// When the kernel got it; where kernels do not stamp, now.
fn arrival(got: &Received) -> Instant {
    got.kernel_time.map_or_else(clock::now, |stamp| WallOffset::sample().to_instant(stamp))
}

/// The path is to be measured, not how busy the machine is. Without the privilege it is both.
fn attend() {
    let _ = host::run_first();
}

/// Faster streams would keep others off the processor.
fn attend_to(spec: &Stream) {
    if spec.rate <= ATTENDED {
        attend();
    }
}

/// At both ends.
pub(super) fn sockets(testbed: &Testbed, ipv6: bool) -> io::Result<(UdpSocket, UdpSocket)> {
    let mut options = UdpOptions::default();
    options.receive_buffer = BUFFER;
    options.traffic_class = ECT0;
    let bind = |host: &Host| {
        let address = if ipv6 { host.ipv6() } else { Some(host.ipv4()) };
        let address: IpAddr = address.ok_or(io::ErrorKind::Unsupported)?;
        host.run(|| UdpSocket::bind(SocketAddr::new(address, 0), &options))?
    };
    let (first, last) = testbed.ends();
    Ok((bind(first)?, bind(last)?))
}

fn send(socket: &UdpSocket, to: SocketAddr, spec: &Stream) -> io::Result<Duration> {
    attend_to(spec);
    clock::use_precise_timers()?;
    let size = usize::from(spec.size - if spec.ipv6 { 48 } else { 28 });
    let start = clock::now();
    let mut payload = vec![0; size * spec.train as usize];
    for first in (0..spec.count).step_by(spec.train as usize) {
        let due = start + spec.rate.time_for(u64::from(first) * u64::from(spec.size));
        // Behind its time it sends at once, several times if need be.
        if due > clock::now() {
            clock::sleep_until(due);
        }
        let now = clock::now().as_nanos().to_be_bytes();
        let numbers = first..spec.count.min(first + spec.train);
        let length = size * numbers.len();
        for (datagram, number) in payload.chunks_exact_mut(size).zip(numbers) {
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            datagram[4..12].copy_from_slice(&now);
        }
        let slices = [IoSlice::new(&payload[..length])];
        loop {
            match socket.send(&Route::to(to), &slices, Some(size as u16), Wait::UntilReady) {
                Ok(_) => break,
                Err(SendError::NoBuffers) => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(clock::now() - start)
}

fn receive(socket: &UdpSocket, spec: &Stream, done: &AtomicBool) -> io::Result<Vec<Arrival>> {
    attend_to(spec);
    let mut arrivals = Vec::with_capacity(spec.count as usize);
    let mut memory = vec![0; 65536];
    let mut quiet_since = clock::now();
    while !done.load(Ordering::Acquire) || clock::now() < quiet_since + spec.linger {
        let Some(got) = receive_once(socket, &mut memory)? else { continue };
        quiet_since = clock::now();
        let at = arrival(&got);
        let marked = got.ecn() == Ecn::Ce;
        for datagram in memory[..got.len].chunks(got.segment.max(1).into()) {
            let (Some(number), Some(sent)) =
                (datagram.first_chunk(), datagram.get(4..).and_then(|rest| rest.first_chunk()))
            else {
                continue;
            };
            let sent = Instant::from_nanos(u64::from_be_bytes(*sent));
            let number = u32::from_be_bytes(*number);
            arrivals.push(Arrival { number, at, delay: at.since(sent), marked });
        }
    }
    Ok(arrivals)
}

/// One super-packet, or nothing for a short while.
fn receive_once(socket: &UdpSocket, memory: &mut [u8]) -> io::Result<Option<Received>> {
    socket.wait_readable(None, Some(clock::now() + GLANCE))?;
    socket.recv(&mut [IoSliceMut::new(memory)], Wait::No)
}

pub(super) fn join<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const ATTENDED: Rate = Rate::from_gbps(4);
/// When it was sent, and how long it took on the way there.
const PROBE: usize = 16;
const ECT0: u8 = 2;
/// Nothing is to be lost in a socket.
const BUFFER: usize = 64 << 20;
const GLANCE: Duration = Duration::from_millis(20);
