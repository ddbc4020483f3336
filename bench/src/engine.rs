//! Longhaul's engine, protection and sockets from memory to memory: one lane, no files, no hashes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_carriers::buffer::Pool;
use longhaul_rate_control::Profile;
use longhaul_sys::netns::Side;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_wire::{Cipher, Protect};

use crate::link::Link;
use crate::memory_to_memory::{MemoryOptions, receive, send};
use crate::samples::Sample;

/// One object under profile `auto`.
pub(crate) fn memory(link: &Link, quick: bool, protect: Protect) -> io::Result<Sample> {
    let profile = Profile::wished(Some("auto"), None, []).map_err(io::Error::other)?;
    let options = MemoryOptions {
        bytes: if quick { 1 << 30 } else { 4 << 30 },
        protect,
        cipher: Cipher::Aes128Gcm,
        secret: [7; 32],
        profile,
        window: 64 << 20,
    };
    let pool = || {
        let pool = Pool::new(GROUPS);
        pool.fill();
        pool
    };
    let bind =
        |side| UdpSocket::bind(SocketAddr::new(link.address(side), 0), &UdpOptions::default());
    let (sent, received) = link.both(
        |to| {
            let (socket, pool) = (bind(Side::A)?, pool());
            let groups = (0..GROUPS).map_while(|_| pool.take().map(Arc::new)).collect();
            send(socket, to, &options, groups)
        },
        |ready| {
            let (socket, pool) = (bind(Side::B)?, pool());
            ready(socket.local_addr());
            receive(socket, &options, pool)
        },
    )?;
    Ok(Sample {
        bytes: options.bytes,
        // Until the sender knows that everything has arrived.
        seconds: sent.elapsed.as_secs_f64(),
        cpu_send: Some(sent.cpu.as_secs_f64()),
        cpu_receive: Some(received.cpu.as_secs_f64()),
        cpu_relay: None,
        note: None,
    })
}

/// Buffers of 1 MiB: a gigabyte at either end, as for the raw flow.
const GROUPS: usize = 1024;
