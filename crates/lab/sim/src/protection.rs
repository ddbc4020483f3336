//! Protection under the real key schedule, with a cheap tag in place of a cipher. Nothing is secret
//! here; what matters is that nobody without the key makes a tag that verifies.

use longhaul_connection::{DATAGRAMS_MAX, Forged, Opener, Run, Sealer};
use longhaul_session::LaneKeys;
use longhaul_units::PacketNumber;
use longhaul_wire::{
    AEAD_TAG_LEN, CLEAR_TAG_LEN, HEADER_LEN, Header, OBJECT_HEADER_LEN, ObjectHeader, Protect,
};

/// Seals or opens the packets of a lane in one direction.
#[derive(Debug)]
pub(crate) struct Protection {
    keys: LaneKeys,
    protect: Protect,
    /// Numbers of the packets that were found authentic since somebody looked.
    pub opened: Vec<u64>,
}

impl Protection {
    pub fn new(keys: LaneKeys, protect: Protect) -> Self {
        Self { keys, protect, opened: Vec::new() }
    }

    /// The tag of `parts`; `None` where there is no key for the epoch of `number`.
    fn tag(&self, number: PacketNumber, parts: [&[u8]; 2]) -> Option<[u8; AEAD_TAG_LEN]> {
        let key = u128::from_le_bytes(*self.keys.epoch(number.epoch())?.header_key());
        Some(tag(key, parts).to_le_bytes())
    }

    /// Part of an OBJECT packet that is tagged besides its header.
    fn tagged<'p>(&self, payload: &'p [u8]) -> &'p [u8] {
        if self.protect == Protect::Clear { &[] } else { payload }
    }

    fn is_authentic(&self, number: PacketNumber, packet: &[u8]) -> bool {
        let tag = Opener::object_tag(self);
        let Some((head, rest)) = packet.split_at_checked(OBJECT_HEADER_LEN) else { return false };
        let Some((payload, found)) = rest.split_at_checked(rest.len().saturating_sub(tag)) else {
            return false;
        };
        let made = self.tag(number, [head, self.tagged(payload)]);
        made.is_some_and(|made| made[..tag] == *found)
    }

    fn note(&mut self, number: PacketNumber) {
        self.keys.advance_to(number.epoch());
        self.opened.push(number.get());
    }
}

impl Opener for Protection {
    fn object_tag(&self) -> usize {
        if self.protect == Protect::Clear { CLEAR_TAG_LEN } else { AEAD_TAG_LEN }
    }

    fn look_over(&mut self, bytes: &[u8], segment: usize) -> u128 {
        if self.protect != Protect::Clear {
            return u128::MAX;
        }
        let packets = bytes.chunks(segment).take(DATAGRAMS_MAX).enumerate();
        packets.fold(0, |good, (i, packet)| {
            let number = Header::parse(packet).map(|header| header.number);
            let authentic = number.is_ok_and(|number| self.is_authentic(number, packet));
            good | u128::from(authentic) << i
        })
    }

    fn open_control<'p>(
        &mut self,
        number: PacketNumber,
        packet: &'p mut [u8],
    ) -> Result<&'p [u8], Forged> {
        let (head, rest) = packet.split_at_checked(HEADER_LEN).ok_or(Forged)?;
        let frames = rest.len().checked_sub(AEAD_TAG_LEN).ok_or(Forged)?;
        let (frames, found) = rest.split_at(frames);
        if self.tag(number, [head, frames]).ok_or(Forged)? != *found {
            return Err(Forged);
        }
        self.note(number);
        Ok(frames)
    }

    fn open_run(&mut self, run: &Run, bytes: &[u8], into: &mut [u8]) -> usize {
        run.open_each(bytes, into, |number, packet, place, _| {
            // As ciphers do, which write before they know.
            place.copy_from_slice(run.payload(packet));
            if self.protect != Protect::Clear && !self.is_authentic(number, packet) {
                return Err(Forged);
            }
            self.note(number);
            Ok(())
        })
    }
}

impl Sealer for Protection {
    fn object_tag(&self) -> usize {
        Opener::object_tag(self)
    }

    fn seal_control(&mut self, header: &Header, frames: &[u8], out: &mut Vec<u8>) {
        self.keys.advance_to(header.number.epoch());
        let mut head = [0; HEADER_LEN];
        header.emit(&mut head);
        out.extend_from_slice(&head);
        out.extend_from_slice(frames);
        out.extend(self.tag(header.number, [&head, frames]).into_iter().flatten());
    }

    fn seal_object(&mut self, header: &ObjectHeader, payload: &[u8], _: &[u8], out: &mut [u8]) {
        let number = header.header.number;
        self.keys.advance_to(number.epoch());
        let mut head = [0; OBJECT_HEADER_LEN];
        header.emit(&mut head);
        let (place, rest) = out.split_at_mut(OBJECT_HEADER_LEN);
        place.copy_from_slice(&head);
        let (body, place) = rest.split_at_mut(payload.len());
        body.copy_from_slice(payload);
        if let Some(tag) = self.tag(number, [&head, self.tagged(payload)]) {
            place.copy_from_slice(&tag[..place.len()]);
        }
    }

    fn finish(&mut self, _: PacketNumber, _: &mut [u8], _: usize) {}
}

/// Four sums side by side, so that a packet costs some tens of nanoseconds.
pub(crate) fn tag(key: u128, parts: [&[u8]; 2]) -> u128 {
    let (low, high) = (key as u64, (key >> 64) as u64);
    let mut sums = [low, high, low ^ PRIME, high ^ PRIME.rotate_left(32)];
    for part in parts {
        let mut words = part.chunks_exact(8 * sums.len());
        for four in &mut words {
            for (sum, word) in sums.iter_mut().zip(four.as_chunks::<8>().0) {
                *sum = (*sum ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME).rotate_left(29);
            }
        }
        for (byte, at) in words.remainder().iter().zip(0..) {
            let sum: &mut u64 = &mut sums[at % 4];
            *sum = (*sum ^ u64::from(*byte)).wrapping_mul(PRIME).rotate_left(29);
        }
        sums[0] ^= part.len() as u64;
    }
    let mix = |a: u64, b: u64| {
        let mixed = (a ^ b.rotate_left(31)).wrapping_mul(PRIME);
        (mixed ^ mixed >> 32).wrapping_mul(PRIME)
    };
    let left = mix(mix(sums[0], sums[1]), mix(sums[2], sums[3]));
    let right = mix(mix(sums[2], sums[0]), mix(sums[3], sums[1]));
    u128::from(left ^ left >> 29) << 64 | u128::from(right ^ right >> 29)
}

/// Odd, with bits spread evenly (of xxHash).
const PRIME: u64 = 0x9e37_79b1_85eb_ca87;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_key_and_bytes_changes_the_tag() {
        for len in [0, 1, 31, 32, 33, 1400] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let head = [3; 20];
            let made = tag(5, [&head, &bytes]);
            for bit in 0..128 {
                assert_ne!(made, tag(5 ^ 1 << bit, [&head, &bytes]));
            }
            for bit in 0..8 * len {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let changed = tag(5, [&head, &other]);
                // Both ends of it: `clear` uses half of it.
                assert!(made as u64 != changed as u64 && (made >> 64) != (changed >> 64));
            }
        }
    }
}
