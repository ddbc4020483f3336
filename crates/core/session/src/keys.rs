use core::fmt;

use longhaul_units::{LaneId, PacketNumber};
use longhaul_wire::{Cipher, MAX_EPOCH_PACKETS, MAX_EPOCHS};
use zeroize::Zeroizing;

use crate::secret::SessionSecret;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client sends.
    ClientToServer = 0,
    /// The server sends.
    ServerToClient = 1,
}

/// The keys of one lane and direction (docs/protocol.md section 4.2).
///
/// Keys of the current epoch, the one before and the one after are at hand; older ones are
/// erased and cannot be derived again.
pub struct LaneKeys {
    epoch: u16,
    previous: Option<EpochKeys>,
    current: EpochKeys,
    next: Option<EpochKeys>,
    /// Lane secret of the next epoch.
    next_secret: Zeroizing<[u8; 32]>,
}

impl LaneKeys {
    /// The keys at epoch 0.
    pub fn new(secret: &SessionSecret, direction: Direction, lane: LaneId) -> Self {
        Self::under("longhaul/1 lane secret", secret, direction, lane)
    }

    /// Those whose first secret is derived under `context`.
    fn under(context: &str, secret: &SessionSecret, direction: Direction, lane: LaneId) -> Self {
        let mut material = Zeroizing::new([0; 35]);
        material[..32].copy_from_slice(secret.bytes());
        material[32] = direction as u8;
        material[33..].copy_from_slice(&lane.0.to_be_bytes());
        let lane_secret = derive(context, &*material);
        let next_secret = following(&lane_secret);
        Self {
            epoch: 0,
            previous: None,
            current: EpochKeys::new(&lane_secret),
            next: Some(EpochKeys::new(&next_secret)),
            next_secret,
        }
    }

    /// The current epoch: the one to send in, or that of the highest authentic packet number.
    pub const fn current(&self) -> u16 {
        self.epoch
    }

    /// The keys of `epoch`, if it is the current one, the one before or the one after.
    #[inline]
    pub fn epoch(&self, epoch: u16) -> Option<&EpochKeys> {
        if epoch == self.epoch {
            Some(&self.current)
        } else if epoch == self.epoch.wrapping_add(1) {
            self.next.as_ref()
        } else if epoch == self.epoch.wrapping_sub(1) {
            self.previous.as_ref()
        } else {
            None
        }
    }

    /// Makes `epoch` the current one if it is the next one: before sending in it, or after a
    /// packet of it authenticated. Otherwise nothing changes.
    ///
    /// Behind the last epoch there is none, so a sender that used it up has to end the
    /// connection (after 2^44 packets).
    pub fn advance_to(&mut self, epoch: u16) {
        if epoch != self.epoch.wrapping_add(1) {
            return;
        }
        let Some(next) = self.next.take() else {
            return;
        };
        self.previous = Some(core::mem::replace(&mut self.current, next));
        self.epoch = epoch;
        if epoch + 1 < MAX_EPOCHS {
            self.next_secret = following(&self.next_secret);
            self.next = Some(EpochKeys::new(&self.next_secret));
        }
    }
}

impl fmt::Debug for LaneKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneKeys(epoch {})", self.epoch)
    }
}

/// The keys of the records of one direction of a TCP connection under `clear`, and how many there
/// were (docs/protocol.md sections 4.2 and 8).
///
/// Both ends count alike, so the number of a record is never sent: one that was left out, repeated
/// or put elsewhere meets the keys and the number of another.
pub struct RecordKeys {
    keys: LaneKeys,
    next: PacketNumber,
}

impl RecordKeys {
    /// The keys of the first record.
    pub fn new(secret: &SessionSecret, direction: Direction, lane: LaneId) -> Self {
        let keys = LaneKeys::under("longhaul/1 record secret", secret, direction, lane);
        Self { keys, next: PacketNumber::new(0) }
    }

    /// The number of the next record and the keys of its epoch; from then on that of the one
    /// behind it. `None` behind the last of the last epoch.
    pub fn next_record(&mut self) -> Option<(PacketNumber, &EpochKeys)> {
        let number = self.next;
        let (epoch, behind) = (number.epoch(), number.after(1));
        let start = u64::from(epoch) << PacketNumber::SEQUENCE_BITS;
        self.next = if behind.get() - start < MAX_EPOCH_PACKETS {
            behind
        } else {
            PacketNumber::new((u64::from(epoch) + 1) << PacketNumber::SEQUENCE_BITS)
        };
        self.keys.advance_to(epoch);
        self.keys.epoch(epoch).map(|keys| (number, keys))
    }
}

impl fmt::Debug for RecordKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordKeys(next {:?})", self.next)
    }
}

/// The keys of one epoch. Never printed; erased when dropped.
pub struct EpochKeys {
    packet_key: Zeroizing<[u8; 32]>,
    iv: Zeroizing<[u8; 12]>,
    header_key: Zeroizing<[u8; 16]>,
}

impl EpochKeys {
    fn new(lane_secret: &[u8; 32]) -> Self {
        let packet_key = derive("longhaul/1 packet key", lane_secret);
        let mut iv = Zeroizing::new([0; 12]);
        iv.copy_from_slice(&derive("longhaul/1 packet iv", lane_secret)[..12]);
        let mut header_key = Zeroizing::new([0; 16]);
        header_key.copy_from_slice(&derive("longhaul/1 header key", lane_secret)[..16]);
        Self { packet_key, iv, header_key }
    }

    /// The key that seals packets: 16 or 32 bytes.
    pub fn packet_key(&self, cipher: Cipher) -> &[u8] {
        &self.packet_key[..cipher.key_len()]
    }

    /// The nonce of a packet of this epoch.
    #[inline]
    pub fn nonce(&self, number: PacketNumber) -> [u8; 12] {
        let mut nonce = *self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(number.get().to_be_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    /// The SipHash key of header tags in mode `clear` (docs/protocol.md section 4.3).
    pub fn header_key(&self) -> &[u8; 16] {
        &self.header_key
    }
}

impl fmt::Debug for EpochKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EpochKeys(..)")
    }
}

fn following(lane_secret: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    derive("longhaul/1 next epoch", lane_secret)
}

fn derive(context: &str, material: &[u8]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(blake3::derive_key(context, material))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::vec::Vec;

    fn keys(direction: Direction, lane: u16) -> LaneKeys {
        LaneKeys::new(&SessionSecret::new([1; 32]), direction, LaneId(lane))
    }

    fn record_keys(direction: Direction, lane: u16) -> RecordKeys {
        RecordKeys::new(&SessionSecret::new([1; 32]), direction, LaneId(lane))
    }

    fn all_of(keys: &EpochKeys) -> Vec<u8> {
        let number = PacketNumber::new(0);
        [keys.packet_key(Cipher::ChaCha20Poly1305), &keys.nonce(number), keys.header_key()].concat()
    }

    #[test]
    fn neighbours_of_the_current_epoch() {
        let mut keys = keys(Direction::ClientToServer, 0);
        let known = |keys: &LaneKeys| -> Vec<u16> {
            [0, 1, 2, 3, 4, u16::MAX].into_iter().filter(|n| keys.epoch(*n).is_some()).collect()
        };
        assert_eq!(known(&keys), [0, 1]);
        let one = all_of(keys.epoch(1).unwrap());
        for ignored in [0, 2, 3, u16::MAX] {
            keys.advance_to(ignored);
            assert_eq!(keys.current(), 0);
        }
        keys.advance_to(1);
        assert_eq!(known(&keys), [0, 1, 2]);
        assert_eq!(all_of(keys.epoch(1).unwrap()), one);
        keys.advance_to(2);
        assert_eq!(known(&keys), [1, 2, 3]);
        assert_eq!(all_of(keys.epoch(1).unwrap()), one);
        assert_eq!(keys.current(), 2);
    }

    #[test]
    fn the_last_epoch() {
        let mut keys = keys(Direction::ClientToServer, 0);
        for epoch in 1..=MAX_EPOCHS {
            keys.advance_to(epoch);
        }
        assert_eq!(keys.current(), MAX_EPOCHS - 1);
        assert!(keys.epoch(MAX_EPOCHS).is_none());
        assert!(keys.epoch(MAX_EPOCHS - 2).is_some());
    }

    #[test]
    fn no_two_are_equal() {
        let mut seen = BTreeSet::new();
        for direction in [Direction::ClientToServer, Direction::ServerToClient] {
            for lane in [0, 1, 256] {
                for mut keys in [keys(direction, lane), record_keys(direction, lane).keys] {
                    for epoch in 0..4 {
                        keys.advance_to(epoch);
                        let keys = keys.epoch(epoch).unwrap();
                        assert!(seen.insert(keys.packet_key(Cipher::Aes128Gcm).to_vec()));
                        assert!(seen.insert(keys.header_key().to_vec()));
                        assert!(seen.insert(keys.nonce(PacketNumber::new(0)).to_vec()));
                    }
                }
            }
        }
    }

    #[test]
    fn records_are_counted_through_all_epochs() {
        let mut keys = record_keys(Direction::ClientToServer, 3);
        let numbered = |keys: &mut RecordKeys| {
            let (number, keys) = keys.next_record()?;
            Some((number.epoch(), number.get() & 0xffff_ffff_ffff, all_of(keys)))
        };
        let (epoch, sequence, zero) = numbered(&mut keys).unwrap();
        assert_eq!((epoch, sequence), (0, 0));
        assert_eq!(numbered(&mut keys).unwrap(), (0, 1, zero.clone()));
        for epoch in 0..MAX_EPOCHS {
            let start = u64::from(epoch) << PacketNumber::SEQUENCE_BITS;
            keys.next = PacketNumber::new(start + MAX_EPOCH_PACKETS - 1);
            let (found, sequence, _) = numbered(&mut keys).unwrap();
            assert_eq!((found, sequence), (epoch, MAX_EPOCH_PACKETS - 1));
            match numbered(&mut keys) {
                Some((next, sequence, secrets)) => {
                    assert_eq!((next, sequence), (epoch + 1, 0));
                    assert_ne!(secrets, zero);
                }
                None => assert_eq!(epoch, MAX_EPOCHS - 1),
            }
        }
        assert_eq!(numbered(&mut keys), None);
    }

    #[test]
    fn a_nonce_has_the_whole_number() {
        let keys = keys(Direction::ClientToServer, 0);
        let keys = keys.epoch(0).unwrap();
        let zero = keys.nonce(PacketNumber::new(0));
        let number = 0x0001_0203_0405_0607;
        let nonce = keys.nonce(PacketNumber::new(number));
        let difference: Vec<u8> = zero.iter().zip(nonce).map(|(a, b)| a ^ b).collect();
        assert_eq!(difference, [0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn keys_are_not_shown() {
        let keys = keys(Direction::ClientToServer, 0);
        assert_eq!(
            format!("{keys:?} {:?}", keys.epoch(0)),
            "LaneKeys(epoch 0) Some(EpochKeys(..))"
        );
    }
}
