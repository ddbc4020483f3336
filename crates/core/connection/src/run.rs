//! Packets that were sent side by side, and arrive so: they are placed as one.

use core::ops::Range;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::{ObjectId, PacketNumber};
use longhaul_wire::{Header, OBJECT_HEADER_LEN, ObjectHeader};

use crate::incoming::GroupPart;

/// OBJECT packets of consecutive numbers, side by side in a batch, whose payloads are side by side in
/// a group.
#[derive(Clone, Debug)]
pub struct Run {
    /// Where they are in the batch.
    pub(crate) range: Range<usize>,
    /// Bytes of each but the last, which may be shorter.
    packet: usize,
    /// Bytes of a packet besides its payload.
    overhead: usize,
    pub(crate) numbers: Range<u64>,
    pub(crate) send_time: u32,
    object: ObjectId,
    /// Of the payloads, in the object.
    offset: u64,
}

impl Run {
    /// The packet with `header`, which lies at `range` of the batch; `None` if it carries nothing.
    pub(crate) fn of_one(
        header: Header,
        packet: &[u8],
        range: Range<usize>,
        tag: usize,
    ) -> Option<Self> {
        let ObjectHeader { header, object, offset } =
            ObjectHeader::parse_behind(header, packet).ok()?;
        let overhead = OBJECT_HEADER_LEN + tag;
        let number = header.number.get();
        (packet.len() > overhead).then_some(Self {
            range,
            packet: packet.len(),
            overhead,
            numbers: number..number + 1,
            send_time: header.send_time,
            object,
            offset,
        })
    }

    /// Number of packets.
    pub fn count(&self) -> usize {
        (self.numbers.end - self.numbers.start) as usize
    }

    /// Bytes of all payloads.
    pub fn payload_len(&self) -> usize {
        self.range.len() - self.count() * self.overhead
    }

    /// The packets, which are in `bytes`, and their numbers.
    pub fn packets<'p>(
        &self,
        bytes: &'p [u8],
    ) -> impl Iterator<Item = (PacketNumber, &'p [u8])> + Clone + use<'p> {
        let numbers = self.numbers.clone().map(PacketNumber::new);
        numbers.zip(bytes[self.range.clone()].chunks(self.packet))
    }

    /// Bytes between the header and the tag of one of its packets.
    pub fn payload<'p>(&self, packet: &'p [u8]) -> &'p [u8] {
        &packet[OBJECT_HEADER_LEN..][..packet.len() - self.overhead]
    }

    /// Opens the packets, which are in `bytes`, one after the other to `into`, which has the payloads'
    /// length: `open` is given the number, the packet, the place of its payload and what is behind that.
    /// Returns how many were opened before one was not authentic.
    pub fn open_each(
        &self,
        bytes: &[u8],
        into: &mut [u8],
        mut open: impl FnMut(PacketNumber, &[u8], &mut [u8], &[u8]) -> Result<(), Forged>,
    ) -> usize {
        let mut rest = into;
        for (opened, (number, packet)) in self.packets(bytes).enumerate() {
            let (place, behind) = rest.split_at_mut(packet.len() - self.overhead);
            if open(number, packet, place, behind).is_err() {
                return opened;
            }
            rest = behind;
        }
        self.count()
    }

    /// Where the payloads go; `None` where there can be no group.
    pub(crate) fn target(&self) -> Option<GroupPart> {
        GroupPart::new(self.object, self.offset, self.payload_len() as u32)
    }

    /// Takes `next` in if it goes on where this ends.
    pub(crate) fn takes_in(&mut self, next: &Self) -> bool {
        let fits = self.object == next.object
            && self.offset + self.payload_len() as u64 == next.offset
            && !next.offset.is_multiple_of(GROUP_SIZE)
            && self.numbers.end == next.numbers.start
            && self.range.end == next.range.start
            && self.send_time == next.send_time;
        if fits {
            self.range.end = next.range.end;
            self.numbers.end = next.numbers.end;
        }
        fits
    }

    /// The first `packets` of them.
    pub(crate) fn first(&self, packets: usize) -> Self {
        let mut first = self.clone();
        if packets < self.count() {
            first.range.end = first.range.start + packets * self.packet;
            first.numbers.end = first.numbers.start + packets as u64;
        }
        first
    }

    /// Those behind the first `packets`.
    pub(crate) fn behind(mut self, packets: usize) -> Self {
        let first = self.first(packets);
        self.range.start = first.range.end;
        self.numbers.start = first.numbers.end;
        self.offset += first.payload_len() as u64;
        self
    }
}

/// A packet that did not authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;
