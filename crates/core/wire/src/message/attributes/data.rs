use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::MAX_DATA_RANGES;
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// The parts of a file that have data, ascending, with a hole between two; the rest of the file is holes, which
/// are read as zeros and not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataRanges(Box<[Range<u64>]>);

impl DataRanges {
    /// These ranges, at most [`MAX_DATA_RANGES`]: none empty, ascending, a hole between two of them.
    pub fn new(ranges: Vec<Range<u64>>) -> Option<Self> {
        let mut past = None;
        let fits = ranges.len() <= MAX_DATA_RANGES
            && ranges.iter().all(|range| {
                let follows = past.is_none_or(|past| past < range.start);
                past = Some(range.end);
                follows && range.start < range.end && range.end <= varint::MAX
            });
        fits.then(|| Self(ranges.into()))
    }

    /// True if they are the data of a file of so many bytes, and not all of it.
    pub fn fit(&self, size: u64) -> bool {
        self.0.last().map_or(0, |last| last.end) <= size && self.total() < size
    }

    /// Their bytes.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// The ranges.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// The holes of a file of so many bytes.
    pub fn holes(&self, size: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut past = 0;
        let end = core::iter::once(size..size);
        let holes = self.0.iter().cloned().chain(end).map(move |range| {
            let hole = past..range.start;
            past = range.end;
            hole
        });
        holes.filter(|hole| !hole.is_empty())
    }

    /// Where `len` bytes of data, from number `from` on, are in the file: parts of it, in order.
    pub fn parts(&self, from: u64, len: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut before = 0;
        let all = self.0.iter().map(move |range| {
            let (first, len) = (before, range.end - range.start);
            before += len;
            (first..before, range.start)
        });
        let to = from.saturating_add(len);
        all.skip_while(move |(data, _)| data.end <= from)
            .take_while(move |(data, _)| data.start < to)
            .map(move |(data, at)| {
                let (start, end) = (data.start.max(from), data.end.min(to));
                at + (start - data.start)..at + (end - data.start)
            })
    }

    /// Each with the bytes of the hole before it.
    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut past = 0;
        self.0.iter().map(move |range| {
            let hole = range.start - past;
            past = range.end;
            (hole, range.end - range.start)
        })
    }

    pub(super) fn encoded_len(&self) -> usize {
        self.pairs().map(|(hole, len)| varint::len(hole) + varint::len(len)).sum()
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        self.pairs().try_for_each(|(hole, len)| {
            w.varint(hole)?;
            w.varint(len)
        })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes, "data of a file with holes");
        let (mut ranges, mut past) = (Vec::new(), 0u64);
        while !r.is_empty() {
            let start = past + r.varint()?;
            past = start + r.varint()?;
            if past > varint::MAX || ranges.len() == MAX_DATA_RANGES {
                return Err(r.invalid());
            }
            ranges.push(start..past);
        }
        Self::new(ranges).ok_or(r.invalid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn data_is_found_behind_holes() {
        let ranges = DataRanges::new(vec![10..20, 30..31, 40..50]).unwrap();
        assert_eq!(ranges.total(), 21);
        let parts = |from, len| ranges.parts(from, len).collect::<Vec<_>>();
        assert_eq!(parts(0, 21), [10..20, 30..31, 40..50]);
        assert_eq!(parts(5, 7), [15..20, 30..31, 40..41]);
        assert_eq!(parts(10, 3), [30..31, 40..42]);
        assert_eq!(parts(21, 5), []);
        let holes = |size| ranges.holes(size).collect::<Vec<_>>();
        assert_eq!(holes(51), [0..10, 20..30, 31..40, 50..51]);
        assert_eq!(holes(50), [0..10, 20..30, 31..40]);
    }

    #[test]
    fn ranges_ascend_with_holes_between() {
        let empty = core::iter::once(0..0).collect();
        for wrong in [empty, vec![1..3, 3..4], vec![1..3, 2..4], vec![5..6, 1..2]] {
            assert_eq!(DataRanges::new(wrong.clone()), None, "{wrong:?}");
        }
        assert!(DataRanges::new(vec![0..1; MAX_DATA_RANGES + 1]).is_none());
        let ranges = DataRanges::new(vec![0..3, 5..6]).unwrap();
        assert!(ranges.fit(6) && ranges.fit(7) && !ranges.fit(5));
        assert!(!DataRanges::new(vec![0..2, 3..6]).unwrap().fit(5), "beyond the end");
        let all = core::iter::once(0..6).collect();
        assert!(!DataRanges::new(all).unwrap().fit(6), "no hole");
        let hole = DataRanges::new(vec![]).unwrap();
        assert!(hole.fit(1) && !hole.fit(0));
    }
}
