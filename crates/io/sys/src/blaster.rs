//! The limit that everything else is measured against: one raw UDP flow with no protocol at all.
//!
//! The sender walks through memory in one contiguous slice a call, the receiver through memory of
//! its own; with a gigabyte on either side no byte is in a cache twice. Nothing is paced, repaired
//! or checked. With [`crate::udp::UdpOptions`] `gso` and `gro` off it is one datagram a call.

use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

use longhaul_units::Rate;

use crate::clock::{self, CpuTime};
use crate::udp::{PAYLOAD_MAX, Route, SendError, UdpSocket, Wait};

/// Options of a blast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlastOptions {
    /// Payload bytes of a datagram, at least 64: MTU less 28 (IPv4) or 48 (IPv6).
    pub datagram: u16,
    /// Datagrams a call: as many as fit 64 kB, or 1 for plain UDP.
    pub batch: u16,
    /// When to stop.
    pub limit: BlastLimit,
}

/// When a blast ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlastLimit {
    /// After as many bytes, rounded up to a whole call.
    Bytes(u64),
    /// After that time.
    Time(Duration),
}

impl BlastOptions {
    /// Datagrams of `datagram` bytes, as many a call as one call takes on `socket`.
    pub fn full_batches(socket: &UdpSocket, datagram: u16, limit: BlastLimit) -> Self {
        let fitting = (PAYLOAD_MAX / usize::from(datagram.max(1))) as u16;
        let batch = fitting.clamp(1, socket.capabilities().segments_max);
        Self { datagram, batch, limit }
    }
}

/// Results of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlastReport {
    /// Payload bytes.
    pub bytes: u64,
    /// Datagrams.
    pub datagrams: u64,
    /// System calls that moved any.
    pub calls: u64,
    /// From the first datagram to the last.
    pub elapsed: Duration,
    /// CPU time of the thread meanwhile. On a veth pair and on loopback the sender's thread also
    /// does the network stack's work of the receiving side.
    pub cpu: CpuTime,
    /// Datagrams that the peer says it sent; at the receiver, when the blast's end came through.
    pub sent_by_peer: Option<u64>,
}

impl BlastReport {
    /// Payload bits per second; zero when there was not more than one call.
    pub fn goodput(&self) -> Rate {
        if self.elapsed.is_zero() {
            return Rate::ZERO;
        }
        Rate::from_bytes_over(self.bytes, self.elapsed)
    }

    /// The part of the peer's datagrams that did not arrive, 0 to 1, where known.
    pub fn loss(&self) -> Option<f64> {
        let sent = self.sent_by_peer.filter(|sent| *sent > 0)?;
        Some(1.0 - self.datagrams.min(sent) as f64 / sent as f64)
    }

    /// CPU-seconds of this end per 10^9 payload bytes.
    pub fn cpu_per_gigabyte(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1e9 / self.bytes.max(1) as f64
    }
}

/// Sends datagrams from `memory`, round and round, until the limit, then says how many.
///
/// # Errors
/// `InvalidInput` for datagrams under 64 bytes or a batch beyond one call or `memory`; and those
/// of [`UdpSocket::send`], except for full queues, which it waits for.
pub fn blast_send(
    socket: &UdpSocket,
    route: &Route,
    memory: &[u8],
    options: &BlastOptions,
) -> io::Result<BlastReport> {
    let BlastOptions { datagram, batch, limit } = *options;
    let call = usize::from(datagram) * usize::from(batch);
    if usize::from(datagram) < DATAGRAM_MIN || call == 0 || call > PAYLOAD_MAX.min(memory.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (start, cpu) = (clock::now(), CpuTime::of_thread());
    let mut report = BlastReport::default();
    'blast: loop {
        for bytes in memory.chunks_exact(call) {
            send_all(socket, route, bytes, datagram)?;
            report.calls += 1;
            report.bytes += call as u64;
            let done = match limit {
                BlastLimit::Bytes(bytes) => report.bytes >= bytes,
                BlastLimit::Time(time) => clock::now() - start >= time,
            };
            if done {
                break 'blast;
            }
        }
    }
    report.datagrams = report.calls * u64::from(batch);
    report.elapsed = clock::now() - start;
    report.cpu = CpuTime::of_thread().since(cpu);
    let mut end = END;
    end[END.len() - 8..].copy_from_slice(&report.datagrams.to_be_bytes());
    for _ in 0..END_REPEATS {
        // Behind a full socket buffer the first of these are lost like any other datagram.
        std::thread::sleep(END_INTERVAL);
        send_all(socket, route, &end, datagram)?;
    }
    Ok(report)
}

/// Receives into `memory`, round and round, until a sender says that it is done, or nothing came
/// for `idle`.
///
/// # Errors
/// `InvalidInput` when `memory` holds less than 65536 bytes; and those of [`UdpSocket::recv`].
pub fn blast_receive(
    socket: &UdpSocket,
    memory: &mut [u8],
    idle: Duration,
) -> io::Result<BlastReport> {
    if memory.len() < CALL_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut report = BlastReport::default();
    let (mut at, mut start, mut last) = (0, None, clock::now());
    let mut cpu = CpuTime::of_thread();
    while report.sent_by_peer.is_none() {
        if memory.len() - at < CALL_MAX {
            at = 0;
        }
        let mut buffer = [IoSliceMut::new(&mut memory[at..at + CALL_MAX])];
        let Some(got) = socket.recv(&mut buffer, Wait::No)? else {
            if !socket.wait_readable(None, Some(clock::now() + idle))?.socket {
                break;
            }
            continue;
        };
        let mut datagrams = got.datagrams();
        let mut len = got.len;
        let last_start = (datagrams - 1) * usize::from(got.segment);
        let mark = &memory[at + last_start..at + got.len];
        if mark.len() == END.len() && mark[..END.len() - 8] == END[..END.len() - 8] {
            let mut count = [0; 8];
            count.copy_from_slice(&mark[END.len() - 8..]);
            report.sent_by_peer = Some(u64::from_be_bytes(count));
            datagrams -= 1;
            len = last_start;
        }
        if len > 0 {
            last = clock::now();
            if start.is_none() {
                (start, cpu) = (Some(last), CpuTime::of_thread());
            }
            report.calls += 1;
            report.datagrams += datagrams as u64;
            report.bytes += len as u64;
            at += len;
        }
    }
    report.elapsed = last - start.unwrap_or(last);
    report.cpu = CpuTime::of_thread().since(cpu);
    Ok(report)
}

/// Sends all of `bytes`, waiting where the host's queues are full.
fn send_all(
    socket: &UdpSocket,
    route: &Route,
    mut bytes: &[u8],
    datagram: u16,
) -> Result<(), io::Error> {
    while !bytes.is_empty() {
        match socket.send(route, &[IoSlice::new(bytes)], Some(datagram), Wait::UntilReady) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(SendError::NoBuffers) => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The mark of the end, before eight bytes that count the datagrams sent.
const END: [u8; 24] = *b"longhaul blast!!\x00\x00\x00\x00\x00\x00\x00\x00";
const END_REPEATS: usize = 10;
const END_INTERVAL: Duration = Duration::from_millis(5);
/// More than the mark, so that the two cannot be confused.
const DATAGRAM_MIN: usize = 64;
/// Bytes that one receive call may fill.
const CALL_MAX: usize = 65536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpOptions;

    #[test]
    fn datagrams_are_counted_at_both_ends() {
        let plain = UdpOptions { gso: false, gro: false, ..UdpOptions::default() };
        for options in [UdpOptions::default(), plain] {
            let receiver = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
            let memory = vec![3; 1 << 20];
            // Less than the receiver's buffer holds, so that nothing need be lost.
            let limit = BlastLimit::Bytes(100_000);
            let batches = BlastOptions::full_batches(&sender, 1000, limit);
            let route = Route::to(receiver.local_addr());
            let sent = blast_send(&sender, &route, &memory, &batches).unwrap();
            assert!(sent.bytes >= 100_000 && sent.bytes == sent.datagrams * 1000);
            let mut target = vec![0; 1 << 20];
            let got = blast_receive(&receiver, &mut target, Duration::from_secs(5)).unwrap();
            assert_eq!((got.bytes, got.datagrams), (sent.bytes, sent.datagrams));
            assert_eq!((got.sent_by_peer, got.loss()), (Some(sent.datagrams), Some(0.0)));
            assert!(target[..got.bytes as usize].iter().all(|byte| *byte == 3));
        }
    }

    #[test]
    fn silence_ends_a_receiver() {
        let options = UdpOptions::default();
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let mut memory = vec![0; CALL_MAX];
        let report = blast_receive(&socket, &mut memory, Duration::from_millis(5)).unwrap();
        assert_eq!((report.bytes, report.loss()), (0, None));
        assert!(blast_receive(&socket, &mut memory[1..], Duration::ZERO).is_err());
    }

    #[test]
    fn impossible_batches_are_refused() {
        let socket =
            UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
        let route = Route::to(socket.local_addr());
        let limit = BlastLimit::Time(Duration::ZERO);
        for (datagram, batch) in [(63, 1), (0, 0), (1000, 0), (1000, 66), (1000, 3)] {
            let options = BlastOptions { datagram, batch, limit };
            let error = blast_send(&socket, &route, &[0; 2000], &options).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
