//! Cost of forged packets for a lane: its goodput with and without 100,000 of them a second, in
//! turns.
//!
//! `cargo run --release -p longhaul-bench --example forgeries [MiB [Mb/s]]`
//!
//! Where sender, receiver and forger share processors, forging itself costs the transfer: so it is also
//! measured beside as many packets that go to a socket which nobody reads.
//!
//! With a rate the lane sends at that (profile `fixed`), else as fast as it goes (`auto`).
//!
//! One lane moves data from memory to memory over loopback. A thread without any key sends packets of
//! its connection for groups of its object that were never sent, from the very address of the sender,
//! so that they reach the lane's own socket.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{self, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use longhaul_bench::memory_to_memory::{MemoryOptions, receive, send};
use longhaul_carriers::buffer::Pool;
use longhaul_rate_control::Profile;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::{LaneId, ObjectId, PacketNumber, Rate};
use longhaul_wire::{Cipher, ConnectionId, Header, Kind, OBJECT_HEADER_LEN, ObjectHeader, Protect};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let size = env::args().nth(1).map_or(Ok(2048), |size| size.parse::<u64>())?;
    let rate = env::args().nth(2).map(|rate| rate.parse()).transpose()?.map(Rate::from_mbps);
    println!("medians of {RUNS}   Gb/s alone  packets elsewhere  forgeries  ratio  forgeries/s");
    for protect in [Protect::Aead, Protect::Integrity, Protect::Clear] {
        let mut figures = [const { Vec::new() }; 4];
        for _ in 0..RUNS {
            let run = |forge| run(size << 20, protect, rate, forge);
            let (goodput, forged) = run(Forge::Here)?;
            let all = [run(Forge::No)?.0, run(Forge::Elsewhere)?.0, goodput, forged];
            figures.iter_mut().zip(all).for_each(|(figures, figure)| figures.push(figure));
        }
        let [alone, elsewhere, beside, forged] = figures.map(median);
        let ratio = beside / elsewhere;
        println!(
            "{:12}   {alone:10.2}  {elsewhere:17.2}  {beside:9.2}  {ratio:5.2}  {forged:11.0}",
            protect.to_string()
        );
    }
    Ok(())
}

/// Where forged packets go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forge {
    No,
    /// To a socket that nobody reads.
    Elsewhere,
    /// To the lane.
    Here,
}

/// Goodput in Gb/s, and forgeries a second.
fn run(bytes: u64, protect: Protect, rate: Option<Rate>, forge: Forge) -> Outcome<(f64, f64)> {
    let options = MemoryOptions {
        bytes,
        protect,
        cipher: Cipher::Aes128Gcm,
        secret: [7; 32],
        profile: Profile::wished(rate.map(|_| "fixed"), rate, [])?,
        window: 32 << 20,
    };
    let mut shared = UdpOptions::default();
    shared.reuse_port = true;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let receiving = UdpSocket::bind(any, &UdpOptions::default())?;
    let sending = UdpSocket::bind(any, &shared)?;
    let forging = UdpSocket::bind(sending.local_addr(), &shared)?;
    let forging = net::UdpSocket::from(forging.as_fd().try_clone_to_owned()?);
    let to = receiving.local_addr();
    let nobody = UdpSocket::bind(any, &UdpOptions::default())?;
    let victim = if forge == Forge::Here { to } else { nobody.local_addr() };
    let (over, forged) = (AtomicBool::new(forge == Forge::No), AtomicU64::new(0));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let pool = Pool::new(BUFFERS);
            pool.fill();
            receive(receiving, &options, pool)
        });
        let sender = scope.spawn(|| {
            let pool = Pool::new(BUFFERS);
            let groups = (0..BUFFERS).map_while(|_| pool.try_take().map(Arc::new)).collect();
            send(sending, to, &options, groups)
        });
        let forger = scope.spawn(|| invent(&forging, victim, bytes, &over, &forged));
        let sent = sender.join().map_err(|_| "the sender failed")?;
        over.store(true, Ordering::Relaxed);
        forger.join().map_err(|_| "the forger failed")??;
        receiver.join().map_err(|_| "the receiver failed")??;
        let seconds = sent?.elapsed.as_secs_f64();
        Ok((bytes as f64 * 8e-9 / seconds, forged.load(Ordering::Relaxed) as f64 / seconds))
    })
}

/// Sends [`FORGERIES`] a second until it is over.
fn invent(
    socket: &net::UdpSocket,
    to: SocketAddr,
    bytes: u64,
    over: &AtomicBool,
    forged: &AtomicU64,
) -> Outcome<()> {
    let begun = Instant::now();
    let mut packet = vec![0x5a; 1_440];
    while !over.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * FORGERIES) as u64;
        while forged.load(Ordering::Relaxed) < due {
            let count = forged.fetch_add(1, Ordering::Relaxed);
            let header = Header {
                kind: Kind::Object,
                lane: LaneId(0),
                connection: ConnectionId(1),
                // Of the first epoch, and no replay.
                number: PacketNumber::new((1 << 29) + count),
                send_time: 0,
            };
            let offset = (count * 7_919 % (bytes >> 20)) << 20;
            let header = ObjectHeader { header, object: ObjectId(0), offset };
            if let Some(head) = packet.first_chunk_mut::<OBJECT_HEADER_LEN>() {
                header.emit(head);
            }
            match socket.send_to(&packet, to) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                _ => {}
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

const FORGERIES: f64 = 100_000.0;
const RUNS: usize = 5;
const BUFFERS: usize = 256;
