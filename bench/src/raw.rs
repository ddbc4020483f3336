//! UDP without any protocol: the limit for one flow.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_sys::blaster::{BlastLimit, BlastOptions, blast_receive, blast_send};
use longhaul_sys::memory::Pages;
use longhaul_sys::netns::Side;
use longhaul_sys::udp::{Route, UdpOptions, UdpSocket};

use crate::link::Link;
use crate::samples::Sample;

/// One flow from a gigabyte of memory to another; `batched`: with GSO and GRO.
pub(crate) fn blast(link: &Link, quick: bool, batched: bool) -> io::Result<Sample> {
    let mut udp = UdpOptions::default();
    (udp.gso, udp.gro) = (batched, batched);
    let limit = match (batched, quick) {
        // At least once through all memory, so that all data is distinct.
        (true, true) => BlastLimit::Bytes(MEMORY as u64),
        (true, false) => BlastLimit::Bytes(4 * MEMORY as u64),
        (false, true) => BlastLimit::Time(Duration::from_millis(300)),
        (false, false) => BlastLimit::Time(Duration::from_secs(2)),
    };
    let (from, to) = (link.address(Side::A), link.address(Side::B));
    let (sent, received) = link.both(
        |to| {
            let socket = UdpSocket::bind(SocketAddr::new(from, 0), &udp)?;
            let mut memory = Pages::new(MEMORY)?;
            memory.touch();
            let options = if batched {
                BlastOptions::full_batches(&socket, link.datagram(), limit)
            } else {
                BlastOptions { datagram: link.datagram(), batch: 1, limit }
            };
            blast_send(&socket, &Route::to(to), &memory, &options)
        },
        |ready| {
            let socket = UdpSocket::bind(SocketAddr::new(to, 0), &udp)?;
            let mut memory = Pages::new(MEMORY)?;
            memory.touch();
            ready(socket.local_addr());
            blast_receive(&socket, &mut memory, IDLE)
        },
    )?;
    Ok(Sample {
        bytes: received.bytes,
        seconds: received.elapsed.as_secs_f64(),
        cpu_send: Some(sent.cpu.total().as_secs_f64()),
        cpu_receive: Some(received.cpu.total().as_secs_f64()),
        cpu_relay: None,
        note: received.loss().map(|loss| format!("{:.1} % lost", loss * 100.0)),
    })
}

/// No byte of it is in a cache when its turn comes again.
const MEMORY: usize = 1 << 30;
/// Begins while a sender on a busy machine still gets its memory.
const IDLE: Duration = Duration::from_secs(30);
