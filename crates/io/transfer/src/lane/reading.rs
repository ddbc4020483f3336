//! Reading a lane's socket.

use std::io::{self, IoSliceMut};

use longhaul_connection::ReadBatch;
use longhaul_sys::clock::{self, WallOffset};
use longhaul_sys::udp::{UdpSocket, Wait};
use longhaul_units::{Duration, Instant};

pub(super) struct Reading {
    /// One super-packet, warm in the cache.
    buffer: Vec<u8>,
    wall: WallOffset,
    wall_due: Instant,
    /// The socket's count of what it dropped.
    overflow: u32,
}

impl Reading {
    pub fn new(now: Instant) -> Self {
        let (wall, wall_due) = (WallOffset::sample(), now + WALL_INTERVAL);
        Self { buffer: vec![0; BUFFER], wall, wall_due, overflow: 0 }
    }

    /// The next super-packet, if one is there.
    pub fn read(&mut self, socket: &UdpSocket) -> io::Result<Option<(ReadBatch, &mut [u8])>> {
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        let Some(got) = socket.recv(&mut slices, Wait::No)? else { return Ok(None) };
        let now = clock::now();
        if now >= self.wall_due {
            self.wall = WallOffset::sample();
            self.wall_due = now + WALL_INTERVAL;
        }
        let batch = ReadBatch {
            from: got.from,
            // A stamp from before a step of the wall clock may lie in the future.
            at: got.kernel_time.map_or(now, |stamp| self.wall.to_instant(stamp).min(now)),
            segment: usize::from(got.segment).max(1),
            ecn: got.ecn(),
            overflowed: got.overflow != self.overflow,
        };
        self.overflow = got.overflow;
        let len = if got.truncated { 0 } else { got.len };
        Ok(Some((batch, &mut self.buffer[..len])))
    }
}

const BUFFER: usize = 65_536;
/// How often the clocks are compared.
const WALL_INTERVAL: Duration = Duration::from_secs(1);
