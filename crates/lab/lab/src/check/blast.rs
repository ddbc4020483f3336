//! Super-packets as fast as goes, with as little work for each at both ends as there can be.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::udp::{Route, UdpSocket, Wait};
use longhaul_units::Rate;

use super::flows::{join, sockets};
use crate::testbed::Testbed;

/// IP-layer rate at which datagrams arrive that are sent at `rate` for `length`.
pub(super) fn blast(testbed: &Testbed, rate: Rate, length: Duration) -> io::Result<Rate> {
    let (sender, receiver) = sockets(testbed, false)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, &done));
        let sent = send(&sender, Route::to(receiver.local_addr()), rate, length);
        done.store(true, Ordering::Release);
        let carried = join(receiving)?;
        sent.map(|()| carried)
    })
}

fn send(socket: &UdpSocket, route: Route, rate: Rate, length: Duration) -> io::Result<()> {
    clock::use_precise_timers()?;
    let payload = vec![0; usize::from(DATAGRAM) * TRAIN];
    let (start, mut sent) = (clock::now(), 0);
    while clock::now() - start < length {
        socket.send(&route, &[IoSlice::new(&payload)], Some(DATAGRAM), Wait::UntilReady)?;
        sent += PACKET * TRAIN as u64;
        let due = start + rate.time_for(sent);
        if due > clock::now() + NAP {
            clock::sleep_until(due);
        }
    }
    Ok(())
}

fn receive(socket: &UdpSocket, done: &AtomicBool) -> io::Result<Rate> {
    let mut memory = vec![0; 65536];
    let (mut packets, mut first, mut last) = (0, None, clock::now());
    loop {
        while let Some(got) = socket.recv(&mut [IoSliceMut::new(&mut memory)], Wait::No)? {
            last = clock::now();
            first.get_or_insert(last);
            packets += got.datagrams() as u64;
        }
        let more = socket.wait_readable(None, Some(clock::now() + QUIET))?.socket;
        if !more && done.load(Ordering::Acquire) {
            return Ok(Rate::from_bytes_over(packets * PACKET, last - first.unwrap_or(last)));
        }
    }
}

/// With 28 bytes of headers a packet of [`PACKET`].
const DATAGRAM: u16 = 1472;
const PACKET: u64 = 1500;
/// Datagrams that fit one call.
const TRAIN: usize = 44;
/// Shorter sleeps cost more than they spare.
const NAP: Duration = Duration::from_micros(50);
/// Longer than any delay here.
const QUIET: Duration = Duration::from_millis(100);
