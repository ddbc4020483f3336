//! Files under their names whose contents are compared with the source's, and taken over where they are
//! equal.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use longhaul_objects::hash::{group_chaining_value, group_count, group_len};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{ChainingValue, ComparedFile, TempName};
use longhaul_sys::files::PositionedFile;
use longhaul_sys::memory::Pages;
use longhaul_wire::{Entry, EntryCode};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat, copy_file_range, fstat, seek};
use rustix::io::Errno;

use crate::large::large;
use crate::metadata::node::Node;
use crate::place::open_at;
use crate::sink::inherited::Parent;
use crate::sink::{LastDirectory, SinkTree};
use crate::source::read;

/// A file that is read by groups.
pub(crate) struct Contents {
    file: PositionedFile,
    buffer: Pages,
}

impl Contents {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        Self::of(PositionedFile::new(file))
    }

    fn of(file: PositionedFile) -> io::Result<Self> {
        Ok(Self { file, buffer: Pages::new(GROUP_SIZE as usize)? })
    }

    /// Those of `groups` of `entry` that the file has; none of which cannot be read.
    pub(crate) fn equal(
        &mut self,
        entry: &Entry,
        groups: &[(u32, ChainingValue)],
    ) -> Vec<(u32, ChainingValue)> {
        let only = group_count(entry.size) == 1;
        let mut is_equal = |group: u32, value: &ChainingValue| {
            let data = self.read(entry, group);
            data.is_ok_and(|data| group_chaining_value(data, group, only) == *value)
        };
        groups.iter().filter(|(group, value)| is_equal(*group, value)).copied().collect()
    }

    fn read(&mut self, entry: &Entry, group: u32) -> io::Result<&[u8]> {
        let data = &mut self.buffer[..group_len(entry.size, group) as usize];
        let len = read(&self.file, data, u64::from(group) * GROUP_SIZE)?;
        match len == data.len() {
            true => Ok(data),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl SinkTree {
    /// See [`longhaul_objects::Action::CompareContents`].
    pub(crate) fn compare_contents(
        &self,
        compared: &ComparedFile,
        last: &mut Option<LastDirectory>,
    ) -> io::Result<Vec<(u32, ChainingValue)>> {
        let entry = &*compared.file.entry;
        let file = self.open_under_name(entry, last)?;
        let direct = self.direct && entry.size >= GROUP_SIZE;
        Ok(Contents::of(large(file, direct)?)?.equal(entry, &compared.groups))
    }

    /// Copies groups of the file that has the name into the unpublished one: by reference, where the file
    /// system can.
    pub(crate) fn take_over(
        &self,
        entry: &Entry,
        temp: TempName,
        groups: &[(u32, ChainingValue)],
        last: &mut Option<LastDirectory>,
    ) -> io::Result<()> {
        let from = self.open_under_name(entry, last)?;
        let to = self.open_file(temp)?;
        let _turn = to.turn();
        for (group, _) in groups {
            let start = u64::from(*group) * GROUP_SIZE;
            copy_range(&from, to.file(), start, group_len(entry.size, *group) as usize)?;
        }
        Ok(())
    }

    /// See [`longhaul_objects::Action::MendExisting`].
    pub(crate) fn mend(
        &self,
        entry: &Entry,
        last: &mut Option<LastDirectory>,
    ) -> io::Result<EntryCode> {
        let look = |parent: &Parent, name: &[u8]| {
            let file = open_existing(parent, name, entry).ok()?;
            let stat = fstat(&file).ok()?;
            let file = may_be_all_holes(file, entry).ok()?;
            let was_mended = self.keeping.mend_node(&Node::open(&file), parent, &stat, entry);
            Some((file, stat, was_mended))
        };
        let (file, stat, was_mended) =
            self.look_in_place(entry, last, look).ok_or(io::ErrorKind::NotFound)?;
        let got_time = self.mend_time(&file, &stat, entry)?;
        Ok(mended(was_mended || got_time))
    }

    fn open_under_name(&self, entry: &Entry, last: &mut Option<LastDirectory>) -> io::Result<File> {
        let look = |parent: &Parent, name: &[u8]| open_existing(parent, name, entry).ok();
        self.look_in_place(entry, last, look).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The code of an entry whose contents are there.
pub(crate) fn mended(was_changed: bool) -> EntryCode {
    if was_changed { EntryCode::Mended } else { EntryCode::Unchanged }
}

/// The same file, unless `entry` is all holes and that has more than zeros.
pub(crate) fn may_be_all_holes(file: File, entry: &Entry) -> io::Result<File> {
    if entry.size == 0 || entry.data_len() > 0 {
        return Ok(file);
    }
    let mut contents = Contents::new(file.try_clone()?)?;
    let mut at = 0;
    while at < entry.size {
        match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => at = start,
            Err(Errno::NXIO) => break,
            // Its file system knows no holes.
            Err(_) => {}
        }
        let group = at / GROUP_SIZE;
        if contents.read(entry, group as u32)?.iter().any(|byte| *byte != 0) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        at = (group + 1) * GROUP_SIZE;
    }
    Ok(file)
}

/// Opens the file of that name, if it has the size of `entry`.
pub(crate) fn open_existing(parent: impl AsFd, name: &[u8], entry: &Entry) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open_at(parent, name, flags, Mode::empty())?);
    let stat: Stat = fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    match is_file && stat.st_size as u64 == entry.size {
        true => Ok(file),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Copies bytes to the same place of another file.
fn copy_range(from: &File, to: &File, start: u64, len: usize) -> io::Result<()> {
    let (mut read_at, mut write_at, mut left) = (start, start, len);
    while left > 0 {
        let copied = copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), left);
        match copied {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => left -= count,
            // Of another file system, or one that cannot do it.
            Err(_) => {
                let mut data = vec![0; left];
                from.read_exact_at(&mut data, read_at)?;
                return to.write_all_at(&data, write_at);
            }
        }
    }
    Ok(())
}
