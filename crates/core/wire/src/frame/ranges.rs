use core::fmt;
use core::ops::Range;

use crate::error::DecodeError;
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// Which packet numbers of a span were received, as FEEDBACK carries it
/// (docs/protocol.md section 5.4).
///
/// A view of encoded bytes: the counts of missing and received numbers in turn, which add up to
/// the span. They are checked when the view is made, so reading them cannot fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ranges<'a> {
    from: u64,
    to: u64,
    encoded: &'a [u8],
}

impl<'a> Ranges<'a> {
    /// A report about no numbers.
    pub const EMPTY: Ranges<'static> = Ranges { from: 0, to: 0, encoded: &[0] };

    /// Reports the numbers of `span`, the lowest first, as far as `buffer` has room.
    ///
    /// `received` are the ranges of received numbers, ascending, with a gap between each and the
    /// next ([`longhaul_units::RangeSet::iter_from`]); what lies outside of `span` is left out.
    /// [`Self::to`] tells how far the report got: the end of the span, or the end of the last
    /// range that fitted. A buffer of 16 bytes holds at least one range.
    pub fn lowest(
        buffer: &'a mut [u8],
        span: Range<u64>,
        received: impl IntoIterator<Item = Range<u64>>,
    ) -> Self {
        let mut writer = Writer::new(buffer);
        // Numbers below `at` are written.
        let mut at = span.start;
        let mut whole = true;
        for range in received {
            let range = range.start.max(at)..range.end.min(span.end);
            if range.is_empty() {
                continue;
            }
            let (missing, count) = (range.start - at, range.end - range.start);
            let touches = missing == 0 && !writer.is_empty();
            if touches || varint::len(missing) + varint::len(count) > writer.room() {
                whole = false;
                break;
            }
            // Room was checked, so both are written.
            let _ = writer.varint(missing);
            let _ = writer.varint(count);
            at = range.end;
        }
        let rest = span.end.saturating_sub(at);
        if whole && rest > 0 && writer.varint(rest).is_ok() {
            at = span.end;
        }
        let len = writer.len();
        let encoded = if len == 0 { Self::EMPTY.encoded } else { &buffer[..len] };
        Self { from: span.start, to: at, encoded }
    }

    /// Reports the numbers of `span`, the highest first, as far as `buffer` has room.
    ///
    /// As [`Self::lowest`], but `received` descends ([`Iterator::rev`]) and
    /// [`Self::from`] tells how far down the report got. A buffer of 17 bytes holds at least one
    /// range.
    pub fn highest(
        buffer: &'a mut [u8],
        span: Range<u64>,
        received: impl IntoIterator<Item = Range<u64>>,
    ) -> Self {
        let mut buffer = Backwards { buffer, start: usize::MAX };
        buffer.start = buffer.buffer.len();
        // Numbers at or above `at` are written.
        let mut at = span.end;
        let mut whole = true;
        for range in received {
            let range = range.start.max(span.start)..range.end.min(at);
            if range.is_empty() {
                continue;
            }
            let (missing, count) = (at - range.end, range.end - range.start);
            let missing_len = if missing > 0 { varint::len(missing) } else { 0 };
            let touches = missing == 0 && at != span.end;
            // One byte stays free for a first gap of zero.
            if touches || missing_len + varint::len(count) + 1 > buffer.start {
                whole = false;
                break;
            }
            if missing > 0 {
                buffer.put(missing);
            }
            buffer.put(count);
            at = range.start;
        }
        let mut first_gap = at.saturating_sub(span.start);
        if !whole || varint::len(first_gap) > buffer.start {
            first_gap = 0;
        }
        if buffer.start == 0 {
            return Self { from: span.end, to: span.end, encoded: Self::EMPTY.encoded };
        }
        buffer.put(first_gap);
        let Backwards { buffer, start } = buffer;
        Self { from: at - first_gap, to: span.end, encoded: &buffer[start..] }
    }

    /// Reads the counts of a report about `from..to`.
    pub(crate) fn decode(from: u64, to: u64, encoded: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(encoded, WHAT);
        let mut left = to.checked_sub(from).ok_or(reader.invalid())?;
        let mut count = reader.varint()?;
        let mut least = 0;
        loop {
            if count < least || count > left {
                return Err(reader.invalid());
            }
            left -= count;
            if reader.is_empty() {
                break;
            }
            count = reader.varint()?;
            least = 1;
        }
        if left > 0 {
            return Err(reader.invalid());
        }
        Ok(Self { from, to, encoded })
    }

    /// First number that the report covers.
    pub const fn from(&self) -> u64 {
        self.from
    }

    /// One past the last number that the report covers.
    pub const fn to(&self) -> u64 {
        self.to
    }

    /// The received ranges, ascending, with a gap between each and the next. What the report
    /// covers besides is missing.
    pub const fn iter(&self) -> ReceivedRanges<'a> {
        ReceivedRanges { at: self.from, reader: Reader::new(self.encoded, WHAT) }
    }

    pub(crate) const fn encoded(&self) -> &'a [u8] {
        self.encoded
    }
}

impl<'a> IntoIterator for Ranges<'a> {
    type Item = Range<u64>;
    type IntoIter = ReceivedRanges<'a>;
    fn into_iter(self) -> ReceivedRanges<'a> {
        self.iter()
    }
}

impl fmt::Debug for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{} ", self.from, self.to)?;
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The received ranges of a [`Ranges`], ascending.
#[derive(Clone, Debug)]
pub struct ReceivedRanges<'a> {
    at: u64,
    reader: Reader<'a>,
}

impl Iterator for ReceivedRanges<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let missing = self.reader.varint().ok()?;
        let count = self.reader.varint().ok()?;
        // The sum was checked against the span.
        let start = self.at + missing;
        self.at = start + count;
        Some(start..self.at)
    }
}

/// Writes counts in front of each other.
struct Backwards<'a> {
    buffer: &'a mut [u8],
    start: usize,
}

impl Backwards<'_> {
    /// Writes `count`, for which the caller has checked the room.
    fn put(&mut self, count: u64) {
        let (form, len) = varint::encode(count);
        let end = self.start;
        self.start -= len;
        self.buffer[self.start..end].copy_from_slice(&form[..len]);
    }
}

const WHAT: &str = "FEEDBACK ranges";

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use longhaul_units::RangeSet;
    use proptest::prelude::*;

    fn all(ranges: Ranges<'_>) -> Vec<Range<u64>> {
        ranges.iter().collect()
    }

    #[test]
    fn literal_bytes() {
        let ranges = Ranges::decode(10, 30, &[2, 3, 5, 10]).unwrap();
        assert_eq!(all(ranges), [12..15, 20..30]);
        assert!(Ranges::decode(10, 20, &[2, 3, 5]).unwrap().iter().eq(core::iter::once(12..15)));
        assert_eq!(all(Ranges::decode(10, 21, &[0, 3, 5, 3]).unwrap()), [10..13, 18..21]);
        assert_eq!(all(Ranges::decode(10, 10, &[0]).unwrap()), []);
        assert_eq!(all(Ranges::decode(10, 15, &[5]).unwrap()), []);
    }

    #[test]
    fn counts_must_cover_the_span() {
        for (from, to, encoded) in [
            (10, 30, &[2, 3][..]),
            (10, 30, &[2, 30]),
            (10, 30, &[21]),
            (10, 30, &[2, 0, 18]),
            (10, 30, &[2, 3, 0, 15]),
            (10, 30, &[]),
            (10, 30, &[2, 0x40]),
            (30, 10, &[0]),
            (0, varint::MAX, &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            assert!(Ranges::decode(from, to, encoded).is_err(), "{from}..{to} {encoded:?}");
        }
    }

    #[test]
    fn cut_to_the_room() {
        let received = [12..15, 20..24, 100..4_000];
        let mut buffer = [0xa5; 16];
        for (room, to, encoded) in [
            (0, 10, &[0][..]),
            (1, 10, &[0]),
            (2, 15, &[2, 3]),
            (4, 24, &[2, 3, 5, 4]),
            (6, 24, &[2, 3, 5, 4]),
            (8, 4_000, &[2, 3, 5, 4, 0x40, 76, 0x4f, 0x3c]),
            (9, 4_001, &[2, 3, 5, 4, 0x40, 76, 0x4f, 0x3c, 1]),
        ] {
            let ranges = Ranges::lowest(&mut buffer[..room], 10..4_001, received.clone());
            assert_eq!((ranges.from(), ranges.to()), (10, to));
            assert_eq!(ranges.encoded(), encoded, "room {room}");
        }
        for (room, from, encoded) in [
            (0, 4_001, &[0][..]),
            (1, 4_001, &[0]),
            (3, 4_001, &[0]),
            (4, 100, &[0, 0x4f, 0x3c, 1]),
            (7, 20, &[0, 4, 0x40, 76, 0x4f, 0x3c, 1]),
            (9, 10, &[2, 3, 5, 4, 0x40, 76, 0x4f, 0x3c, 1]),
        ] {
            let newest = received.clone().into_iter().rev();
            let ranges = Ranges::highest(&mut buffer[..room], 10..4_001, newest);
            assert_eq!(ranges.encoded(), encoded, "room {room}");
            assert_eq!((ranges.from(), ranges.to()), (from, 4_001));
        }
    }

    proptest! {
        #[test]
        fn a_report_says_what_the_set_says(
            parts in prop::collection::vec((0u64..100_000, 1u64..2_000), 0..40),
            from in 0u64..100_000, len in 0u64..60_000, room in 0usize..80,
        ) {
            let mut set = RangeSet::new();
            for (start, len) in parts {
                set.insert(start..start + len);
            }
            let to = from + len;
            let mut one = [0xa5; 80];
            let mut other = [0xa5; 80];
            let lowest = Ranges::lowest(&mut one[..room], from..to, set.iter_from(from));
            let highest = Ranges::highest(&mut other[..room], from..to, set.iter().rev());
            prop_assert_eq!(lowest.from(), from);
            prop_assert_eq!(highest.to(), to);
            for ranges in [lowest, highest] {
                let (from, to) = (ranges.from(), ranges.to());
                prop_assert_eq!(Ranges::decode(from, to, ranges.encoded()), Ok(ranges));
                let mut decoded = RangeSet::new();
                for range in ranges {
                    decoded.insert(range);
                }
                let missing: Vec<_> = set.gaps(from..to).collect();
                prop_assert_eq!(decoded.gaps(from..to).collect::<Vec<_>>(), missing);
                prop_assert!(room < 17 || to > from || len == 0, "no progress");
            }
        }

        #[test]
        fn any_bytes(from: u64, to: u64, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(ranges) = Ranges::decode(from, to, &bytes) {
                let mut end = from;
                for range in ranges {
                    prop_assert!(end <= range.start && range.start < range.end);
                    end = range.end;
                }
                prop_assert!(end <= to);
            }
        }
    }
}
