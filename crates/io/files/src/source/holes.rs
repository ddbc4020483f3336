//! Holes of files, which are not read.

use std::fs::File;

use longhaul_wire::DataRanges;
use rustix::fs::{SeekFrom, Stat, fstat, seek};
use rustix::io::Errno;

use crate::place::disk_bytes;
use crate::source::file_identity;

/// True if the file takes less room than its contents would: it may have holes, or be compressed.
pub(crate) fn may_have_holes(stat: &Stat) -> bool {
    let size = stat.st_size as u64;
    size > BLOCK && disk_bytes(stat) < size
}

/// Where the data of an open file is, if it has holes and is still as `stat` says. Where there are many, the
/// shortest are taken for data.
pub(crate) fn data_ranges(file: &File, stat: &Stat) -> Option<DataRanges> {
    let size = stat.st_size as u64;
    let mut ranges = Ranges::default();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // Its file system knows no holes.
            Err(_) => return None,
        };
        let end = seek(file, SeekFrom::Hole(start)).ok()?.min(size);
        if end <= start {
            break;
        }
        ranges.push(start / BLOCK * BLOCK, end.next_multiple_of(BLOCK).min(size));
        at = end;
    }
    let ranges = DataRanges::new(ranges.all)?;
    let now = fstat(file).ok()?;
    let is_as_it_was = file_identity(&now) == file_identity(stat);
    (ranges.fit(size) && is_as_it_was).then_some(ranges)
}

/// Ranges of data, of which holes shorter than `shortest` are part.
struct Ranges {
    all: Vec<std::ops::Range<u64>>,
    shortest: u64,
}

impl Default for Ranges {
    fn default() -> Self {
        Self { all: Vec::new(), shortest: BLOCK }
    }
}

impl Ranges {
    fn push(&mut self, start: u64, end: u64) {
        match self.all.last_mut() {
            Some(last) if start < last.end + self.shortest => last.end = last.end.max(end),
            _ => self.all.push(start..end),
        }
        while self.all.len() > RANGES_MAX {
            self.shortest *= 2;
            let all = std::mem::take(&mut self.all);
            all.into_iter().for_each(|range| self.push(range.start, range.end));
        }
    }
}

/// The least block of common file systems, and what direct I/O takes.
const BLOCK: u64 = 4096;
/// Ranges of one file: each takes 16 bytes of a MANIFEST at most, and of memory at both ends.
const RANGES_MAX: usize = 1 << 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_of_many_holes_are_taken_for_data() {
        let mut ranges = Ranges::default();
        for number in 0..10 * RANGES_MAX as u64 {
            let hole = if number % 100 == 0 { 4096 } else { 1 };
            ranges.push(number * 8192 * BLOCK, (number * 8192 + 8192 - hole) * BLOCK);
        }
        assert!(ranges.all.len() <= RANGES_MAX, "{}", ranges.all.len());
        assert_eq!(ranges.all.len(), (10 * RANGES_MAX).div_ceil(100) + 1);
        assert!(ranges.all.windows(2).all(|pair| pair[1].start - pair[0].end == 4096 * BLOCK));
    }
}
