//! Sealing and opening packets (docs/protocol.md 4.2, 4.3).

use std::mem::take;

use aws_lc_rs::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use longhaul_connection::{DATAGRAMS_MAX, Forged, Opener, Run, Sealer};
use longhaul_session::{EpochKeys, LaneKeys};
use longhaul_sys::memory::prefetch;
use longhaul_sys::siphash::HeaderMac;
use longhaul_units::PacketNumber;
use longhaul_wire::{
    AEAD_TAG_LEN, CLEAR_TAG_LEN, Cipher, HEADER_LEN, Header, OBJECT_HEADER_LEN, ObjectHeader,
    Protect,
};

/// The keys that one direction of a lane seals or opens with.
#[derive(Debug)]
pub struct Protection {
    keys: LaneKeys,
    cipher: Cipher,
    protect: Protect,
    /// Epochs in use, at most three (docs/protocol.md 4.2).
    epochs: Vec<(u16, Epoch)>,
    /// Headers and tags of a batch (`clear`).
    headers: Vec<[u8; OBJECT_HEADER_LEN]>,
    tags: Vec<[u8; CLEAR_TAG_LEN]>,
}

/// The keys of one epoch, made ready.
#[derive(Debug)]
pub struct Epoch {
    /// Seals and opens payload.
    pub aead: LessSafeKey,
    /// Masks headers.
    pub mac: HeaderMac,
}

impl Epoch {
    /// From the keys of an epoch; `None` where the library refuses them.
    pub fn new(keys: &EpochKeys, cipher: Cipher) -> Option<Self> {
        let algorithm = match cipher {
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            _ => &AES_128_GCM,
        };
        // The key schedule gives keys of the cipher's length.
        let key = UnboundKey::new(algorithm, keys.packet_key(cipher)).ok()?;
        Some(Self { aead: LessSafeKey::new(key), mac: HeaderMac::new(*keys.header_key()) })
    }
}

/// Bytes of the tag of OBJECT packets under `protect`.
pub fn object_tag_len(protect: Protect) -> usize {
    if protect == Protect::Clear { CLEAR_TAG_LEN } else { AEAD_TAG_LEN }
}

impl Protection {
    /// Protection by `keys`.
    pub fn new(keys: LaneKeys, cipher: Cipher, protect: Protect) -> Self {
        Self { keys, cipher, protect, epochs: Vec::new(), headers: Vec::new(), tags: Vec::new() }
    }

    /// Key and nonce for a packet; `None` when its epoch is not at hand.
    fn epoch(&mut self, number: PacketNumber) -> Option<(&Epoch, Nonce)> {
        let wanted = number.epoch();
        let keys = self.keys.epoch(wanted)?;
        let nonce = Nonce::assume_unique_for_key(keys.nonce(number));
        let known = self.epochs.iter().position(|(epoch, _)| *epoch == wanted);
        let i = match known {
            Some(i) => i,
            None => {
                let made = Epoch::new(keys, self.cipher)?;
                let current = self.keys.current();
                self.epochs.retain(|(epoch, _)| epoch.abs_diff(current) <= 1);
                self.epochs.push((wanted, made));
                self.epochs.len() - 1
            }
        };
        Some((&self.epochs[i].1, nonce))
    }

    /// Opens an OBJECT packet (`aead`, `integrity`) and writes its payload to `into`, which has
    /// the payload's length. After an error `into` holds nothing of use.
    fn open_object(
        &mut self,
        number: PacketNumber,
        packet: &[u8],
        into: &mut [u8],
    ) -> Result<(), Forged> {
        let (head, rest) = packet.split_at_checked(OBJECT_HEADER_LEN).ok_or(Forged)?;
        let (body, tag) = rest.split_at_checked(into.len()).ok_or(Forged)?;
        let protect = self.protect;
        let (epoch, nonce) = self.epoch(number).ok_or(Forged)?;
        if protect == Protect::Aead {
            let aad = Aad::from(head);
            epoch.aead.open_separate_gather(nonce, aad, body, tag, into).map_err(|_| Forged)?;
        } else {
            let signed = Aad::from(&packet[..OBJECT_HEADER_LEN + body.len()]);
            let nothing: &mut [u8] = &mut [];
            epoch
                .aead
                .open_separate_gather(nonce, signed, &[], tag, nothing)
                .map_err(|_| Forged)?;
            into.copy_from_slice(body);
        }
        self.keys.advance_to(number.epoch());
        Ok(())
    }

    /// Verifies header tags of `clear`, each with the key of the epoch that its header names; bit i
    /// of the result: header i is authentic. At most 128.
    fn verify_clear(
        &mut self,
        headers: &[[u8; OBJECT_HEADER_LEN]],
        tags: &[[u8; CLEAR_TAG_LEN]],
    ) -> u128 {
        let (mut good, mut seen) = (0, 0);
        let current = self.keys.current();
        // Those that can be accepted, mostly the first of them only.
        for epoch in [Some(current), current.checked_add(1), current.checked_sub(1)] {
            let Some(epoch) = epoch else { continue };
            let named = naming(epoch, headers);
            let number = PacketNumber::new(u64::from(epoch) << EPOCH_SHIFT);
            if named != 0
                && let Some((keys, _)) = self.epoch(number)
            {
                let authentic = keys.mac.verify(headers, tags) & named;
                if authentic != 0 {
                    self.keys.advance_to(epoch);
                }
                good |= authentic;
            }
            seen += named.count_ones() as usize;
            if seen == headers.len() {
                break;
            }
        }
        good
    }
}

impl Opener for Protection {
    fn object_tag(&self) -> usize {
        object_tag_len(self.protect)
    }

    fn look_over(&mut self, bytes: &[u8], segment: usize) -> u128 {
        if self.protect != Protect::Clear {
            return u128::MAX;
        }
        let (mut headers, mut tags) = (take(&mut self.headers), take(&mut self.tags));
        headers.clear();
        tags.clear();
        for packet in bytes.chunks(segment).take(DATAGRAMS_MAX) {
            // A packet that is too short for them is no OBJECT packet.
            headers.push(packet.first_chunk().copied().unwrap_or_default());
            tags.push(packet.last_chunk().copied().unwrap_or_default());
        }
        let good = self.verify_clear(&headers, &tags);
        (self.headers, self.tags) = (headers, tags);
        good
    }

    fn open_control<'p>(
        &mut self,
        number: PacketNumber,
        packet: &'p mut [u8],
    ) -> Result<&'p [u8], Forged> {
        let (head, body) = packet.split_at_mut_checked(HEADER_LEN).ok_or(Forged)?;
        let (epoch, nonce) = self.epoch(number).ok_or(Forged)?;
        let opened = epoch.aead.open_in_place(nonce, Aad::from(head), body).map_err(|_| Forged)?;
        self.keys.advance_to(number.epoch());
        Ok(opened)
    }

    fn open_run(&mut self, run: &Run, bytes: &[u8], into: &mut [u8]) -> usize {
        let clear = self.protect == Protect::Clear;
        run.open_each(bytes, into, |number, packet, place, behind| {
            prefetch(&behind[..place.len().min(behind.len())]);
            if clear {
                place.copy_from_slice(run.payload(packet));
                return Ok(());
            }
            self.open_object(number, packet, place)
        })
    }
}

impl Sealer for Protection {
    fn object_tag(&self) -> usize {
        object_tag_len(self.protect)
    }

    fn seal_control(&mut self, header: &Header, frames: &[u8], out: &mut Vec<u8>) {
        self.keys.advance_to(header.number.epoch());
        let start = out.len();
        let mut head = [0; HEADER_LEN];
        header.emit(&mut head);
        out.extend_from_slice(&head);
        out.extend_from_slice(frames);
        let Some((epoch, nonce)) = self.epoch(header.number) else { return out.truncate(start) };
        let body = &mut out[start + HEADER_LEN..];
        if let Ok(tag) = epoch.aead.seal_in_place_separate_tag(nonce, Aad::from(head), body) {
            out.extend_from_slice(tag.as_ref());
        }
    }

    /// In `clear` the tag is left to [`Self::finish`].
    fn seal_object(&mut self, header: &ObjectHeader, payload: &[u8], next: &[u8], out: &mut [u8]) {
        prefetch(next);
        let number = header.header.number;
        self.keys.advance_to(number.epoch());
        let protect = self.protect;
        let Some((head, rest)) = out.split_first_chunk_mut::<OBJECT_HEADER_LEN>() else { return };
        header.emit(head);
        let (body, tag) = rest.split_at_mut(payload.len());
        if protect == Protect::Clear {
            return body.copy_from_slice(payload);
        }
        let Some((epoch, nonce)) = self.epoch(number) else { return };
        if protect == Protect::Aead {
            // Out of place: the cipher is the copy. It fails only for wrong lengths.
            let aad = Aad::from(&*head);
            let _ = epoch.aead.seal_out_of_place_scatter(nonce, aad, payload, body, &[], tag);
            return;
        }
        body.copy_from_slice(payload);
        let signed = &out[..OBJECT_HEADER_LEN + payload.len()];
        let Some((epoch, nonce)) = self.epoch(number) else { return };
        let made = epoch.aead.seal_in_place_separate_tag(nonce, Aad::from(signed), &mut []);
        if let Ok(made) = made {
            out[OBJECT_HEADER_LEN + payload.len()..].copy_from_slice(made.as_ref());
        }
    }

    fn finish(&mut self, first: PacketNumber, packets: &mut [u8], segment: usize) {
        if self.protect != Protect::Clear {
            return;
        }
        self.keys.advance_to(first.epoch());
        let (mut headers, mut tags) = (take(&mut self.headers), take(&mut self.tags));
        headers.clear();
        headers.extend(packets.chunks(segment).filter_map(|packet| packet.first_chunk().copied()));
        tags.resize(headers.len(), [0; CLEAR_TAG_LEN]);
        if let Some((epoch, _)) = self.epoch(first) {
            epoch.mac.tags(&headers, &mut tags);
        }
        for (tag, packet) in tags.iter().zip(packets.chunks_mut(segment)) {
            let place = packet.len() - CLEAR_TAG_LEN;
            packet[place..].copy_from_slice(tag);
        }
        (self.headers, self.tags) = (headers, tags);
    }
}

/// Which headers name this epoch (docs/protocol.md 4.1).
fn naming(epoch: u16, headers: &[[u8; OBJECT_HEADER_LEN]]) -> u128 {
    let bits = headers.iter().enumerate().map(|(i, header)| {
        let named = u16::from_be_bytes([header[8], header[9]]);
        u128::from(named == epoch) << i
    });
    bits.fold(0, |bits, bit| bits | bit)
}

/// Of the epoch in a packet number (docs/protocol.md 4.1).
const EPOCH_SHIFT: u32 = 48;
