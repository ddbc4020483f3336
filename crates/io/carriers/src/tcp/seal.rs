//! Authenticity of records where TLS gives none (docs/protocol.md sections 4.2 and 8).

use aws_lc_rs::aead::{Aad, Nonce};
use longhaul_connection::{Forged, RecordSeals};
use longhaul_session::{RecordKeys, Session};
use longhaul_units::{LaneId, PacketNumber};
use longhaul_wire::{CLEAR_TAG_LEN, Cipher, MAX_RECORD_HEAD};

use crate::protection::Epoch;

/// Authentication of the records of both directions of a bare connection.
#[derive(Debug)]
pub struct Seals {
    pub sent: RecordSeal,
    pub received: RecordSeal,
}

impl Seals {
    /// For connection `lane` of `session`.
    pub fn new(session: &Session, lane: LaneId) -> Self {
        Self {
            sent: RecordSeal::new(session.send_record_keys(lane), session.cipher),
            received: RecordSeal::new(session.receive_record_keys(lane), session.cipher),
        }
    }
}

impl RecordSeals for Box<Seals> {
    fn seal_frames(&mut self, record: &mut Vec<u8>, head: usize) -> Result<(), Forged> {
        self.sent.seal_frames(record, head)
    }

    fn open_frames<'r>(&mut self, head: &[u8], sealed: &'r mut [u8]) -> Result<&'r [u8], Forged> {
        self.received.open_frames(head, sealed)
    }

    fn object_tag(&mut self, head: &[u8; MAX_RECORD_HEAD]) -> Result<[u8; CLEAR_TAG_LEN], Forged> {
        self.sent.object_tag(head)
    }

    fn verify_object(
        &mut self,
        head: &[u8; MAX_RECORD_HEAD],
        tag: [u8; CLEAR_TAG_LEN],
    ) -> Result<(), Forged> {
        self.received.verify_object(head, tag)
    }
}

/// Authenticates the records of one direction in their order: every call is about the next one.
#[derive(Debug)]
pub struct RecordSeal {
    keys: RecordKeys,
    cipher: Cipher,
    /// Made of the keys of the epoch of this number.
    epoch: Option<(u16, Epoch)>,
}

impl RecordSeal {
    pub fn new(keys: RecordKeys, cipher: Cipher) -> Self {
        Self { keys, cipher, epoch: None }
    }

    /// Seals what is behind the head of `record`, which is `head` bytes long, and appends the tag.
    pub fn seal_frames(&mut self, record: &mut Vec<u8>, head: usize) -> Result<(), Forged> {
        let (epoch, nonce, _) = self.next_record()?;
        let (head, frames) = record.split_at_mut(head);
        let tag = epoch.aead.seal_in_place_separate_tag(nonce, Aad::from(&*head), frames);
        record.extend_from_slice(tag.map_err(|_| Forged)?.as_ref());
        Ok(())
    }

    /// Opens the frames and the tag behind them that followed `head`.
    pub fn open_frames<'r>(
        &mut self,
        head: &[u8],
        sealed: &'r mut [u8],
    ) -> Result<&'r [u8], Forged> {
        let (epoch, nonce, _) = self.next_record()?;
        let opened = epoch.aead.open_in_place(nonce, Aad::from(head), sealed);
        opened.map(|frames| &*frames).map_err(|_| Forged)
    }

    /// The tag of a record of object bytes that begins with `head`.
    pub fn object_tag(
        &mut self,
        head: &[u8; MAX_RECORD_HEAD],
    ) -> Result<[u8; CLEAR_TAG_LEN], Forged> {
        let (epoch, _, number) = self.next_record()?;
        let mut tag = [[0; CLEAR_TAG_LEN]];
        epoch.mac.tags(&[numbered(head, number)], &mut tag);
        Ok(tag[0])
    }

    /// True if `tag` is that of the record of object bytes that begins with `head`.
    pub fn verify_object(
        &mut self,
        head: &[u8; MAX_RECORD_HEAD],
        tag: [u8; CLEAR_TAG_LEN],
    ) -> Result<(), Forged> {
        let (epoch, _, number) = self.next_record()?;
        let good = epoch.mac.verify(&[numbered(head, number)], &[tag]) == 1;
        if good { Ok(()) } else { Err(Forged) }
    }

    fn next_record(&mut self) -> Result<(&Epoch, Nonce, PacketNumber), Forged> {
        // Records end after 2^44: nothing is authentic behind them.
        let (number, keys) = self.keys.next_record().ok_or(Forged)?;
        if self.epoch.as_ref().is_none_or(|(epoch, _)| *epoch != number.epoch()) {
            self.epoch = Epoch::new(keys, self.cipher).map(|made| (number.epoch(), made));
        }
        let nonce = Nonce::assume_unique_for_key(keys.nonce(number));
        let (_, epoch) = self.epoch.as_ref().ok_or(Forged)?;
        Ok((epoch, nonce, number))
    }
}

/// The bytes that the tag of a record of object bytes is computed over.
fn numbered(head: &[u8; MAX_RECORD_HEAD], number: PacketNumber) -> [u8; 32] {
    let mut signed = [0; 32];
    signed[..MAX_RECORD_HEAD].copy_from_slice(head);
    signed[MAX_RECORD_HEAD..][..8].copy_from_slice(&number.get().to_be_bytes());
    signed
}

#[cfg(test)]
mod tests {
    use longhaul_session::{Direction, SessionSecret};
    use longhaul_units::LaneId;
    use longhaul_wire::AEAD_TAG_LEN;

    use super::*;

    #[test]
    fn records_open_in_their_order_and_nowhere_else() {
        for cipher in Cipher::ALL {
            let seal = |direction, lane| {
                let secret = SessionSecret::new([5; 32]);
                RecordSeal::new(RecordKeys::new(&secret, direction, LaneId(lane)), *cipher)
            };
            let there = Direction::ClientToServer;
            let mut sender = seal(there, 1);
            let frames = |sender: &mut RecordSeal| {
                let mut record = b"headframes".to_vec();
                sender.seal_frames(&mut record, 4).unwrap();
                assert_eq!(record.len(), 10 + AEAD_TAG_LEN);
                assert_eq!(record[..4], *b"head");
                assert_ne!(record[4..10], *b"frames");
                record
            };
            let (first, second) = (frames(&mut sender), frames(&mut sender));
            let tag = sender.object_tag(b"head of an objec").unwrap();
            let third = frames(&mut sender);
            let open = |receiver: &mut RecordSeal, record: &[u8]| {
                let mut body = record[4..].to_vec();
                receiver.open_frames(&record[..4], &mut body).map(|frames| frames == b"frames")
            };
            let mut receiver = seal(there, 1);
            assert_eq!(open(&mut receiver, &first), Ok(true));
            assert_eq!(open(&mut receiver, &second), Ok(true));
            assert_eq!(receiver.verify_object(b"head of an objec", tag), Ok(()));
            assert_eq!(open(&mut receiver, &third), Ok(true));
            // Again, without the one before, sent back, on another connection.
            assert_eq!(open(&mut receiver, &third), Err(Forged));
            assert_eq!(open(&mut seal(there, 1), &second), Err(Forged));
            assert_eq!(open(&mut seal(Direction::ServerToClient, 1), &first), Err(Forged));
            assert_eq!(open(&mut seal(there, 0), &first), Err(Forged));
            for place in 0..first.len() {
                let mut changed = first.clone();
                changed[place] ^= 1;
                assert_eq!(open(&mut seal(there, 1), &changed), Err(Forged), "{place}");
            }
        }
    }

    #[test]
    fn records_are_those_of_the_vectors() {
        let secret = SessionSecret::new(std::array::from_fn(|i| 0x20 + i as u8));
        let keys = RecordKeys::new(&secret, Direction::ClientToServer, LaneId(1));
        let mut seal = RecordSeal::new(keys, Cipher::Aes128Gcm);
        let mut records = [(); 2].map(|()| vec![1, 0, 0, 4, 0x13, 2, 0, 0]);
        seal.seal_frames(&mut records[0], 4).unwrap();
        let head = [2, 0, 0, 32, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x10, 0];
        let tag = seal.object_tag(&head).unwrap();
        let object = [&head[..], &tag, b"twenty bytes of data"].concat();
        seal.seal_frames(&mut records[1], 4).unwrap();
        let [first, third] = records;
        let page = include_str!("../../../../core/session/tests/vectors/protocol-vectors.md");
        let page: String = page.split_whitespace().collect();
        for (i, record) in [first, object, third].into_iter().enumerate() {
            let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(page.contains(&format!("record{i}{hex}")), "{i}: {hex}");
        }
    }

    #[test]
    fn a_head_of_object_bytes_is_authentic_in_its_place_only() {
        let seal = |lane| {
            let secret = SessionSecret::new([5; 32]);
            let keys = RecordKeys::new(&secret, Direction::ServerToClient, LaneId(lane));
            RecordSeal::new(keys, Cipher::Aes128Gcm)
        };
        let head = *b"head of an objec";
        let mut sender = seal(0);
        let tags = [(); 2].map(|()| sender.object_tag(&head).unwrap());
        assert_ne!(tags[0], tags[1]);
        assert_eq!(seal(0).verify_object(&head, tags[0]), Ok(()));
        assert_eq!(seal(0).verify_object(&head, tags[1]), Err(Forged));
        assert_eq!(seal(1).verify_object(&head, tags[0]), Err(Forged));
        for place in 0..MAX_RECORD_HEAD {
            let mut changed = head;
            changed[place] ^= 0x80;
            assert_eq!(seal(0).verify_object(&changed, tags[0]), Err(Forged));
        }
    }
}
