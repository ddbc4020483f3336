//! Plans become packets.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Deref;

use longhaul_engine::{Plan, Run, Transmit, What};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::{LaneId, ObjectId, PacketNumber};
use longhaul_wire::{ConnectionId, Header, Kind, OBJECT_HEADER_LEN, ObjectHeader};

use crate::protect::Sealer;

/// Datagrams to be sent now, at once or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams<'d> {
    /// Where to.
    pub to: SocketAddr,
    /// One after the other.
    pub bytes: &'d [u8],
    /// Bytes of each but the last, which may be shorter; `None`: there is one.
    pub segment: Option<u16>,
}

#[derive(Debug)]
pub(crate) struct Sending {
    connection: ConnectionId,
    lane: LaneId,
    pub plan: Plan,
    /// Sealed packets, one after the other; what is behind the last is of batches before.
    packets: Vec<u8>,
    /// Bytes of those of the batch.
    len: usize,
    /// And of each but the last.
    segment: usize,
}

pub(crate) type Outgoing<O> = BTreeMap<(ObjectId, u64), O>;

impl Sending {
    pub fn new(connection: ConnectionId, lane: LaneId) -> Self {
        Self { connection, lane, plan: Plan::default(), packets: Vec::new(), len: 0, segment: 0 }
    }

    /// Makes the packets of the batch that was planned.
    pub fn seal<O: Deref<Target: AsRef<[u8]>>, S: Sealer>(
        &mut self,
        transmit: &Transmit,
        outgoing: &Outgoing<O>,
        sealer: &mut S,
    ) -> Datagrams<'_> {
        match transmit.what {
            What::Control => self.seal_control(transmit, sealer),
            What::Objects { payload } => self.seal_objects(transmit, payload, outgoing, sealer),
        }
        let segment = matches!(transmit.what, What::Objects { .. }).then_some(self.segment as u16);
        Datagrams { to: transmit.to, bytes: &self.packets[..self.len], segment }
    }

    /// Bytes of a datagram of the batch that was sealed last.
    pub fn segment(&self) -> u16 {
        self.segment as u16
    }

    /// Number of that batch's datagrams in its first `sent` bytes.
    pub fn datagrams_in(&self, sent: usize) -> u16 {
        u16::try_from(sent.div_ceil(self.segment.max(1))).unwrap_or(u16::MAX)
    }

    fn header(&self, kind: Kind, number: PacketNumber, send_time: u32) -> Header {
        Header { kind, lane: self.lane, connection: self.connection, number, send_time }
    }

    fn seal_control<S: Sealer>(&mut self, transmit: &Transmit, sealer: &mut S) {
        let header = self.header(Kind::Control, transmit.first, transmit.send_time);
        self.packets.clear();
        sealer.seal_control(&header, &self.plan.frames, &mut self.packets);
        self.len = self.packets.len();
        self.segment = self.len;
    }

    fn seal_objects<O: Deref<Target: AsRef<[u8]>>, S: Sealer>(
        &mut self,
        transmit: &Transmit,
        payload: u16,
        outgoing: &Outgoing<O>,
        sealer: &mut S,
    ) {
        let tag = sealer.object_tag();
        self.segment = OBJECT_HEADER_LEN + usize::from(payload) + tag;
        let mut number = transmit.first;
        let mut end = 0;
        for piece in pieces(&self.plan.runs, payload, outgoing) {
            let header = ObjectHeader {
                header: self.header(Kind::Object, number, transmit.send_time),
                object: piece.object,
                offset: piece.offset,
            };
            let start = end;
            end += OBJECT_HEADER_LEN + piece.bytes.len() + tag;
            if self.packets.len() < end {
                self.packets.resize(end, 0);
            }
            sealer.seal_object(&header, piece.bytes, piece.next, &mut self.packets[start..end]);
            number = number.after(1);
        }
        self.len = end;
        sealer.finish(transmit.first, &mut self.packets[..end], self.segment);
    }
}

/// The contents of a packet.
struct Piece<'o> {
    object: ObjectId,
    offset: u64,
    bytes: &'o [u8],
    /// The contents of the next packet, if it is of the same group and as long.
    next: &'o [u8],
}

/// The payloads of the packets of a plan.
fn pieces<'o, O: Deref<Target: AsRef<[u8]>>>(
    runs: &'o [Run],
    payload: u16,
    outgoing: &'o Outgoing<O>,
) -> impl Iterator<Item = Piece<'o>> {
    let (payload, packet) = (u64::from(payload), usize::from(payload));
    runs.iter().flat_map(move |run| {
        let extent = run.extent;
        let base = extent.offset - extent.offset % GROUP_SIZE;
        let group = outgoing.get(&(extent.object, base)).map(|group| group.as_ref());
        (0..u64::from(run.packets)).filter_map(move |i| {
            let offset = extent.offset + i * payload;
            let end = (offset + payload).min(extent.end());
            let rest = group?.get((offset - base) as usize..)?;
            let bytes = rest.get(..(end - offset) as usize)?;
            let next = rest.get(packet..2 * packet).unwrap_or_default();
            Some(Piece { object: extent.object, offset, bytes, next })
        })
    })
}
