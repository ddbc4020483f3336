//! Packets become groups.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Mutex;

use longhaul_engine::{Arrival, Lane, LaneConfig, Path};
use longhaul_sys::clock::{self, WallOffset};
use longhaul_sys::udp::{UdpSocket, Wait};
use longhaul_units::{Duration, Instant, LaneId};
use longhaul_wire::{
    CLEAR_TAG_LEN, ConnectionId, Header, Kind, OBJECT_HEADER_LEN, ObjectHeader, Protect,
};

use crate::buffer::lock;
use crate::carrier::{Hub, Incoming, Slot, Unplaceable};
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
    /// Bytes that were there already.
    repeated: Vec<u8>,
    wall: WallOffset,
    wall_due: Instant,
    overflow: u32,
    /// Authentic packets of consecutive numbers that the engine has not been told of.
    run: Option<Arrival>,
}

const BUFFER: usize = 65_536;
/// IP and UDP headers that the kernel has taken off.
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
            repeated: vec![0; BUFFER],
            wall,
            wall_due: now + WALL_INTERVAL,
            overflow: 0,
            run: None,
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
        let overflowed = got.overflow != self.overflow;
        self.overflow = got.overflow;
        Ok(Some(Batch {
            from: got.from,
            at,
            len: if got.truncated { 0 } else { got.len },
            segment: usize::from(got.segment).max(1),
            overflowed,
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
            0
        };
        for (i, packet) in bytes.chunks_mut(batch.segment).take(SEGMENTS_MAX).enumerate() {
            let Ok(header) = Header::parse(packet) else { continue };
            if header.lane != self.lane || header.connection != self.connection {
                continue;
            }
            if !lane.accepts(header.number.get()) {
                continue;
            }
            match header.kind {
                Kind::Object => {
                    if self.take_object(hub, header, packet, authentic >> i & 1 == 1) {
                        self.extend_run(lane, batch, &header, packet.len());
                    }
                }
                Kind::Control => {
                    self.flush_run(lane, batch.from);
                    self.take_control(lane, path, batch, &header, packet);
                }
            }
        }
        self.flush_run(lane, batch.from);
    }

    fn wire_bytes(batch: &Batch<'_>, len: usize) -> u64 {
        len as u64 + if batch.from.is_ipv4() { IPV4_UDP } else { IPV6_UDP }
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
            wire_bytes: Self::wire_bytes(batch, packet.len()),
            marked: u32::from(batch.marked),
            overflowed: batch.overflowed,
        };
        if let Ok(frames) = self.protection.open_control(header.number, packet) {
            lane.handle_control(clock::now(), &mut lock(path), batch.from, &arrival, frames);
        }
    }

    /// Places the payload of an OBJECT packet. `authentic`: its header verified (`clear`).
    fn take_object(
        &mut self,
        hub: &dyn Hub,
        header: Header,
        packet: &[u8],
        authentic: bool,
    ) -> bool {
        let protect = self.protection.protect();
        let clear = protect == Protect::Clear;
        if clear && !authentic {
            return false;
        }
        let tag = object_tag_len(protect);
        let Ok(header) = ObjectHeader::parse_behind(header, packet) else { return false };
        let Some(len) = packet.len().checked_sub(OBJECT_HEADER_LEN + tag) else { return false };
        let target = self.incoming.target(hub, header.object, header.offset, len as u32);
        let Ok(target) = target else { return false };
        let elsewhere = match self.incoming.slot(hub, &target) {
            Err(Unplaceable) => return false,
            Ok(Slot::Place(place)) => {
                if !open(&mut self.protection, &header, packet, place) {
                    return false;
                }
                false
            }
            Ok(Slot::Repeated) => {
                if !open(&mut self.protection, &header, packet, &mut self.repeated[..len]) {
                    return false;
                }
                true
            }
        };
        let elsewhere = elsewhere.then_some(&self.repeated[..len]);
        self.incoming.accept(hub, &target, elsewhere);
        true
    }

    /// Which packets of the batch have the header tag that they should; bit i for packet i.
    fn verify_clear(&mut self, batch: &Batch<'_>, bytes: &[u8]) -> u128 {
        let packets = || bytes.chunks(batch.segment).take(SEGMENTS_MAX);
        // A batch whose packets are of two epochs is verified for its first; the others are resent.
        let Some(first) = packets().find_map(|packet| ObjectHeader::parse(packet).ok()) else {
            return 0;
        };
        let mut headers = [[0; OBJECT_HEADER_LEN]; SEGMENTS_MAX];
        let mut tags = [[0; CLEAR_TAG_LEN]; SEGMENTS_MAX];
        let mut count = 0;
        for packet in packets() {
            if let (Some(header), Some(tag)) = (packet.first_chunk(), packet.last_chunk()) {
                headers[count] = *header;
                tags[count] = *tag;
            }
            count += 1;
        }
        self.protection.verify_clear(first.header.number, &headers[..count], &tags[..count])
    }

    fn extend_run(&mut self, lane: &mut Lane, batch: &Batch<'_>, header: &Header, len: usize) {
        let number = header.number.get();
        let bytes = Self::wire_bytes(batch, len);
        if let Some(run) = &mut self.run
            && run.numbers.end == number
        {
            run.numbers.end += 1;
            run.send_time = header.send_time;
            run.wire_bytes += bytes;
            run.marked += u32::from(batch.marked);
            return;
        }
        self.flush_run(lane, batch.from);
        self.run = Some(Arrival {
            numbers: number..number + 1,
            at: batch.at,
            send_time: header.send_time,
            wire_bytes: bytes,
            marked: u32::from(batch.marked),
            overflowed: batch.overflowed,
        });
    }

    fn flush_run(&mut self, lane: &mut Lane, from: SocketAddr) {
        if let Some(run) = self.run.take() {
            lane.handle_objects(clock::now(), from, &run);
        }
    }
}

/// Writes the payload of `packet` to `into` if it is authentic.
fn open(
    protection: &mut Protection,
    header: &ObjectHeader,
    packet: &[u8],
    into: &mut [u8],
) -> bool {
    if protection.protect() == Protect::Clear {
        into.copy_from_slice(&packet[OBJECT_HEADER_LEN..OBJECT_HEADER_LEN + into.len()]);
        return true;
    }
    protection.open_object(header.header.number, packet, into).is_ok()
}

/// More datagrams than a super-packet holds (64, UDP_GRO_CNT_MAX), and bits of what tells of each.
const SEGMENTS_MAX: usize = 128;
