//! A paced sender of datagrams of 1400 bytes.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::host::pin_thread;
use longhaul_sys::udp::{Route, SendError, UdpOptions, UdpSocket, Wait};

use super::Watch;

pub(super) fn start(
    to: SocketAddr,
    wanted: &Watch,
    stop: Arc<AtomicBool>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (rate, core) = (wanted.rate, wanted.ours);
    let socket = UdpSocket::bind(SocketAddr::new(to.ip(), 0), &UdpOptions::default())?;
    socket.connect(to)?;
    let batch = rate.bytes_in(INTERVAL).div_ceil(DATAGRAM).clamp(1, BATCH_MAX) * DATAGRAM;
    let interval = rate.time_for(batch);
    std::thread::Builder::new().name("sender".into()).spawn(move || {
        pin_thread(&[core])?;
        clock::use_precise_timers()?;
        let bytes = vec![7; batch as usize];
        let mut next = clock::now();
        while !stop.load(Ordering::Relaxed) {
            clock::sleep_until(next);
            match socket.send(
                &Route::CONNECTED,
                &[IoSlice::new(&bytes)],
                Some(DATAGRAM as u16),
                Wait::UntilReady,
            ) {
                Ok(_) | Err(SendError::NoBuffers) => {}
                Err(error) => return Err(error.into()),
            }
            // What was missed is not caught up: a burst would be the sender's doing.
            next = (next + interval).max(clock::now().before(interval));
        }
        Ok(())
    })
}

const DATAGRAM: u64 = 1_400;
const BATCH_MAX: u64 = 44;
/// Short beside the turns of a scheduler.
const INTERVAL: Duration = Duration::from_micros(250);
