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
        Self::pieces(len, 1)?.pop().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// `count` pieces of `len` bytes, a multiple of the page size if there are several. They lie
    /// side by side: pieces smaller than a huge page share one.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn pieces(len: usize, count: usize) -> io::Result<Vec<Self>> {
        let total = len.checked_mul(count).ok_or(io::ErrorKind::OutOfMemory)?;
        if total == 0 || (count > 1 && !len.is_multiple_of(PAGE)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let start = map(total)?;
        // SAFETY: the range is the mapping just made; this advice changes no contents. It may
        // fail on kernels without huge pages, which costs speed only.
        let _ = unsafe { madvise(start.as_ptr().cast(), total, Advice::LinuxHugepage) };
        // SAFETY: the same range; only a child that is about to become another program lacks it. With
        // it, to start one would take as much memory again, which the kernel may refuse.
        unsafe { madvise(start.as_ptr().cast(), total, Advice::LinuxDontFork)? };
        // SAFETY: the pieces divide the `total` bytes that are mapped from `start` on.
        let piece = |index| unsafe { start.add(index * len) };
        Ok((0..count).map(|index| Self { start: piece(index), len }).collect())
    }

    /// Takes every page now, so that the data path meets no page fault.
    pub fn touch(&mut self) {
        self.touch_first(self.len);
    }

    /// As [`Self::touch`], for the first `most` bytes.
    pub fn touch_first(&mut self, most: usize) {
        for byte in self.iter_mut().take(most).step_by(PAGE) {
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
        // SAFETY: nothing else owns these pages, and no reference into them outlives `self`.
        // Unmapping may fail only where it splits a mapping and the process has too many; the
        // pages then stay mapped, which is safe.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Begins to bring `bytes` into the cache, to be read or written soon. What one instruction after the
/// other needs arrives one after the other; what is asked for beforehand comes side by side. Does
/// nothing on processors that this is not written for.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(CACHE_LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing that a program sees and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Free memory that stays this machine's own as long as this value lives.
///
/// A virtual machine may give pieces of free memory back to its host (free page reporting), huge page
/// by huge page. The next user of them waits for the host, up to ten times as long as for writing
/// to them: no property of the program that is being measured. Of each such piece this holds one
/// small page, so that no piece is ever free as a whole; the rest is anybody's.
#[derive(Debug)]
pub struct HeldPages {
    /// Held until it is dropped.
    _pages: Pages,
}

impl HeldPages {
    /// In memory of `len` bytes, which it needs for a moment.
    ///
    /// # Errors
    /// As for [`Pages::new`].
    pub fn new(len: usize) -> io::Result<Self> {
        let mut pages = Pages::new(len)?;
        let start: *mut std::ffi::c_void = pages.start.as_ptr().cast();
        // SAFETY: the range is the mapping that `pages` owns; this advice changes no contents. Where
        // the kernel has no huge pages it is not needed.
        let _ = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
        pages.fill(1);
        for given_up in (0..len).step_by(HELD_PAGE_DISTANCE).map(|held| held + PAGE) {
            let behind = len.saturating_sub(given_up).min(HELD_PAGE_DISTANCE - PAGE);
            if behind > 0 {
                // SAFETY: the range lies within the mapping, no reference to it is left, and what was
                // written there is nobody's: the pages read as zeros from now on.
                unsafe { madvise(start.byte_add(given_up), behind, Advice::LinuxDontNeed)? };
            }
        }
        Ok(Self { _pages: pages })
    }
}

// SAFETY: the mapping has one owner and no tie to the thread that made it.
unsafe impl Send for Pages {}
// SAFETY: shared references only read.
unsafe impl Sync for Pages {}

/// `len` bytes of new memory, from the start of a huge page if they fill one.
fn map(len: usize) -> io::Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let spare = if len < HUGE_PAGE { 0 } else { HUGE_PAGE - PAGE };
    let all = len.checked_next_multiple_of(PAGE).and_then(|len| len.checked_add(spare));
    let all = all.ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a private anonymous mapping at an address of the kernel's choice touches no
    // existing memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), all, access, MapFlags::PRIVATE)? };
    let start: *mut u8 = start.cast();
    let before = if spare == 0 { 0 } else { start.align_offset(HUGE_PAGE) };
    let behind = spare - before;
    // SAFETY: both ranges are whole pages of the mapping just made that nobody was given: at
    // most `spare` bytes before the aligned start, the rest of `spare` at the end.
    unsafe {
        if before > 0 {
            munmap(start.cast(), before)?;
        }
        if behind > 0 {
            munmap(start.add(all - behind).cast(), behind)?;
        }
        NonNull::new(start.add(before)).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

/// The smallest page size of the platforms supported.
const PAGE: usize = 4096;
#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;
/// The smallest pieces that go to a host are huge pages, of which neighbours in a mapping may be anywhere: two
/// held pages in each miss few.
const HELD_PAGE_DISTANCE: usize = HUGE_PAGE / 2;
/// The smallest huge page of the platforms supported.
const HUGE_PAGE: usize = 2 << 20;

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
    fn pieces_lie_side_by_side_in_huge_pages_and_go_one_by_one() {
        let mut pieces = Pages::pieces(HUGE_PAGE / 2, 4).unwrap();
        let at = |piece: &Pages| piece.as_ptr() as usize;
        let first = at(&pieces[0]);
        assert_eq!(first % HUGE_PAGE, 0);
        for (index, piece) in pieces.iter_mut().enumerate() {
            assert_eq!(at(piece), first + index * HUGE_PAGE / 2);
            piece.fill(index as u8);
        }
        drop(pieces.remove(1));
        for (piece, value) in pieces.iter().zip([0, 2, 3]) {
            assert!(piece.iter().all(|byte| *byte == value));
        }
    }

    #[test]
    fn much_of_it_does_not_keep_commands_from_being_started() {
        let machine = rustix::system::sysinfo();
        let memory = (machine.totalram as usize).saturating_mul(machine.mem_unit as usize);
        let most = memory / 4 * 3 / HUGE_PAGE * HUGE_PAGE;
        // Side by side they are one mapping to the kernel, of more than there is.
        let (_one, _other) = (Pages::new(most).unwrap(), Pages::new(most).unwrap());
        let mut command = std::process::Command::new("true");
        crate::netns::die_with_starter(&mut command);
        assert!(command.status().unwrap().success());
    }

    #[test]
    fn a_foothold_holds_a_page_of_each_piece_and_gives_up_the_rest() {
        let len = 3 * HELD_PAGE_DISTANCE + PAGE;
        let held_pages = HeldPages::new(len).unwrap();
        for (index, page) in held_pages._pages.chunks(PAGE).enumerate() {
            let held = (index * PAGE).is_multiple_of(HELD_PAGE_DISTANCE);
            assert!(page.iter().all(|byte| *byte == u8::from(held)), "{index}");
        }
        assert!(HeldPages::new(0).is_err());
    }

    #[test]
    fn impossible_lengths_are_errors() {
        assert!(Pages::new(0).is_err());
        assert!(Pages::new(usize::MAX / 2).is_err());
        assert!(Pages::new(usize::MAX).is_err());
        assert!(Pages::pieces(PAGE, 0).is_err());
        assert!(Pages::pieces(PAGE + 1, 2).is_err());
        assert!(Pages::pieces(PAGE, usize::MAX).is_err());
    }
}
