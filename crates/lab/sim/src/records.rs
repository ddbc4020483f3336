//! Seals of records under the real key schedule, with a cheap tag in place of cipher and mac.

use longhaul_connection::{Forged, RecordSeals};
use longhaul_session::{RecordKeys, Session};
use longhaul_units::LaneId;
use longhaul_wire::{AEAD_TAG_LEN, CLEAR_TAG_LEN, MAX_RECORD_HEAD};

use crate::protection::tag;

/// Of both directions of a TCP connection.
#[derive(Debug)]
pub(crate) struct Records {
    sent: RecordKeys,
    received: RecordKeys,
}

impl Records {
    pub fn new(session: &Session, lane: LaneId) -> Self {
        Self { sent: session.send_record_keys(lane), received: session.receive_record_keys(lane) }
    }
}

/// The tag of the next record of `keys`.
fn next(keys: &mut RecordKeys, parts: [&[u8]; 2]) -> Result<[u8; AEAD_TAG_LEN], Forged> {
    let (number, keys) = keys.next_record().ok_or(Forged)?;
    let key = u128::from_le_bytes(*keys.header_key()) ^ u128::from(number.get());
    Ok(tag(key, parts).to_le_bytes())
}

fn half(tag: [u8; AEAD_TAG_LEN]) -> [u8; CLEAR_TAG_LEN] {
    core::array::from_fn(|i| tag[i])
}

impl RecordSeals for Records {
    fn seal_frames(&mut self, record: &mut Vec<u8>, head: usize) -> Result<(), Forged> {
        let (head, frames) = record.split_at(head);
        let tag = next(&mut self.sent, [head, frames])?;
        record.extend_from_slice(&tag);
        Ok(())
    }

    fn open_frames<'r>(&mut self, head: &[u8], sealed: &'r mut [u8]) -> Result<&'r [u8], Forged> {
        let (frames, found) = sealed.split_last_chunk::<AEAD_TAG_LEN>().ok_or(Forged)?;
        let made = next(&mut self.received, [head, frames])?;
        if made == *found { Ok(frames) } else { Err(Forged) }
    }

    fn object_tag(&mut self, head: &[u8; MAX_RECORD_HEAD]) -> Result<[u8; CLEAR_TAG_LEN], Forged> {
        Ok(half(next(&mut self.sent, [head, &[]])?))
    }

    fn verify_object(
        &mut self,
        head: &[u8; MAX_RECORD_HEAD],
        tag: [u8; CLEAR_TAG_LEN],
    ) -> Result<(), Forged> {
        let made = half(next(&mut self.received, [head, &[]])?);
        if made == tag { Ok(()) } else { Err(Forged) }
    }
}
