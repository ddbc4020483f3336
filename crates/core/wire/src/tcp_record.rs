//! The TCP carrier (docs/protocol.md section 8).

use longhaul_units::{LaneId, ObjectId};

use crate::error::{DecodeError, Full};
use crate::header::ConnectionId;
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// Bytes of a join.
pub const JOIN_LEN: usize = 44;
/// Longest record of frames, in bytes.
pub const MAX_FRAMES_RECORD: usize = 1 << 16;
/// Longest payload of a record of object bytes, in bytes.
pub const MAX_OBJECT_RECORD: usize = 1 << 20;
/// Longest head of a record, in bytes.
pub const MAX_RECORD_HEAD: usize = 16;

/// The first bytes of a TCP connection that joins a carrier.
///
/// ```text
/// +---------------------------------------------------------------+
/// |                            "LHD1"                             |
/// +---------------------------------------------------------------+
/// |                      connection id (32)                       |
/// +-------------------------------+-------------------------------+
/// |           lane (16)           |           flags (0)           |
/// +-------------------------------+-------------------------------+
/// |                       proof (32 bytes)                        |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Connection that is joined.
    pub connection: ConnectionId,
    /// Which of its TCP connections this is.
    pub lane: LaneId,
    /// That the session secret is known.
    pub proof: [u8; 32],
}

impl Join {
    /// First byte of every join, which tells it from TLS.
    pub const FIRST_BYTE: u8 = MAGIC[0];

    /// Reads a join.
    ///
    /// # Errors
    /// Not a join of this protocol version.
    pub fn parse(bytes: &[u8; JOIN_LEN]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes, "join");
        if r.array()? != MAGIC {
            return Err(r.invalid());
        }
        let connection = ConnectionId(r.u32()?);
        let lane = LaneId(r.u16()?);
        if r.u16()? != 0 {
            return Err(r.invalid());
        }
        let proof = r.array()?;
        r.finish()?;
        Ok(Self { connection, lane, proof })
    }

    /// Writes the join.
    pub fn emit(&self, out: &mut [u8; JOIN_LEN]) {
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&self.connection.0.to_be_bytes());
        out[8..10].copy_from_slice(&self.lane.0.to_be_bytes());
        out[10..12].fill(0);
        out[12..].copy_from_slice(&self.proof);
    }
}

/// The head of a record: what is in front of the frames or the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordHead {
    /// Frames ([`crate::frame::Frames`]) follow.
    Frames {
        /// Their bytes, 1 to [`MAX_FRAMES_RECORD`].
        len: usize,
    },
    /// Bytes of an object follow.
    Object {
        /// The object.
        object: ObjectId,
        /// Place of the first byte in the object; the end is below 2^62.
        offset: u64,
        /// Number of bytes, 1 to [`MAX_OBJECT_RECORD`].
        len: usize,
    },
}

impl RecordHead {
    /// Reads the head at the start of `bytes`, and how many of them it takes (at most
    /// [`MAX_RECORD_HEAD`]); `None` when more are needed.
    ///
    /// # Errors
    /// Not a record of this protocol. Unknown kinds and excessive lengths are errors as soon as
    /// they can be seen.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let mut r = Reader::new(bytes, "record");
        let (Ok(kind), Ok(len)) = (r.u8(), r.u24()) else {
            return match bytes.first() {
                None | Some(&(FRAMES | OBJECT)) => Ok(None),
                Some(_) => Err(r.invalid()),
            };
        };
        let len = len as usize;
        match kind {
            FRAMES if (1..=MAX_FRAMES_RECORD).contains(&len) => {
                Ok(Some((Self::Frames { len }, PREFIX_LEN)))
            }
            OBJECT if (PLACE_LEN + 1..=PLACE_LEN + MAX_OBJECT_RECORD).contains(&len) => {
                let (Ok(object), Ok(offset)) = (r.u32(), r.u64()) else {
                    return Ok(None);
                };
                let len = len - PLACE_LEN;
                if offset > varint::MAX - len as u64 {
                    return Err(r.invalid());
                }
                let object = ObjectId(object);
                Ok(Some((Self::Object { object, offset, len }, PREFIX_LEN + PLACE_LEN)))
            }
            _ => Err(r.invalid()),
        }
    }

    /// Number of bytes that [`Self::encode`] writes.
    pub const fn encoded_len(&self) -> usize {
        match self {
            Self::Frames { .. } => PREFIX_LEN,
            Self::Object { .. } => PREFIX_LEN + PLACE_LEN,
        }
    }

    /// Writes the head.
    ///
    /// # Errors
    /// There is no room for the whole head; nothing is written.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        if self.encoded_len() > w.room() {
            return Err(Full);
        }
        match *self {
            Self::Frames { len } => {
                w.u8(FRAMES)?;
                w.u24(len as u32)
            }
            Self::Object { object, offset, len } => {
                w.u8(OBJECT)?;
                w.u24((PLACE_LEN + len) as u32)?;
                w.u32(object.0)?;
                w.u64(offset)
            }
        }
    }
}

const MAGIC: [u8; 4] = *b"LHD1";
const FRAMES: u8 = 1;
const OBJECT: u8 = 2;
/// Kind and length.
const PREFIX_LEN: usize = 4;
/// Object and offset.
const PLACE_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn literal_join() {
        let mut bytes = [7; JOIN_LEN];
        bytes[..12].copy_from_slice(b"LHD1\x01\x02\x03\x04\x00\x05\x00\x00");
        let join = Join { connection: ConnectionId(0x0102_0304), lane: LaneId(5), proof: [7; 32] };
        assert_eq!(Join::parse(&bytes), Ok(join));
        let mut out = [0xa5; JOIN_LEN];
        join.emit(&mut out);
        assert_eq!(out, bytes);
        for at in [0, 3, 10, 11] {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert_eq!(Join::parse(&bad), Err(DecodeError::Invalid { what: "join" }));
        }
    }

    #[test]
    fn literal_records() {
        let object = RecordHead::Object { object: ObjectId(3), offset: 4, len: 2 };
        for (bytes, head) in [
            (&[1, 0, 0, 9][..], RecordHead::Frames { len: 9 }),
            (&[2, 0, 0, 14, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4], object),
        ] {
            assert_eq!(RecordHead::parse(bytes), Ok(Some((head, bytes.len()))));
            for len in 0..bytes.len() {
                assert_eq!(RecordHead::parse(&bytes[..len]), Ok(None));
                let mut small = [0xa5; 16];
                assert_eq!(head.encode(&mut Writer::new(&mut small[..len])), Err(Full));
                assert_eq!(small, [0xa5; 16]);
            }
            let mut out = [0xa5; MAX_RECORD_HEAD];
            let mut w = Writer::new(&mut out);
            head.encode(&mut w).unwrap();
            assert_eq!(w.len(), head.encoded_len());
            assert_eq!(&out[..bytes.len()], bytes);
            assert!(out[bytes.len()..].iter().all(|byte| *byte == 0xa5));
        }
    }

    #[test]
    fn bad_records_are_seen_early() {
        for bytes in [
            &[0][..],
            &[3],
            &[1, 0, 0, 0],
            &[1, 1, 0, 1],
            &[2, 0, 0, 12],
            &[2, 0x10, 0, 13],
            &[2, 0, 0, 13, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(RecordHead::parse(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_written_back(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(Some((head, len))) = RecordHead::parse(&bytes) {
                let mut out = [0xa5; MAX_RECORD_HEAD];
                prop_assert_eq!(head.encode(&mut Writer::new(&mut out)), Ok(()));
                prop_assert_eq!(&out[..len], &bytes[..len]);
            }
            if let Some(bytes) = bytes.first_chunk::<JOIN_LEN>() {
                let mut bytes = *bytes;
                let _ = Join::parse(&bytes);
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[10..12].fill(0);
                let mut out = [0xa5; JOIN_LEN];
                Join::parse(&bytes).unwrap().emit(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }

        #[test]
        fn round_trip(object: u32, offset in 0u64..1 << 61, len in 1..=MAX_OBJECT_RECORD) {
            let object = RecordHead::Object { object: ObjectId(object), offset, len };
            let frames = RecordHead::Frames { len: len.min(MAX_FRAMES_RECORD) };
            for head in [object, frames] {
                let mut out = [0xa5; MAX_RECORD_HEAD];
                prop_assert_eq!(head.encode(&mut Writer::new(&mut out)), Ok(()));
                prop_assert_eq!(RecordHead::parse(&out), Ok(Some((head, head.encoded_len()))));
            }
        }
    }
}
