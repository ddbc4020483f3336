//! Plans become packets.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use longhaul_engine::{LaneConfig, Plan, Run, Transmit, What};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_sys::memory::prefetch;
use longhaul_sys::udp::{PAYLOAD_MAX, Route, SendError, UdpSocket, Wait};
use longhaul_units::{LaneId, ObjectId, PacketNumber};
use longhaul_wire::{
    CLEAR_TAG_LEN, ConnectionId, Header, Kind, OBJECT_HEADER_LEN, ObjectHeader, Protect,
};

use crate::buffer::Buffer;
use crate::protection::{Protection, object_tag_len};

/// Packets of one batch: one ledger entry of the engine.
const BATCH_MAX: usize = 64;

pub(super) struct Sending {
    connection: ConnectionId,
    lane: LaneId,
    protection: Protection,
    /// A sealed CONTROL packet.
    control: Vec<u8>,
    /// Sealed OBJECT packets, one after the other; what is behind the last is of batches before.
    packets: Vec<u8>,
    /// Their headers and tags (`clear`).
    headers: Vec<[u8; OBJECT_HEADER_LEN]>,
    tags: Vec<[u8; CLEAR_TAG_LEN]>,
    /// Packets that the local stack refused.
    pub refused: u64,
}

type Groups = BTreeMap<(ObjectId, u64), Arc<Buffer>>;

impl Sending {
    pub fn new(config: &LaneConfig, protection: Protection) -> Self {
        Self {
            connection: config.connection,
            lane: config.lane,
            protection,
            control: Vec::new(),
            packets: Vec::with_capacity(PAYLOAD_MAX),
            headers: Vec::with_capacity(BATCH_MAX),
            tags: Vec::with_capacity(BATCH_MAX),
            refused: 0,
        }
    }

    /// Packets of `datagram` bytes that one call moves.
    pub fn packets_max(&self, datagram: u16) -> u16 {
        (PAYLOAD_MAX / usize::from(datagram.max(1))).clamp(1, BATCH_MAX) as u16
    }

    fn header(&self, kind: Kind, number: PacketNumber, send_time: u32) -> Header {
        Header { kind, lane: self.lane, connection: self.connection, number, send_time }
    }

    /// Seals and sends a batch. What cannot be sent is lost, which the engine repairs; the error
    /// tells of a datagram size that the local interface refuses.
    pub fn send(
        &mut self,
        socket: &UdpSocket,
        route: &Route,
        transmit: &Transmit,
        plan: &Plan,
        groups: &Groups,
    ) -> Result<(), Option<u16>> {
        let result = match transmit.what {
            What::Control => {
                let header = self.header(Kind::Control, transmit.first, transmit.send_time);
                self.control.clear();
                self.protection.seal_control(&header, &plan.frames, &mut self.control);
                let slices = [IoSlice::new(&self.control)];
                socket.send(route, &slices, None, Wait::UntilReady)
            }
            What::Objects { payload } => {
                let len = self.seal(transmit, payload, plan, groups);
                let segment = self.segment(payload);
                let slices = [IoSlice::new(&self.packets[..len])];
                socket.send(route, &slices, Some(segment), Wait::UntilReady)
            }
        };
        match result {
            Ok(sent) => {
                self.refused += self.unsent(transmit, sent);
                Ok(())
            }
            Err(error) => {
                // A size probe that the device does not take is answered by that, and not lost.
                if transmit.what != What::Control || !matches!(error, SendError::TooLarge) {
                    self.refused += u64::from(transmit.packets);
                }
                let size = match transmit.what {
                    What::Control => self.control.len() as u16,
                    What::Objects { payload } => self.segment(payload),
                };
                Err(matches!(error, SendError::TooLarge).then_some(size))
            }
        }
    }

    /// Packets behind the `sent` bytes of a batch that did not go as a whole.
    fn unsent(&self, transmit: &Transmit, sent: usize) -> u64 {
        match transmit.what {
            What::Control => 0,
            What::Objects { payload } => {
                let gone = sent.div_ceil(usize::from(self.segment(payload)));
                u64::from(transmit.packets).saturating_sub(gone as u64)
            }
        }
    }

    fn segment(&self, payload: u16) -> u16 {
        payload + (OBJECT_HEADER_LEN + object_tag_len(self.protection.protect())) as u16
    }

    /// The packets of the plan, with the bytes that each carries. Begins to bring those of the
    /// next packet into the cache.
    fn pieces<'g>(
        runs: &'g [Run],
        payload: u16,
        groups: &'g Groups,
    ) -> impl Iterator<Item = (ObjectId, u64, &'g [u8])> {
        let (payload, packet) = (u64::from(payload), usize::from(payload));
        runs.iter().flat_map(move |run| {
            let extent = run.extent;
            let base = extent.offset - extent.offset % GROUP_SIZE;
            let bytes = groups.get(&(extent.object, base));
            (0..u64::from(run.packets)).filter_map(move |i| {
                let offset = extent.offset + i * payload;
                let end = (offset + payload).min(extent.end());
                let rest = bytes?.get((offset - base) as usize..)?;
                if let Some(next) = rest.get(packet..2 * packet) {
                    prefetch(next);
                }
                Some((extent.object, offset, rest.get(..(end - offset) as usize)?))
            })
        })
    }

    /// Makes the packets of a batch; returns their bytes.
    fn seal(&mut self, transmit: &Transmit, payload: u16, plan: &Plan, groups: &Groups) -> usize {
        let tag = object_tag_len(self.protection.protect());
        let mut number = transmit.first;
        let mut end = 0;
        for (object, offset, bytes) in Self::pieces(&plan.runs, payload, groups) {
            let header = ObjectHeader {
                header: self.header(Kind::Object, number, transmit.send_time),
                object,
                offset,
            };
            let start = end;
            end += OBJECT_HEADER_LEN + bytes.len() + tag;
            if self.packets.len() < end {
                self.packets.resize(end, 0);
            }
            self.protection.seal_object(&header, bytes, &mut self.packets[start..end]);
            number = number.after(1);
        }
        if self.protection.protect() == Protect::Clear {
            self.tag_clear(transmit.first, payload, end);
        }
        end
    }

    /// Writes the tags of the packets in the first `len` bytes.
    fn tag_clear(&mut self, first: PacketNumber, payload: u16, len: usize) {
        let segment = usize::from(self.segment(payload));
        self.headers.clear();
        for packet in self.packets[..len].chunks(segment) {
            self.headers.extend(packet.first_chunk::<OBJECT_HEADER_LEN>());
        }
        self.tags.resize(self.headers.len(), [0; CLEAR_TAG_LEN]);
        self.protection.clear_tags(first, &self.headers, &mut self.tags);
        for (tag, packet) in self.tags.iter().zip(self.packets[..len].chunks_mut(segment)) {
            let place = packet.len() - CLEAR_TAG_LEN;
            packet[place..].copy_from_slice(tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    use longhaul_engine::Role;
    use longhaul_session::{Direction, LaneKeys, SessionSecret};
    use longhaul_sys::udp::UdpOptions;
    use longhaul_units::Extent;
    use longhaul_wire::Cipher;

    use crate::buffer::{Pool, Reuse};

    #[test]
    fn every_packet_that_the_local_stack_refuses_is_counted() {
        let config = LaneConfig::new(ConnectionId(1), LaneId(0), Role::Client, 1);
        let object = ObjectId(0);
        let extent = Extent { object, offset: 0, len: 3_000 };
        let plan = Plan { frames: vec![1], runs: vec![Run { extent, packets: 3, resent: false }] };
        let buffer = Pool::new(1, Reuse::Warm).try_take().unwrap();
        let groups: Groups = [((object, 0), Arc::new(buffer))].into();
        let socket =
            UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
        // Nobody may send there who has not asked for it.
        let everybody: SocketAddr = "255.255.255.255:9".parse().unwrap();
        let route = Route::to(everybody);
        for protect in [Protect::Aead, Protect::Clear] {
            let secret = SessionSecret::new([1; 32]);
            let keys = LaneKeys::new(&secret, Direction::ClientToServer, LaneId(0));
            let mut sending =
                Sending::new(&config, Protection::new(keys, Cipher::Aes128Gcm, protect));
            let batch = |what, packets| Transmit {
                to: everybody,
                first: PacketNumber::new(0),
                packets,
                send_time: 0,
                what,
            };
            let objects = batch(What::Objects { payload: 1_000 }, 3);
            assert_eq!(sending.send(&socket, &route, &objects, &plan, &groups), Err(None));
            assert_eq!(sending.refused, 3);
            let control = batch(What::Control, 1);
            assert_eq!(sending.send(&socket, &route, &control, &plan, &groups), Err(None));
            assert_eq!(sending.refused, 4);
            let segment = usize::from(sending.segment(1_000));
            assert_eq!(sending.unsent(&objects, segment * 2), 1);
            assert_eq!(sending.unsent(&objects, segment * 2 + 500), 0);
        }
    }
}
