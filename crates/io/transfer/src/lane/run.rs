//! Packets that were sent side by side, and arrive so: they are placed as one.

use std::ops::Range;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_sys::memory::{copy_past_caches, prefetch};
use longhaul_units::{ObjectId, PacketNumber};
use longhaul_wire::{OBJECT_HEADER_LEN, Protect};

use crate::buffer::Reuse;
use crate::protection::Protection;

/// OBJECT packets of consecutive numbers, side by side in a batch, whose payloads are side by side in
/// a group.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Where they are in the batch.
    pub range: Range<usize>,
    /// Bytes of each but the last, which may be shorter.
    pub packet: usize,
    /// Bytes of a packet besides its payload.
    pub overhead: usize,
    pub numbers: Range<u64>,
    pub send_time: u32,
    pub object: ObjectId,
    /// Of the payloads, in the object.
    pub offset: u64,
}

impl Run {
    pub fn packets(&self) -> usize {
        (self.numbers.end - self.numbers.start) as usize
    }

    /// Bytes of all payloads.
    pub fn payload_len(&self) -> usize {
        self.range.len() - self.packets() * self.overhead
    }

    /// Takes `next` in if it goes on where this ends.
    pub fn takes_in(&mut self, next: &Self) -> bool {
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
    pub fn first(&self, packets: usize) -> Self {
        let mut first = self.clone();
        if packets < self.packets() {
            first.range.end = first.range.start + packets * self.packet;
            first.numbers.end = first.numbers.start + packets as u64;
        }
        first
    }

    /// Those behind the first `packets`.
    pub fn behind(mut self, packets: usize) -> Self {
        let first = self.first(packets);
        self.range.start = first.range.end;
        self.numbers.start = first.numbers.end;
        self.offset += first.payload_len() as u64;
        self
    }

    /// Opens the packets, which are in `bytes`, to `into`, which has the payloads' length; returns how
    /// many were authentic before one was not. In `clear` their headers are known to be.
    pub fn open(
        &self,
        protection: &mut Protection,
        bytes: &[u8],
        into: &mut [u8],
        reuse: Reuse,
    ) -> usize {
        let packets = bytes[self.range.clone()].chunks(self.packet);
        let clear = protection.protect() == Protect::Clear;
        if clear && reuse == Reuse::Cold {
            copy_past_caches(packets.map(|packet| self.payload(packet)), into);
            return self.packets();
        }
        let mut rest = into;
        for (placed, packet) in packets.enumerate() {
            let (place, behind) = rest.split_at_mut(packet.len() - self.overhead);
            prefetch(&behind[..place.len().min(behind.len())]);
            if clear {
                place.copy_from_slice(self.payload(packet));
            } else {
                let number = PacketNumber::new(self.numbers.start + placed as u64);
                if protection.open_object(number, packet, place).is_err() {
                    return placed;
                }
            }
            rest = behind;
        }
        self.packets()
    }

    fn payload<'p>(&self, packet: &'p [u8]) -> &'p [u8] {
        &packet[OBJECT_HEADER_LEN..][..packet.len() - self.overhead]
    }
}
