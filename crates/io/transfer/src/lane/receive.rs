//! Packets become groups.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Mutex;

use longhaul_engine::{Arrival, Lane, LaneConfig, Path};
use longhaul_sys::clock::{self, WallOffset};
use longhaul_sys::udp::{UdpSocket, Wait};
use longhaul_units::{Duration, Instant, LaneId};
use longhaul_wire::{
    CLEAR_TAG_LEN, CloseCode, ConnectionId, Header, Kind, OBJECT_HEADER_LEN, ObjectHeader, Protect,
};

use super::run::Run;
use crate::buffer::{Reuse, lock};
use crate::carrier::{Hub, Unplaceable};
use crate::incoming::{Incoming, Slot, Target};
use crate::protection::{Protection, object_tag_len};

/// Received datagrams of one size, as the kernel joined them.
pub(super) struct Batch<'b> {
    from: SocketAddr,
    at: Instant,
    /// Bytes in all, and of each datagram but the last.
    len: usize,
    segment: usize,
    overflowed: bool,
    marked: bool,
    /// The bytes, unless they are in [`Receiving::buffer`].
    bytes: Option<&'b mut [u8]>,
}

impl<'b> Batch<'b> {
    /// Whether more than feedback or a single packet came.
    pub fn is_large(&self) -> bool {
        self.len > 4 * self.segment
    }

    /// Where the datagrams are in its bytes.
    fn packets(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (len, segment) = (self.len, self.segment);
        let starts = (0..len).step_by(segment).take(SEGMENTS_MAX);
        starts.map(move |start| start..len.min(start + segment))
    }

    /// IP and UDP headers of a datagram, which the kernel has taken off.
    fn header_bytes(&self) -> u64 {
        if self.from.is_ipv4() { IPV4_UDP } else { IPV6_UDP }
    }

    pub fn single(from: SocketAddr, at: Instant, bytes: &'b mut [u8]) -> Self {
        let len = bytes.len();
        let segment = len.max(1);
        Self { from, at, len, segment, overflowed: false, marked: false, bytes: Some(bytes) }
    }
}

pub(super) struct Receiving {
    connection: ConnectionId,
    lane: LaneId,
    protection: Protection,
    pub incoming: Incoming,
    /// One super-packet, warm in the cache.
    buffer: Vec<u8>,
    /// Bytes that were there already, or of a group that has not begun.
    elsewhere: Vec<u8>,
    /// Headers and tags of the batch (`clear`).
    headers: Vec<[u8; OBJECT_HEADER_LEN]>,
    tags: Vec<[u8; CLEAR_TAG_LEN]>,
    wall: WallOffset,
    wall_due: Instant,
    /// The socket's count of what it dropped, and whether it grew since something authentic came.
    overflow: u32,
    overflowed: bool,
    /// Authentic packets of consecutive numbers that the engine has not been told of.
    arrival: Option<Arrival>,
}

const BUFFER: usize = 65_536;
/// IP and UDP headers of a datagram.
const IPV4_UDP: u64 = 28;
const IPV6_UDP: u64 = 48;
/// How often the clocks are compared.
const WALL_INTERVAL: Duration = Duration::from_secs(1);
/// ECN bits of a congestion mark (RFC 3168).
const CE: u8 = 3;

impl Receiving {
    pub fn new(
        config: &LaneConfig,
        protection: Protection,
        wall: WallOffset,
        now: Instant,
    ) -> Self {
        Self {
            connection: config.connection,
            lane: config.lane,
            protection,
            incoming: Incoming::default(),
            buffer: vec![0; BUFFER],
            elsewhere: vec![0; BUFFER],
            headers: Vec::with_capacity(SEGMENTS_MAX),
            tags: Vec::with_capacity(SEGMENTS_MAX),
            wall,
            wall_due: now + WALL_INTERVAL,
            overflow: 0,
            overflowed: false,
            arrival: None,
        }
    }

    /// The next super-packet, if one is there.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<Option<Batch<'static>>> {
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        let Some(got) = socket.recv(&mut slices, Wait::No)? else { return Ok(None) };
        let now = clock::now();
        if now >= self.wall_due {
            self.wall = WallOffset::sample();
            self.wall_due = now + WALL_INTERVAL;
        }
        // A stamp from before a step of the wall clock may lie in the future.
        let at = got.kernel_time.map_or(now, |stamp| self.wall.to_instant(stamp).min(now));
        self.overflowed |= got.overflow != self.overflow;
        self.overflow = got.overflow;
        Ok(Some(Batch {
            from: got.from,
            at,
            len: if got.truncated { 0 } else { got.len },
            segment: usize::from(got.segment).max(1),
            overflowed: self.overflowed,
            marked: got.traffic_class & CE == CE,
            bytes: None,
        }))
    }

    /// Takes in what [`Self::receive`] left in the buffer.
    pub fn take_buffered(
        &mut self,
        lane: &mut Lane,
        path: &Mutex<Path>,
        hub: &dyn Hub,
        batch: &mut Batch<'_>,
    ) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.take_bytes(lane, path, hub, batch, &mut buffer[..batch.len]);
        self.buffer = buffer;
    }

    /// Takes in a datagram that came another way.
    pub fn take(
        &mut self,
        lane: &mut Lane,
        path: &Mutex<Path>,
        hub: &dyn Hub,
        batch: &mut Batch<'_>,
    ) {
        if let Some(bytes) = batch.bytes.take() {
            self.take_bytes(lane, path, hub, batch, bytes);
        }
    }

    fn take_bytes(
        &mut self,
        lane: &mut Lane,
        path: &Mutex<Path>,
        hub: &dyn Hub,
        batch: &Batch<'_>,
        bytes: &mut [u8],
    ) {
        let authentic = if self.protection.protect() == Protect::Clear {
            self.verify_clear(batch, bytes)
        } else {
            u128::MAX
        };
        let mut run = None::<Run>;
        for (i, range) in batch.packets().enumerate() {
            let packet = &bytes[range.clone()];
            let Ok(header) = Header::parse(packet) else { continue };
            if header.lane != self.lane || header.connection != self.connection {
                continue;
            }
            if !lane.accepts(header.number.get()) {
                continue;
            }
            match header.kind {
                Kind::Object if authentic >> i & 1 == 0 => {}
                Kind::Object => {
                    let Some(next) = self.run_of_one(header, packet, range) else { continue };
                    if !run.as_mut().is_some_and(|run| run.takes_in(&next))
                        && let Some(whole) = run.replace(next)
                    {
                        self.take_run(lane, hub, batch, whole, bytes);
                    }
                }
                Kind::Control => {
                    if let Some(whole) = run.take() {
                        self.take_run(lane, hub, batch, whole, bytes);
                    }
                    self.flush_arrival(lane, batch.from);
                    self.take_control(lane, path, batch, &header, &mut bytes[range]);
                }
            }
        }
        if let Some(whole) = run {
            self.take_run(lane, hub, batch, whole, bytes);
        }
        self.flush_arrival(lane, batch.from);
    }

    fn take_control(
        &mut self,
        lane: &mut Lane,
        path: &Mutex<Path>,
        batch: &Batch<'_>,
        header: &Header,
        packet: &mut [u8],
    ) {
        let number = header.number.get();
        let arrival = Arrival {
            numbers: number..number + 1,
            at: batch.at,
            send_time: header.send_time,
            wire_bytes: packet.len() as u64 + batch.header_bytes(),
            marked: u32::from(batch.marked),
            overflowed: batch.overflowed,
        };
        if let Ok(frames) = self.protection.open_control(header.number, packet) {
            self.overflowed &= !batch.overflowed;
            lane.handle_control(clock::now(), &mut lock(path), batch.from, &arrival, frames);
        }
    }

    fn run_of_one(&self, header: Header, packet: &[u8], range: Range<usize>) -> Option<Run> {
        let header = ObjectHeader::parse_behind(header, packet).ok()?;
        let overhead = OBJECT_HEADER_LEN + object_tag_len(self.protection.protect());
        if packet.len() <= overhead {
            return None;
        }
        let number = header.header.number.get();
        Some(Run {
            range,
            packet: packet.len(),
            overhead,
            numbers: number..number + 1,
            send_time: header.header.send_time,
            object: header.object,
            offset: header.offset,
        })
    }

    /// Places the payloads of a run of `bytes`, as many of them as are authentic.
    fn take_run(
        &mut self,
        lane: &mut Lane,
        hub: &dyn Hub,
        batch: &Batch<'_>,
        mut run: Run,
        bytes: &[u8],
    ) {
        let mut together = true;
        while run.packets() > 0 {
            let part = if together { run.clone() } else { run.first(1) };
            match self.place(hub, &part, bytes) {
                Ok(Placed { looked_at, authentic }) => {
                    if authentic > 0 {
                        self.extend_arrival(lane, batch, &part.first(authentic));
                    }
                    run = run.behind(looked_at);
                }
                // One among them may be forged: each for itself.
                Err(Unplaceable::Unasked) if part.packets() > 1 => together = false,
                Err(refusal) => {
                    if let Some(reason) = refusal.violation() {
                        lane.close(clock::now(), CloseCode::PROTOCOL_VIOLATION, reason);
                    }
                    // What is behind it is of the same group.
                    return;
                }
            }
        }
    }

    /// Opens the packets of a run to their place, up to the first that is not authentic. Of a group
    /// that has not begun it looks at the first only: nothing is looked for, or taken, before a packet
    /// has proven to be the peer's.
    fn place(&mut self, hub: &dyn Hub, run: &Run, bytes: &[u8]) -> Result<Placed, Unplaceable> {
        let part = match target(run).map(|target| self.incoming.slot(&target)) {
            Some(Slot::Place(place, reuse)) => {
                let authentic = run.open(&mut self.protection, bytes, place, reuse);
                if let Some(target) = target(&run.first(authentic)).filter(|_| authentic > 0) {
                    self.incoming.accept(hub, &target, None);
                }
                return Ok(Placed::of(run, authentic));
            }
            Some(Slot::Outside) if run.packets() > 1 => return Err(Unplaceable::Unasked),
            Some(Slot::Repeated) => run.clone(),
            Some(Slot::New | Slot::Outside) | None => run.first(1),
        };
        let elsewhere = &mut self.elsewhere[..part.payload_len()];
        let authentic = part.open(&mut self.protection, bytes, elsewhere, Reuse::Warm);
        if authentic > 0 {
            let target = target(&part.first(authentic)).ok_or(Unplaceable::Unasked)?;
            self.incoming.begin(hub, &target)?;
            let bytes = &self.elsewhere[..target.len as usize];
            self.incoming.accept(hub, &target, Some(bytes));
        }
        Ok(Placed::of(&part, authentic))
    }

    /// Which packets of the batch have the header tag that they should; bit i for packet i.
    fn verify_clear(&mut self, batch: &Batch<'_>, bytes: &[u8]) -> u128 {
        self.headers.clear();
        self.tags.clear();
        for packet in batch.packets().map(|range| &bytes[range]) {
            // What is too short for them is no OBJECT packet.
            self.headers.push(packet.first_chunk().copied().unwrap_or_default());
            self.tags.push(packet.last_chunk().copied().unwrap_or_default());
        }
        self.protection.verify_clear(&self.headers, &self.tags)
    }

    fn extend_arrival(&mut self, lane: &mut Lane, batch: &Batch<'_>, run: &Run) {
        self.overflowed &= !batch.overflowed;
        let packets = run.packets() as u64;
        let wire_bytes = run.range.len() as u64 + packets * batch.header_bytes();
        let marked = if batch.marked { packets as u32 } else { 0 };
        if let Some(arrival) = &mut self.arrival
            && arrival.numbers.end == run.numbers.start
        {
            arrival.numbers.end = run.numbers.end;
            arrival.send_time = run.send_time;
            arrival.wire_bytes += wire_bytes;
            arrival.marked += marked;
            return;
        }
        self.flush_arrival(lane, batch.from);
        self.arrival = Some(Arrival {
            numbers: run.numbers.clone(),
            at: batch.at,
            send_time: run.send_time,
            wire_bytes,
            marked,
            overflowed: batch.overflowed,
        });
    }

    fn flush_arrival(&mut self, lane: &mut Lane, from: SocketAddr) {
        if let Some(arrival) = self.arrival.take() {
            lane.handle_objects(clock::now(), from, &arrival);
        }
    }
}

/// How far a run was opened.
struct Placed {
    /// Packets that are done with.
    looked_at: usize,
    /// Those of them that were authentic: the first.
    authentic: usize,
}

impl Placed {
    fn of(run: &Run, authentic: usize) -> Self {
        // The packet behind those, if there is one, is not the peer's.
        Self { looked_at: run.packets().min(authentic + 1), authentic }
    }
}

fn target(run: &Run) -> Option<Target> {
    Target::new(run.object, run.offset, run.payload_len() as u32)
}

/// More datagrams than a super-packet holds (64, UDP_GRO_CNT_MAX), and bits of what tells of each.
const SEGMENTS_MAX: usize = 128;

#[cfg(test)]
mod tests;
