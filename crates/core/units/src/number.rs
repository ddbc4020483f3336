use core::fmt;

/// Number of a packet on one lane in one direction, never used twice under one session secret.
///
/// The high 16 bits are the key epoch, the low 48 bits count packets within it
/// (docs/protocol.md section 4.2), so that number order is sending order across epochs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PacketNumber(u64);

impl PacketNumber {
    /// Bits that count packets within an epoch.
    pub const SEQUENCE_BITS: u32 = 48;

    /// The packet number with this 64-bit value.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The 64-bit value, as it stands on the wire.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Key epoch.
    pub const fn epoch(self) -> u16 {
        (self.0 >> Self::SEQUENCE_BITS) as u16
    }

    /// The number `count` packets later.
    pub const fn after(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

impl fmt::Debug for PacketNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.epoch(), self.0 & ((1 << Self::SEQUENCE_BITS) - 1))
    }
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

identifier! {
    /// A sequence of packets between the two hosts of a connection, with numbers of its own, that goes
    /// over one path at a time.
    LaneId(u16), "lane"
}
identifier! {
    /// A path between the two hosts, as one of them counts those of a connection.
    PathId(u16), "path"
}
identifier! {
    /// A sequence of bytes placed out of order: one large file, or a bundle of small ones
    /// (docs/protocol.md section 7).
    ObjectId(u32), "object"
}
identifier! {
    /// An ordered byte stream in both directions (docs/protocol.md section 6).
    StreamId(u32), "stream"
}

/// A range of an object's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// The object.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Extent {
    /// One past the last byte.
    pub const fn end(&self) -> u64 {
        self.offset + self.len
    }
}
