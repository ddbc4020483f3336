//! Does a thin thread that only receives, beside one that works on what was received, lose less than one thread that does
//! both? Datagrams come over loopback to one processor, which both share with endless loops:
//! `cargo run --release -p longhaul-sys --example thin_reader [SECONDS [RUNS]]`.
//!
//! Prints what the socket dropped, in percent of what was sent, medians of the runs: one thread, and a thin one. What finds no
//! room in the memory between the two threads stays in the socket, as under credit.

use std::error::Error;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use longhaul_sys::clock;
use longhaul_sys::host::{pin_thread, take_short_turns};
use longhaul_sys::udp::{Route, SendError, UdpOptions, UdpSocket, Wait};
use longhaul_units::{Duration, Rate};

const OURS: usize = 0;
const SHARED: usize = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse());
    let (seconds, runs) = (number(2)?, number(3)?);
    let time = Duration::from_secs(seconds);
    println!("| buffer, loops | 0.25 Gb/s | 0.5 Gb/s | 1 Gb/s | 2 Gb/s |\n|---|---|---|---|---|");
    for kib in [104, 208, 2048, 16_384] {
        for loops in [1, 2, 4] {
            print!("| {kib} KiB, {loops} |");
            for mbps in [250, 500, 1_000, 2_000] {
                let cell = Cell { buffer: kib << 10, loops, rate: Rate::from_mbps(mbps), time };
                // In turns, so that what else the machine does meets both.
                let mut lost = [Vec::new(), Vec::new()];
                for _ in 0..runs {
                    for (thin, lost) in [false, true].into_iter().zip(&mut lost) {
                        lost.push(cell.lost(thin)?);
                    }
                }
                let [one, thin] = lost.map(median);
                print!(" {one:.2}, {thin:.2} |");
                io::Write::flush(&mut io::stdout())?;
            }
            println!();
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Cell {
    buffer: usize,
    loops: usize,
    rate: Rate,
    time: Duration,
}

impl Cell {
    /// Percent of what was sent that was not read.
    fn lost(&self, thin: bool) -> Result<f64, Box<dyn Error>> {
        let mut options = UdpOptions::default();
        options.receive_buffer = self.buffer;
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let socket = UdpSocket::bind(at, &options)?;
        let (stop, full, read) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let sent = thread::scope(|scope| -> io::Result<u64> {
            let loops: Vec<_> = (0..self.loops).map(|_| scope.spawn(|| spin(&stop))).collect();
            let (socket, full, read) = (&socket, &full, &read);
            let readers = if thin {
                let (to_work, work) = sync_channel::<Vec<u8>>(MEMORY / BUFFER);
                let (to_reader, free) = sync_channel::<Vec<u8>>(MEMORY / BUFFER);
                for _ in 0..MEMORY / BUFFER {
                    to_reader.send(vec![0; BUFFER]).map_err(io::Error::other)?;
                }
                let reader = scope.spawn(move || -> io::Result<()> {
                    prepare()?;
                    while !full.load(Ordering::Relaxed) {
                        // Waits for memory, as credit would have the sender do.
                        let Ok(mut buffer) = free.recv() else { break };
                        let len = receive(socket, &mut buffer, full)?;
                        read.fetch_add(len as u64, Ordering::Relaxed);
                        buffer.truncate(len);
                        if to_work.send(buffer).is_err() {
                            break;
                        }
                    }
                    Ok(())
                });
                let worker = scope.spawn(move || -> io::Result<()> {
                    prepare()?;
                    for mut buffer in work {
                        work_on(buffer.len());
                        buffer.resize(BUFFER, 0);
                        if to_reader.send(buffer).is_err() {
                            break;
                        }
                    }
                    Ok(())
                });
                vec![reader, worker]
            } else {
                vec![scope.spawn(move || -> io::Result<()> {
                    prepare()?;
                    let mut buffer = vec![0; BUFFER];
                    while !full.load(Ordering::Relaxed) {
                        let mut bytes = receive(socket, &mut buffer, full)?;
                        for _ in 1..BURST {
                            let mut slices = [IoSliceMut::new(&mut buffer)];
                            let Some(got) = socket.recv(&mut slices, Wait::No)? else { break };
                            bytes += got.len;
                        }
                        read.fetch_add(bytes as u64, Ordering::Relaxed);
                        work_on(bytes);
                    }
                    Ok(())
                })]
            };
            let sent = self.send(socket.local_addr());
            // What waits is read; loops go first, so that this is no part of it.
            stop.store(true, Ordering::Relaxed);
            loops.into_iter().try_for_each(joined)?;
            clock::sleep_until(clock::now() + Duration::from_millis(200));
            full.store(true, Ordering::Relaxed);
            readers.into_iter().try_for_each(joined)?;
            sent
        })?;
        let read = read.load(Ordering::Relaxed).min(sent);
        Ok(100.0 * (sent - read) as f64 / sent as f64)
    }

    fn send(&self, to: SocketAddr) -> io::Result<u64> {
        pin_thread(&[OURS])?;
        clock::use_precise_timers()?;
        let at = SocketAddr::new(to.ip(), 0);
        let socket = UdpSocket::bind(at, &UdpOptions::default())?;
        socket.connect(to)?;
        let batch = self.rate.bytes_in(INTERVAL).div_ceil(DATAGRAM).clamp(1, 44) * DATAGRAM;
        let bytes = vec![7; batch as usize];
        let interval = self.rate.time_for(batch);
        let begin = clock::now();
        let (mut next, mut sent) = (begin, 0);
        while next < begin + self.time {
            clock::sleep_until(next);
            let gather = [IoSlice::new(&bytes)];
            match socket.send(&Route::CONNECTED, &gather, Some(DATAGRAM as u16), Wait::UntilReady) {
                Ok(_) => sent += batch,
                Err(SendError::NoBuffers) => {}
                Err(error) => return Err(error.into()),
            }
            // What was missed is not caught up.
            next = (next + interval).max(clock::now().before(interval));
        }
        Ok(sent)
    }
}

fn joined(thread: thread::ScopedJoinHandle<'_, io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn prepare() -> io::Result<()> {
    pin_thread(&[SHARED])?;
    take_short_turns()
}

fn spin(stop: &AtomicBool) -> io::Result<()> {
    pin_thread(&[SHARED])?;
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    Ok(())
}

/// The next super-packet, once it is there; nothing at the end.
fn receive(socket: &UdpSocket, buffer: &mut [u8], end: &AtomicBool) -> io::Result<usize> {
    while !end.load(Ordering::Relaxed) {
        let mut slices = [IoSliceMut::new(buffer)];
        if let Some(got) = socket.recv(&mut slices, Wait::No)? {
            return Ok(got.len);
        }
        socket.wait_readable(None, Some(clock::now() + Duration::from_millis(50)))?;
    }
    Ok(0)
}

/// Decrypting, verifying and writing take some 1 ns a byte.
fn work_on(bytes: usize) {
    let done = clock::thread_cpu_time() + Duration::from_nanos(bytes as u64);
    while clock::thread_cpu_time() < done {
        std::hint::spin_loop();
    }
}

const DATAGRAM: u64 = 1_400;
const INTERVAL: Duration = Duration::from_micros(250);
const BUFFER: usize = 65_536;
/// Between the two threads.
const MEMORY: usize = 16 << 20;
/// Super-packets that a lane reads before it works on them.
const BURST: usize = 8;
