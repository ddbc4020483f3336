//! Large page-aligned memory: staging rings, buffers for direct I/O.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Zeroed private memory that begins at a page and asks for huge pages, which spare a gigabyte
/// of staging most of its page faults and TLB misses. Pages are taken when first touched.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

impl Pages {
    /// `len` bytes.
    ///
    /// # Errors
    /// `OutOfMemory` where the address space or a memory limit does not allow it, and
    /// `InvalidInput` for a length of zero.
    pub fn new(len: usize) -> io::Result<Self> {
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a private anonymous mapping at an address of the kernel's choice touches no
        // existing memory.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE)? };
        // SAFETY: the range is the mapping just made; this advice changes no contents. It may
        // fail on kernels without huge pages, which costs speed only.
        let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Takes every page now, so that the data path meets no page fault.
    pub fn touch(&mut self) {
        for byte in self.iter_mut().step_by(PAGE) {
            // Stored back unchanged; the black box keeps the compiler from leaving it out.
            *byte = std::hint::black_box(*byte);
        }
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is `len` initialised (zeroed) bytes, lives as long as `self`, and
        // is reached through `self` only, so that the borrow rules of `self` are its own.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the reference the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are those of the mapping, and no reference into it outlives
        // `self`. Unmapping a whole mapping does not fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping has one owner and no tie to the thread that made it.
unsafe impl Send for Pages {}
// SAFETY: shared references only read.
unsafe impl Sync for Pages {}

/// The smallest page size of the platforms supported.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_aligned_and_writable() {
        let mut pages = Pages::new(3 * PAGE + 1).unwrap();
        assert_eq!(pages.as_ptr().align_offset(PAGE), 0);
        assert!(pages.iter().all(|byte| *byte == 0));
        pages.touch();
        pages.fill(7);
        let pages = std::thread::spawn(move || pages).join().unwrap();
        assert_eq!(pages.len(), 3 * PAGE + 1);
        assert!(pages.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn impossible_lengths_are_errors() {
        assert!(Pages::new(0).is_err());
        assert!(Pages::new(usize::MAX / 2).is_err());
    }
}
