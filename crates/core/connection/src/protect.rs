//! Traits by which a lane opens and seals packets, for the owner of its keys (docs/protocol.md 4.2, 4.3).

use crate::run::Forged;
use longhaul_units::PacketNumber;
use longhaul_wire::{Header, ObjectHeader};

use crate::run::Run;

/// Opens the packets of a lane in one direction. It keeps the epochs of its keys; an epoch becomes
/// the current one only by a packet that authenticated.
pub trait Opener {
    /// Bytes of the tag of OBJECT packets.
    fn object_tag(&self) -> usize;

    /// Looks at all packets of a batch at once, `segment` bytes each but the last. Bit i of the result
    /// is 0 if packet i, where it is an OBJECT packet, is known to be forged. Behind
    /// [`DATAGRAMS_MAX`](crate::receive::DATAGRAMS_MAX) packets nothing is looked at.
    fn look_over(&mut self, bytes: &[u8], segment: usize) -> u128;

    /// Opens a CONTROL packet in place; returns its frames.
    ///
    /// # Errors
    /// It is not the peer's.
    fn open_control<'p>(
        &mut self,
        number: PacketNumber,
        packet: &'p mut [u8],
    ) -> Result<&'p [u8], Forged>;

    /// Opens the packets of `run`, which are in `bytes` and were looked over, to `into`, which has the
    /// payloads' length; returns how many were authentic before one was not.
    fn open_run(&mut self, run: &Run, bytes: &[u8], into: &mut [u8]) -> usize;
}

/// Seals the packets of a lane in one direction.
pub trait Sealer {
    /// Bytes of the tag of OBJECT packets.
    fn object_tag(&self) -> usize;

    /// Appends a sealed CONTROL packet to `out`.
    fn seal_control(&mut self, header: &Header, frames: &[u8], out: &mut alloc::vec::Vec<u8>);

    /// Seals an OBJECT packet into `out`, which holds exactly header, payload and tag. `next` is the
    /// payload of the packet behind it, if there is one: it may be brought into the cache.
    fn seal_object(&mut self, header: &ObjectHeader, payload: &[u8], next: &[u8], out: &mut [u8]);

    /// All packets of a batch were sealed: those in `packets`, `segment` bytes each but the last, the
    /// first with the number `first`. A sealer that tags headers of many packets at once does it now.
    fn finish(&mut self, first: PacketNumber, packets: &mut [u8], segment: usize);
}
