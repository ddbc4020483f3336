use longhaul_units::{Bytes, Duration, EcnCounts, PacketNumber, Rate};

use super::{MAX_LIMIT, Ranges};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{units, varint};
use longhaul_units::Bottleneck;

/// Knowledge of a receiver of packets (docs/protocol.md section 5.4).
///
/// Counters are cumulative since the start of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback<'a> {
    /// Highest packet number received.
    pub largest: PacketNumber,
    /// Send time of that packet, echoed: microseconds modulo 2^32, the sender's clock.
    pub largest_sent: u32,
    /// Its arrival: microseconds modulo 2^32, the receiver's clock.
    pub largest_received: u32,
    /// From that arrival to the sending of this frame, in whole microseconds.
    pub delay: Duration,
    /// Packets received, duplicates and replays not counted.
    pub packets: u64,
    /// Their bytes at the IP layer.
    pub bytes: Bytes,
    /// Those that carried an ECN codepoint.
    pub ecn: EcnCounts,
    /// Packets missing because a socket buffer of the receiver was full.
    pub socket_drops: u64,
    /// Packets missing because of the receiving host otherwise.
    pub host_drops: u64,
    /// Object bytes that may ever be sent for the first time on this connection.
    pub credit: Bytes,
    /// Which packet numbers are missing.
    pub ranges: Ranges<'a>,
    /// Rate that the receiver takes itself to be capable of.
    pub receive_capacity: Option<Rate>,
    /// Size of the receiver's socket buffer.
    pub socket_buffer: Option<Bytes>,
    /// Bounds of the receiver.
    pub bounds: ReceiverBounds,
    /// The rate beyond which the receiving host expects to lose.
    pub limit: Option<ReceiverLimit>,
    /// The receiver had no room to remember what is missing below this number: it tells nothing of
    /// packets below, and takes none.
    pub forgotten: Option<PacketNumber>,
}

/// Limit of the receiving host for all lanes together (docs/protocol.md section 5.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverLimit {
    /// At the IP layer.
    pub rate: Rate,
    /// Why.
    pub cause: Bottleneck,
    /// For how long from arrival, in whole microseconds, at most [`MAX_LIMIT`].
    pub lasts: Duration,
}

/// Bottleneck of a receiver in its own view; [`Bottleneck::Unknown`] where
/// nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverBounds {
    /// In taking packets in.
    pub intake: Bottleneck,
    /// In storing what they carried.
    pub storage: Bottleneck,
}

impl ReceiverBounds {
    /// Of a receiver that waits for data.
    pub const NONE: Self = Self { intake: Bottleneck::Unknown, storage: Bottleneck::Unknown };
}

impl<'a> Feedback<'a> {
    /// The form that a TCP carrier uses: nothing but the credit.
    pub const fn credit_only(credit: Bytes) -> Feedback<'static> {
        Feedback {
            largest: PacketNumber::new(0),
            largest_sent: 0,
            largest_received: 0,
            delay: Duration::ZERO,
            packets: 0,
            bytes: Bytes::ZERO,
            ecn: EcnCounts::ZERO,
            socket_drops: 0,
            host_drops: 0,
            credit,
            ranges: Ranges::EMPTY,
            receive_capacity: None,
            socket_buffer: None,
            bounds: ReceiverBounds::NONE,
            limit: None,
            forgotten: None,
        }
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut feedback = Self {
            largest: PacketNumber::new(reader.varint()?),
            largest_sent: reader.u32()?,
            largest_received: reader.u32()?,
            delay: Duration::from_micros(reader.varint()?),
            packets: reader.varint()?,
            bytes: Bytes::new(reader.varint()?),
            ecn: EcnCounts { ect0: reader.varint()?, ect1: reader.varint()?, ce: reader.varint()? },
            socket_drops: reader.varint()?,
            host_drops: reader.varint()?,
            credit: Bytes::new(reader.varint()?),
            ranges: Ranges::EMPTY,
            receive_capacity: None,
            socket_buffer: None,
            bounds: ReceiverBounds::NONE,
            limit: None,
            forgotten: None,
        };
        let from = reader.varint()?;
        let to = reader.varint()?;
        feedback.ranges = Ranges::decode(from, to, reader.sized(usize::MAX)?)?;
        while !reader.is_empty() {
            let kind = reader.varint()?;
            let mut value = Reader::new(reader.sized(usize::MAX)?, "FEEDBACK extension");
            match kind {
                RECEIVE_CAPACITY => {
                    feedback.receive_capacity = Some(Rate::from_bps(value.varint()?));
                }
                SOCKET_BUFFER => feedback.socket_buffer = Some(Bytes::new(value.varint()?)),
                INTAKE => feedback.bounds.intake = bottleneck(value.varint()?),
                STORAGE => feedback.bounds.storage = bottleneck(value.varint()?),
                LIMIT => feedback.limit = Some(ReceiverLimit::decode(&mut value)?),
                FORGOTTEN => feedback.forgotten = Some(PacketNumber::new(value.varint()?)),
                _ if kind.is_multiple_of(2) => continue,
                _ => return Err(DecodeError::Unsupported { what: "FEEDBACK extension" }),
            }
            value.finish()?;
        }
        Ok(feedback)
    }

    pub(super) fn body_len(&self) -> usize {
        let ranges = self.ranges.encoded().len();
        let counts: usize = self.counts().map(varint::len).iter().sum();
        let extensions = self.extensions().into_iter().flatten();
        varint::len(self.largest.get())
            + 8
            + counts
            + varint::len(ranges as u64)
            + ranges
            + extensions.map(|(_, value)| 2 + varint::len(value)).sum::<usize>()
            + self.limit.map_or(0, |limit| 2 + limit.len())
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(self.largest.get())?;
        w.u32(self.largest_sent)?;
        w.u32(self.largest_received)?;
        for count in self.counts() {
            w.varint(count)?;
        }
        w.sized(self.ranges.encoded())?;
        for (kind, value) in self.extensions().into_iter().flatten() {
            w.varint(kind)?;
            w.varint(varint::len(value) as u64)?;
            w.varint(value)?;
        }
        if let Some(limit) = self.limit {
            w.varint(LIMIT)?;
            w.varint(limit.len() as u64)?;
            limit.fields().into_iter().try_for_each(|field| w.varint(field))?;
        }
        Ok(())
    }

    /// The fields between the times and the ranges, in wire order.
    fn counts(&self) -> [u64; 11] {
        [
            units::micros(self.delay),
            self.packets,
            self.bytes.get(),
            self.ecn.ect0,
            self.ecn.ect1,
            self.ecn.ce,
            self.socket_drops,
            self.host_drops,
            self.credit.get(),
            self.ranges.from(),
            self.ranges.to(),
        ]
    }

    fn extensions(&self) -> [Option<(u64, u64)>; 5] {
        let ReceiverBounds { intake, storage } = self.bounds;
        let code = |bound: Bottleneck| (bound != Bottleneck::Unknown).then_some(bound as u64);
        [
            self.receive_capacity.map(|rate| (RECEIVE_CAPACITY, rate.as_bps())),
            self.socket_buffer.map(|size| (SOCKET_BUFFER, size.get())),
            code(intake).map(|code| (INTAKE, code)),
            code(storage).map(|code| (STORAGE, code)),
            self.forgotten.map(|number| (FORGOTTEN, number.get())),
        ]
    }
}

impl ReceiverLimit {
    fn decode(value: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let rate = Rate::from_bps(value.varint()?);
        let cause = bottleneck(value.varint()?);
        let lasts = Duration::from_micros(value.varint()?);
        if lasts > MAX_LIMIT {
            return Err(value.invalid());
        }
        Ok(Self { rate, cause, lasts })
    }

    fn fields(&self) -> [u64; 3] {
        let lasts = units::micros(self.lasts.min(MAX_LIMIT));
        [self.rate.as_bps(), self.cause as u64, lasts]
    }

    fn len(&self) -> usize {
        self.fields().map(varint::len).iter().sum()
    }
}

/// One that is not known says nothing.
fn bottleneck(code: u64) -> Bottleneck {
    u8::try_from(code).map_or(Bottleneck::Unknown, Bottleneck::from_code)
}

const RECEIVE_CAPACITY: u64 = 2;
const SOCKET_BUFFER: u64 = 4;
const INTAKE: u64 = 6;
const STORAGE: u64 = 8;
const LIMIT: u64 = 10;
const FORGOTTEN: u64 = 12;
