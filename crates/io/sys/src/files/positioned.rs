//! Files read and written at positions, through the page cache or past it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
use rustix::io::Errno;

use super::read_up_to_at;

/// A file whose whole blocks may go past the page cache (`O_DIRECT`). Both ways lead to the same
/// contents.
#[derive(Debug)]
pub struct PositionedFile {
    file: File,
    /// The same file, opened once more.
    direct: Option<File>,
}

impl PositionedFile {
    /// All of it through the page cache.
    pub fn new(file: File) -> Self {
        Self { file, direct: None }
    }

    /// Whole blocks past the page cache.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no direct I/O; those of opening it once more, which
    /// needs `/proc`.
    pub fn direct(file: File) -> io::Result<Self> {
        let access = fcntl_getfl(&file)? & OFlags::RWMODE;
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        match open(again, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()) {
            Ok(direct) => Ok(Self { file, direct: Some(direct.into()) }),
            Err(Errno::INVAL) => Err(io::ErrorKind::Unsupported.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The file, through the page cache.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads what may go past the page cache of the first bytes of `into`, from `offset`. Returns how
    /// many those are, fewer than may go so only where the file ends.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_blocks_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let blocks = blocks(into, offset);
        let direct = self.direct.as_ref();
        direct.map_or(Ok(0), |file| read_up_to_at(file, &mut into[..blocks], offset))
    }

    /// Writes what may go past the page cache of the first bytes of `data`, from `offset`. Returns how
    /// many those are.
    ///
    /// # Errors
    /// Those of `pwrite`.
    pub fn write_blocks_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        let blocks = blocks(data, offset);
        let direct = self.direct.as_ref();
        direct.map_or(Ok(0), |file| file.write_all_at(&data[..blocks], offset).map(|()| blocks))
    }
}

/// Bytes at the start of `memory` that may go past the page cache to or from `offset`.
fn blocks(memory: &[u8], offset: u64) -> usize {
    let is_aligned =
        memory.as_ptr().addr().is_multiple_of(BLOCK) && offset.is_multiple_of(BLOCK as u64);
    if is_aligned { memory.len() / BLOCK * BLOCK } else { 0 }
}

/// Enough for the block size of any common device and for the page size.
pub(super) const BLOCK: usize = 4096;
