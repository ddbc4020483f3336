//! Files by position, and a directory that nothing leads out of ([`ConfinedDir`]).
//!
//! Handles are [`std::fs::File`]: its `read_exact_at`, `write_all_at`, `sync_data` and `set_len`
//! already do the right thing about short and interrupted calls. Here is what it lacks.

mod confined;
mod lock;
mod positioned;
mod publish;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

pub use self::confined::{
    Access, ConfinedDir, ConfinedError, Create, DirEntry, Entries, FileOptions, is_mounted,
    is_same_mount, open_dir_beneath, open_dir_here,
};
pub use self::lock::FileLock;
pub use self::positioned::PositionedFile;
pub use self::publish::{Replace, temporary_name};
pub use rustix::fs::FileType;

/// Reads into all of `buffer` from `offset`, or as far as the file goes; returns how far.
pub fn read_up_to_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Result of [`preallocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The blocks are the file's: writing them cannot fail for want of space.
    Reserved,
    /// The file system cannot reserve. The file has its length, and may yet run out of space.
    Sparse,
}

/// Gives `file` a length up to the end of `part` at least, and the blocks for that part where possible.
///
/// # Errors
/// `StorageFull`, `QuotaExceeded` or `FileTooLarge` before a byte is moved, and other I/O errors.
pub fn preallocate(file: &File, part: Range<u64>) -> io::Result<Allocation> {
    if part.is_empty() {
        return Ok(Allocation::Reserved);
    }
    loop {
        let reserved = fallocate(file, FallocateFlags::empty(), part.start, part.end - part.start);
        return match reserved {
            Ok(()) => Ok(Allocation::Reserved),
            Err(Errno::INTR) => continue,
            // Only a want of room, or a disk that fails, would keep the file from its bytes.
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO | Errno::ROFS)) => {
                Err(error.into())
            }
            Err(_) => {
                if file.metadata()?.len() < part.end {
                    file.set_len(part.end)?;
                }
                Ok(Allocation::Sparse)
            }
        };
    }
}
