use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::RangeSet;
use longhaul_wire::Entry;

use crate::entry::EntryId;
use crate::hash::{group_count, group_len};
use crate::limits::GROUP_SIZE;

/// Layout of an object: the contents of files without their holes, one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    size: u64,
    /// Each file with contents and its first byte, ascending.
    files: Vec<(EntryId, u64)>,
    is_large: bool,
}

/// A part of a group that belongs to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) entry: EntryId,
    /// Among the bytes of the file that are data.
    pub(crate) file_offset: u64,
    pub(crate) group_offset: u32,
    pub(crate) len: u32,
}

impl Part {
    /// The pieces of it that lie together in the file: offset there, offset within the group, bytes.
    pub(crate) fn pieces(self, entry: &Entry) -> impl Iterator<Item = (u64, u32, u32)> + '_ {
        let mut at = self.group_offset;
        entry.parts(self.file_offset, u64::from(self.len)).map(move |part| {
            let (offset, len) = (at, (part.end - part.start) as u32);
            at += len;
            (part.start, offset, len)
        })
    }
}

impl Layout {
    pub(crate) const fn new() -> Self {
        Self { size: 0, files: Vec::new(), is_large: false }
    }

    /// That of a large file, on its own.
    pub(crate) fn of_large(entry: EntryId, size: u64) -> Self {
        Self { size, files: Vec::from([(entry, 0)]), is_large: true }
    }

    pub(crate) fn push(&mut self, entry: EntryId, size: u64) {
        self.files.push((entry, self.size));
        self.size += size;
    }

    /// Takes `entries`, those of this object, out of `unchanged`, and leaves out the files among them; those
    /// behind them move up.
    pub(crate) fn leave_out(&mut self, entries: Range<u64>, unchanged: &mut RangeSet) {
        let next = unchanged.iter_from(entries.start).next();
        if next.is_some_and(|range| range.start < entries.end) {
            self.retain(|entry| !unchanged.contains(u64::from(entry.0)));
            unchanged.remove(entries);
        }
    }

    fn retain(&mut self, stays: impl Fn(EntryId) -> bool) {
        let (files, end) = (core::mem::take(&mut self.files), core::mem::take(&mut self.size));
        for (index, (entry, start)) in files.iter().enumerate() {
            let next = files.get(index + 1).map_or(end, |next| next.1);
            if stays(*entry) {
                self.push(*entry, next - start);
            }
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// True if this is a large file on its own, not a bundle.
    pub(crate) fn is_large(&self) -> bool {
        self.is_large && !self.files.is_empty()
    }

    pub(crate) fn groups(&self) -> u32 {
        group_count(self.size)
    }

    pub(crate) fn group_len(&self, group: u32) -> u32 {
        group_len(self.size, group)
    }

    pub(crate) fn files(&self) -> impl DoubleEndedIterator<Item = EntryId> + '_ {
        self.files.iter().map(|(entry, _)| *entry)
    }

    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Index of the file in [`Self::files`].
    pub(crate) fn index_of(&self, entry: EntryId) -> Option<usize> {
        self.files.binary_search_by_key(&entry, |file| file.0).ok()
    }

    /// The groups that hold bytes of the file at `index` of [`Self::files`].
    pub(crate) fn groups_of(&self, index: usize) -> Range<u32> {
        let start = self.files[index].1;
        let end = self.files.get(index + 1).map_or(self.size, |next| next.1);
        (start / GROUP_SIZE) as u32..end.div_ceil(GROUP_SIZE) as u32
    }

    /// Bytes of the file that are in these `counted` groups.
    pub(crate) fn bytes_of(&self, entry: EntryId, counted: impl Fn(u32) -> bool) -> u64 {
        let Some(index) = self.index_of(entry) else { return 0 };
        let start = self.files[index].1;
        let end = self.files.get(index + 1).map_or(self.size, |next| next.1);
        let bytes = |group: u32| {
            let from = u64::from(group) * GROUP_SIZE;
            end.min(from + GROUP_SIZE) - start.max(from)
        };
        self.groups_of(index).filter(|group| counted(*group)).map(bytes).sum()
    }

    /// The parts of `group`, ascending.
    pub(crate) fn parts(&self, group: u32) -> impl Iterator<Item = Part> + '_ {
        let start = u64::from(group) * GROUP_SIZE;
        let end = start + u64::from(self.group_len(group));
        let first = self.files.partition_point(|file| file.1 <= start).saturating_sub(1);
        (first..self.files.len()).map_while(move |index| {
            let (entry, file_start) = self.files[index];
            if file_start.max(start) >= end {
                return None;
            }
            let file_end = self.files.get(index + 1).map_or(self.size, |next| next.1);
            let from = file_start.max(start);
            Some(Part {
                entry,
                file_offset: from - file_start,
                group_offset: (from - start) as u32,
                len: (file_end.min(end) - from) as u32,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_move_up_where_others_are_left_out() {
        let mut layout = Layout::new();
        (0..5).for_each(|entry| layout.push(EntryId(entry), u64::from(entry) + 1));
        layout.retain(|entry| entry.0 % 2 == 1);
        assert_eq!((layout.size(), layout.groups()), (2 + 4, 1));
        assert_eq!(layout.files().collect::<Vec<_>>(), [EntryId(1), EntryId(3)]);
        let parts: Vec<_> = layout.parts(0).map(|part| (part.group_offset, part.len)).collect();
        assert_eq!(parts, [(0, 2), (2, 4)]);
        layout.retain(|_| false);
        assert_eq!((layout.size(), layout.groups(), layout.parts(0).count()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn parts_cover_every_byte_once(
            sizes in prop::collection::vec(1u64..GROUP_SIZE, 1..20), alone in 1u64..5 * GROUP_SIZE
        ) {
            for sizes in [sizes, alloc::vec![alone]] {
                let mut layout = Layout::new();
                for (entry, size) in sizes.iter().enumerate() {
                    layout.push(EntryId(entry as u32 * 2), *size);
                }
                let mut read = alloc::vec![0u64; sizes.len()];
                for group in 0..layout.groups() {
                    let mut at = 0;
                    for part in layout.parts(group) {
                        let index = part.entry.0 as usize / 2;
                        prop_assert_eq!(part.group_offset, at);
                        prop_assert_eq!(part.file_offset, read[index]);
                        prop_assert!(part.len > 0);
                        prop_assert!(layout.groups_of(index).contains(&group));
                        read[index] += u64::from(part.len);
                        at += part.len;
                    }
                    prop_assert_eq!(at, layout.group_len(group));
                }
                for (index, (size, read)) in sizes.iter().zip(&read).enumerate() {
                    let bytes = |counted: &dyn Fn(u32) -> bool| {
                        layout.bytes_of(EntryId(index as u32 * 2), counted)
                    };
                    prop_assert_eq!((bytes(&|_| true), read), (*size, size));
                    let groups = 0..layout.groups();
                    let each: u64 = groups.map(|group| bytes(&|other| other == group)).sum();
                    prop_assert_eq!(each, *size);
                }
                prop_assert_eq!(layout.parts(layout.groups()).count(), 0);
            }
        }
    }
}
