//! The cleartext headers of UDP packets (docs/protocol.md section 4.1).
//!
//! This is the hot path: every packet is read and written here.

use core::fmt;

use longhaul_units::{LaneId, ObjectId, PacketNumber};

use crate::error::DecodeError;
use crate::varint;

/// Bytes of the header that all packets begin with.
pub const HEADER_LEN: usize = 20;
/// Bytes of the whole header of an OBJECT packet.
pub const OBJECT_HEADER_LEN: usize = 32;
/// Bytes of the tag of CONTROL packets, and of OBJECT packets with protection `aead` and
/// `integrity`.
pub const AEAD_TAG_LEN: usize = 16;
/// Bytes of the tag of OBJECT packets with protection `clear`.
pub const CLEAR_TAG_LEN: usize = 8;
/// UDP payload that every path is taken to carry, in bytes (docs/protocol.md section 4.6).
pub const BASE_DATAGRAM: usize = 1200;
/// Packets that one key epoch may hold: the next epoch begins at this sequence at the latest
/// (docs/protocol.md section 4.2).
pub const MAX_EPOCH_PACKETS: u64 = 1 << 30;
/// Epochs are below this number, so that packet numbers fit a varint.
pub const MAX_EPOCHS: u16 = 1 << 14;

/// Number of a connection, chosen by the server; never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ConnectionId(pub u32);

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection{:08x}", self.0)
    }
}

/// Kind of the contents behind a packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sealed frames (docs/protocol.md section 5).
    Control = 1,
    /// Bytes of an object.
    Object = 2,
}

impl Kind {
    const fn first_byte(self) -> u8 {
        MAGIC | self as u8
    }
}

/// The header of every packet.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |0 1 0 0| kind  |   flags (0)   |            lane (16)          |
/// +---------------+---------------+-------------------------------+
/// |                      connection id (32)                       |
/// +---------------------------------------------------------------+
/// |                      packet number (64)                       |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |                  send time (32, microseconds)                 |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the contents behind the header.
    pub kind: Kind,
    /// Lane that the packet travels on.
    pub lane: LaneId,
    /// Connection that the packet belongs to.
    pub connection: ConnectionId,
    /// Packet number, its epoch below [`MAX_EPOCHS`].
    pub number: PacketNumber,
    /// The sender's monotonic clock in microseconds, modulo 2^32.
    pub send_time: u32,
}

impl Header {
    /// Reads the start of a datagram. What is behind the header is not looked at.
    ///
    /// # Errors
    /// Too short, not a packet of this protocol version, or an epoch out of range.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<Self, DecodeError> {
        let Some(bytes) = datagram.first_chunk::<HEADER_LEN>() else {
            return Err(DecodeError::Truncated { what: WHAT });
        };
        let [first, flags, l0, l1, c0, c1, c2, c3, number @ .., t0, t1, t2, t3] = *bytes;
        let kind = match first {
            OBJECT_BYTE => Kind::Object,
            CONTROL_BYTE => Kind::Control,
            _ => return Err(DecodeError::Invalid { what: WHAT }),
        };
        let number = u64::from_be_bytes(number);
        if flags != 0 || number > varint::MAX {
            return Err(DecodeError::Invalid { what: WHAT });
        }
        Ok(Self {
            kind,
            lane: LaneId(u16::from_be_bytes([l0, l1])),
            connection: ConnectionId(u32::from_be_bytes([c0, c1, c2, c3])),
            number: PacketNumber::new(number),
            send_time: u32::from_be_bytes([t0, t1, t2, t3]),
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        let [l0, l1] = self.lane.0.to_be_bytes();
        let [c0, c1, c2, c3] = self.connection.0.to_be_bytes();
        let [n0, n1, n2, n3, n4, n5, n6, n7] = self.number.get().to_be_bytes();
        let [t0, t1, t2, t3] = self.send_time.to_be_bytes();
        *out = [
            self.kind.first_byte(),
            0,
            l0,
            l1,
            c0,
            c1,
            c2,
            c3,
            n0,
            n1,
            n2,
            n3,
            n4,
            n5,
            n6,
            n7,
            t0,
            t1,
            t2,
            t3,
        ];
    }
}

/// The header of an OBJECT packet: the common header, the object and the offset of the payload.
///
/// ```text
/// +---------------------------------------------------------------+
/// |                       Header (20 bytes)                       |
/// +---------------------------------------------------------------+
/// |                         object id (32)                        |
/// +---------------------------------------------------------------+
/// |                          offset (64)                          |
/// |                                                               |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectHeader {
    /// The common header; its kind is [`Kind::Object`].
    pub header: Header,
    /// The object.
    pub object: ObjectId,
    /// Place of the first payload byte in the object, below 2^62.
    pub offset: u64,
}

impl ObjectHeader {
    /// Reads the start of an OBJECT packet. What is behind the header is not looked at.
    ///
    /// # Errors
    /// As [`Header::parse`]; also when the packet is not an OBJECT packet or the offset is 2^62
    /// or more (so that adding a payload length never overflows).
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<Self, DecodeError> {
        Self::parse_behind(Header::parse(datagram)?, datagram)
    }

    /// Reads the rest of the header of an OBJECT packet that begins with `header`.
    ///
    /// # Errors
    /// As [`ObjectHeader::parse`].
    #[inline]
    pub fn parse_behind(header: Header, datagram: &[u8]) -> Result<Self, DecodeError> {
        let Some(bytes) = datagram.first_chunk::<OBJECT_HEADER_LEN>() else {
            return Err(DecodeError::Truncated { what: WHAT });
        };
        let [.., o0, o1, o2, o3, p0, p1, p2, p3, p4, p5, p6, p7] = *bytes;
        let offset = u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
        if header.kind != Kind::Object || offset > varint::MAX {
            return Err(DecodeError::Invalid { what: WHAT });
        }
        Ok(Self { header, object: ObjectId(u32::from_be_bytes([o0, o1, o2, o3])), offset })
    }

    /// Writes the header, as that of an OBJECT packet.
    #[inline]
    pub fn emit(&self, out: &mut [u8; OBJECT_HEADER_LEN]) {
        let mut common = [0; HEADER_LEN];
        Header { kind: Kind::Object, ..self.header }.emit(&mut common);
        out[..HEADER_LEN].copy_from_slice(&common);
        out[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&self.object.0.to_be_bytes());
        out[HEADER_LEN + 4..].copy_from_slice(&self.offset.to_be_bytes());
    }
}

/// High half of the first byte of every packet.
const MAGIC: u8 = 0x40;
const CONTROL_BYTE: u8 = Kind::Control.first_byte();
const OBJECT_BYTE: u8 = Kind::Object.first_byte();
const WHAT: &str = "packet header";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONTROL: [u8; HEADER_LEN] = [
        0x41, 0x00, 0x00, 0x03, 0xde, 0xad, 0xbe, 0xef, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x05, 0x01, 0x02, 0x03, 0x04,
    ];
    const OBJECT: [u8; OBJECT_HEADER_LEN] = [
        0x42, 0x00, 0x00, 0x03, 0xde, 0xad, 0xbe, 0xef, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x05, 0x01, 0x02, 0x03, 0x04, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x0a, 0x0b, 0x0c,
        0x0d, 0x0e,
    ];

    fn control() -> Header {
        Header {
            kind: Kind::Control,
            lane: LaneId(3),
            connection: ConnectionId(0xdead_beef),
            number: PacketNumber::new(1 << 48 | 5),
            send_time: 0x0102_0304,
        }
    }

    fn object() -> ObjectHeader {
        ObjectHeader {
            header: Header { kind: Kind::Object, ..control() },
            object: ObjectId(7),
            offset: 0x0a_0b0c_0d0e,
        }
    }

    #[test]
    fn reads_literal_bytes() {
        assert_eq!(Header::parse(&CONTROL), Ok(control()));
        assert_eq!(ObjectHeader::parse(&OBJECT), Ok(object()));
        assert_eq!(Header::parse(&OBJECT), Ok(object().header));
    }

    #[test]
    fn writes_every_byte() {
        let mut out = [0xa5; HEADER_LEN];
        control().emit(&mut out);
        assert_eq!(out, CONTROL);
        let mut out = [0xa5; OBJECT_HEADER_LEN];
        object().emit(&mut out);
        assert_eq!(out, OBJECT);
    }

    #[test]
    fn every_prefix_is_truncated() {
        for len in 0..HEADER_LEN {
            let truncated = DecodeError::Truncated { what: WHAT };
            assert_eq!(Header::parse(&CONTROL[..len]), Err(truncated));
        }
        for len in 0..OBJECT_HEADER_LEN {
            assert!(ObjectHeader::parse(&OBJECT[..len]).is_err());
        }
    }

    #[test]
    fn reserved_bits_are_rejected() {
        for (byte, value) in [(0, 0x01), (0, 0x43), (0, 0x40), (0, 0xc1), (1, 0x01), (8, 0x40)] {
            let mut bytes = OBJECT;
            bytes[byte] = value;
            assert_eq!(Header::parse(&bytes), Err(DecodeError::Invalid { what: WHAT }));
            assert_eq!(ObjectHeader::parse(&bytes), Err(DecodeError::Invalid { what: WHAT }));
        }
        let mut bytes = OBJECT;
        bytes[24] = 0x40;
        assert!(ObjectHeader::parse(&bytes).is_err(), "offset of 2^62");
        bytes[24] = 0;
        bytes[0] = CONTROL_BYTE;
        assert!(ObjectHeader::parse(&bytes).is_err(), "not an OBJECT packet");
    }

    proptest! {
        #[test]
        fn round_trip(
            lane: u16, connection: u32, number in 0..=varint::MAX, send_time: u32, object: u32,
            offset in 0..=varint::MAX,
        ) {
            let header = Header {
                kind: Kind::Control,
                lane: LaneId(lane),
                connection: ConnectionId(connection),
                number: PacketNumber::new(number),
                send_time,
            };
            let mut out = [0xa5; HEADER_LEN];
            header.emit(&mut out);
            prop_assert_eq!(Header::parse(&out), Ok(header));
            let header = Header { kind: Kind::Object, ..header };
            let object = ObjectHeader { header, object: ObjectId(object), offset };
            let mut out = [0xa5; OBJECT_HEADER_LEN];
            object.emit(&mut out);
            prop_assert_eq!(ObjectHeader::parse(&out), Ok(object));
        }

        #[test]
        fn what_is_accepted_is_written_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(header) = Header::parse(&bytes) {
                let mut out = [0xa5; HEADER_LEN];
                header.emit(&mut out);
                prop_assert_eq!(&out[..], &bytes[..HEADER_LEN]);
            }
            let _ = ObjectHeader::parse(&bytes);
        }
    }
}
