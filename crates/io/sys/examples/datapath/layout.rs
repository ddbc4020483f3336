//! Where headers, payloads and tags lie in memory: contiguous, or gathered and scattered, or
//! received into one hot buffer and copied; and how the receiver waits.

use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::host::{allowed_cpus, pin_thread};
use longhaul_sys::memory::Pages;
use longhaul_sys::netns::{NetnsPair, Side};
use longhaul_sys::udp::{Route, UdpOptions, UdpSocket, Wait};
use socket2::SockRef;

use crate::{RUNS, median};

/// Layout of the sender's memory. Datagrams always have 1472 bytes.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    /// One slice of 44 datagrams.
    Contiguous,
    /// 44 x (32 header, 1440 payload).
    Pairs,
    /// 44 x (32 header, 1424 payload, 16 tag).
    Triples,
    /// The same, first copied to one hot frame of 44 datagrams.
    Framed,
}

/// Where the receiver puts a super-packet.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    /// One slice, which walks.
    Walking,
    /// 44 x (header, payload), payloads walk.
    Pairs,
    /// 44 x (header, payload, tag), payloads walk.
    Triples,
    /// One slice, always the same: what decryption out of place starts from.
    Hot,
    /// The same, then the payloads copied to memory that walks.
    HotThenCopy,
}

#[derive(Clone, Copy, Default)]
struct Figures {
    send_ns: f64,
    receive_ns: f64,
    gbps: f64,
}

pub fn measure() -> Result<(), Box<dyn Error>> {
    println!("\nlayout: 44 x 1472 bytes a call over veth, 1 GiB of distinct memory at both ends");
    println!("{:<46} {:>9} {:>9} {:>7}", "", "send ns", "recv ns", "Gb/s");
    let mut source = Pages::new(MEMORY)?;
    source.fill(1);
    let mut target = Pages::new(MEMORY)?;
    target.touch();
    let mut runs = vec![Vec::new(); ROWS.len()];
    for _ in 0..RUNS {
        for (row, runs) in ROWS.iter().zip(&mut runs) {
            runs.push(once(row, &source, &mut target)?);
        }
    }
    for ((name, ..), runs) in ROWS.iter().zip(&mut runs) {
        let Figures { send_ns, .. } = median(runs, |run| run.send_ns);
        let Figures { receive_ns, .. } = median(runs, |run| run.receive_ns);
        let Figures { gbps, .. } = median(runs, |run| run.gbps);
        println!("{name:<46} {send_ns:>9.0} {receive_ns:>9.0} {gbps:>7.1}");
    }
    Ok(())
}

fn once(row: &Row, source: &[u8], target: &mut [u8]) -> Result<Figures, Box<dyn Error>> {
    let (_, layout, place, blocking) = *row;
    let pair = NetnsPair::new(1500)?;
    let bind = |side: Side| {
        let local = SocketAddr::new(side.ipv4(), 0);
        pair.run_in(side, || UdpSocket::bind(local, &UdpOptions::default()))?
    };
    let (sender, receiver) = (bind(Side::A)?, bind(Side::B)?);
    sender.connect(receiver.local_addr())?;
    SockRef::from(&receiver).set_read_timeout(Some(IDLE))?;
    let cpus = allowed_cpus()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            pin_thread(&cpus[cpus.len() - 1..])?;
            receive(&receiver, place, blocking, target)
        });
        let sending = scope.spawn(|| {
            pin_thread(&cpus[..1])?;
            send(&sender, layout, source, &stop)
        });
        std::thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
        let (sent_calls, send_cpu) = sending.join().map_err(|_| "the sender panicked")??;
        let got = receiving.join().map_err(|_| "the receiver panicked")??;
        Ok(Figures {
            send_ns: send_cpu.as_nanos() as f64 / sent_calls as f64,
            receive_ns: got.cpu.as_nanos() as f64 / got.calls as f64,
            gbps: got.bytes as f64 * 8.0 / got.elapsed.as_nanos() as f64,
        })
    })
}

fn send(
    socket: &UdpSocket,
    layout: Source,
    memory: &[u8],
    stop: &AtomicBool,
) -> std::io::Result<(u64, Duration)> {
    let (headers, tags) = ([[2u8; HEADER]; BATCH], [[3u8; TAG]; BATCH]);
    let payload = match layout {
        Source::Contiguous => DATAGRAM,
        Source::Pairs => DATAGRAM - HEADER,
        Source::Triples | Source::Framed => DATAGRAM - HEADER - TAG,
    };
    let mut frame = vec![2u8; BATCH * DATAGRAM];
    let (mut calls, cpu) = (0, clock::thread_cpu_time());
    loop {
        for chunk in memory.chunks_exact(BATCH * payload) {
            if layout == Source::Framed {
                let datagrams = frame.chunks_exact_mut(DATAGRAM);
                for (datagram, part) in datagrams.zip(chunk.chunks_exact(payload)) {
                    datagram[..HEADER].copy_from_slice(&headers[0]);
                    datagram[HEADER..HEADER + payload].copy_from_slice(part);
                    datagram[HEADER + payload..].copy_from_slice(&tags[0]);
                }
            }
            let mut slices = [IoSlice::new(&[]); 3 * BATCH];
            let mut count = 0;
            let mut put = |bytes| {
                slices[count] = IoSlice::new(bytes);
                count += 1;
            };
            match layout {
                Source::Contiguous => put(chunk),
                Source::Framed => put(&frame),
                Source::Pairs | Source::Triples => {
                    for (index, payload) in chunk.chunks_exact(payload).enumerate() {
                        put(&headers[index]);
                        put(payload);
                        if layout == Source::Triples {
                            put(&tags[index]);
                        }
                    }
                }
            }
            let size = Some(DATAGRAM as u16);
            socket.send(&Route::CONNECTED, &slices[..count], size, Wait::UntilReady)?;
            calls += 1;
            if stop.load(Ordering::Relaxed) {
                return Ok((calls, clock::thread_cpu_time() - cpu));
            }
        }
    }
}

#[derive(Default)]
struct Receipt {
    calls: u64,
    bytes: u64,
    elapsed: Duration,
    cpu: Duration,
}

fn receive(
    socket: &UdpSocket,
    place: Target,
    blocking: bool,
    memory: &mut [u8],
) -> std::io::Result<Receipt> {
    let mut headers = [[0u8; HEADER]; BATCH];
    let mut tags = [[0u8; TAG]; BATCH];
    let mut hot = vec![0u8; 65536];
    let payload = match place {
        Target::Triples | Target::HotThenCopy => DATAGRAM - HEADER - TAG,
        Target::Pairs => DATAGRAM - HEADER,
        Target::Walking | Target::Hot => DATAGRAM,
    };
    let mut receipt = Receipt::default();
    let (mut start, mut last, mut cpu) = (None, clock::now(), Duration::ZERO);
    let mut at = 0;
    loop {
        if memory.len() - at < BATCH * payload {
            at = 0;
        }
        let walk = &mut memory[at..at + BATCH * payload];
        let wait = if blocking { Wait::UntilReady } else { Wait::No };
        let got = match place {
            Target::Walking => socket.recv(&mut [IoSliceMut::new(walk)], wait)?,
            Target::Hot | Target::HotThenCopy => {
                socket.recv(&mut [IoSliceMut::new(&mut hot)], wait)?
            }
            Target::Pairs | Target::Triples => {
                let mut slices: [IoSliceMut<'_>; 3 * BATCH] =
                    std::array::from_fn(|_| IoSliceMut::new(&mut []));
                let mut count = 0;
                let slots = walk.chunks_exact_mut(payload).zip(&mut headers).zip(&mut tags);
                for ((slot, header), tag) in slots {
                    slices[count] = IoSliceMut::new(header);
                    slices[count + 1] = IoSliceMut::new(slot);
                    count += 2;
                    if place == Target::Triples {
                        slices[count] = IoSliceMut::new(tag);
                        count += 1;
                    }
                }
                socket.recv(&mut slices[..count], wait)?
            }
        };
        let Some(got) = got else {
            if !blocking && socket.wait_readable(None, Some(clock::now() + IDLE))?.socket {
                continue;
            }
            receipt.elapsed = last - start.unwrap_or(last);
            receipt.cpu = clock::thread_cpu_time() - cpu;
            return Ok(receipt);
        };
        if place == Target::HotThenCopy {
            for (slot, datagram) in walk.chunks_exact_mut(payload).zip(hot.chunks(DATAGRAM)) {
                slot.copy_from_slice(&datagram[HEADER..HEADER + payload]);
            }
        }
        at += BATCH * payload;
        last = clock::now();
        if start.is_none() {
            (start, cpu) = (Some(last), clock::thread_cpu_time());
        }
        receipt.calls += 1;
        receipt.bytes += got.len as u64;
    }
}

/// Name, sender, receiver, whether it waits in `recvmsg` rather than in `ppoll`.
type Row = (&'static str, Source, Target, bool);

const ROWS: [Row; 10] = [
    ("contiguous -> contiguous", Source::Contiguous, Target::Walking, true),
    ("contiguous -> contiguous, by ppoll", Source::Contiguous, Target::Walking, false),
    ("gather 2 -> contiguous", Source::Pairs, Target::Walking, true),
    ("gather 3 -> contiguous", Source::Triples, Target::Walking, true),
    ("copied to a frame -> contiguous", Source::Framed, Target::Walking, true),
    ("contiguous -> scatter 2", Source::Contiguous, Target::Pairs, true),
    ("gather 2 -> scatter 2", Source::Pairs, Target::Pairs, true),
    ("gather 3 -> scatter 3", Source::Triples, Target::Triples, true),
    ("gather 3 -> hot buffer", Source::Triples, Target::Hot, true),
    ("gather 3 -> hot buffer, payloads copied", Source::Triples, Target::HotThenCopy, true),
];

const MEMORY: usize = 1 << 30;
const TIME: Duration = Duration::from_millis(1200);
const IDLE: Duration = Duration::from_millis(100);
const DATAGRAM: usize = 1472;
const BATCH: usize = 44;
const HEADER: usize = 32;
const TAG: usize = 16;
