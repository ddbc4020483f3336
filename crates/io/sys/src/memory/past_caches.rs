//! Copies that leave the caches alone.
//!
//! An ordinary store to a line that is in no cache first fetches it, and later something else has to
//! leave the cache for it: three times the traffic of the bytes. Lines that are written whole by
//! streaming stores go straight to memory.

/// Copies `pieces`, one after the other, to the start of `into`, past the caches: for memory that is
/// read much later, after more than the caches hold. What is read soon is better copied the ordinary
/// way.
///
/// # Panics
/// When `into` is shorter than the pieces.
pub fn copy_past_caches<'p>(pieces: impl Iterator<Item = &'p [u8]> + Clone, into: &mut [u8]) {
    let len = pieces.clone().map(<[u8]>::len).sum();
    let into = &mut into[..len];
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has AVX-512F.
            unsafe { x86_64::copy_avx512(pieces, into) }
        } else {
            x86_64::copy::<x86_64::Sse2>(pieces, into);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut end = 0;
        for piece in pieces {
            into[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm512_loadu_si512,
        _mm512_stream_si512,
    };

    /// A cache line.
    #[repr(align(64))]
    struct Line([u8; LINE]);
    const LINE: usize = 64;

    /// Instructions that store a line past the caches.
    pub trait Streaming {
        /// Stores `from` to `to`.
        ///
        /// # Safety
        /// The CPU has the instructions; `to` may be written and begins a line. Before anybody reads
        /// it this thread has to run `sfence`.
        unsafe fn stream(from: &[u8; LINE], to: *mut [u8; LINE]);
    }

    /// What every x86-64 has.
    pub enum Sse2 {}

    impl Streaming for Sse2 {
        #[inline(always)]
        unsafe fn stream(from: &[u8; LINE], to: *mut [u8; LINE]) {
            let (from, to): (*const __m128i, *mut __m128i) = (from.as_ptr().cast(), to.cast());
            for i in 0..4 {
                // SAFETY: both are of four such words; the caller vouches for `to` and its
                // alignment.
                unsafe { _mm_stream_si128(to.add(i), _mm_loadu_si128(from.add(i))) };
            }
        }
    }

    enum Avx512 {}

    impl Streaming for Avx512 {
        #[inline(always)]
        unsafe fn stream(from: &[u8; LINE], to: *mut [u8; LINE]) {
            // SAFETY: both are one such word; the caller vouches for the CPU, `to` and its
            // alignment.
            unsafe { _mm512_stream_si512(to.cast(), _mm512_loadu_si512(from.as_ptr().cast())) };
        }
    }

    /// Stores a line to the start of `into`, where one begins.
    #[inline(always)]
    fn put<S: Streaming>(line: &[u8; LINE], into: &mut [u8]) {
        if let Some(place) = into.first_chunk_mut() {
            // SAFETY: `copy` keeps to lines, was called for what this CPU has, and ends with `sfence`.
            unsafe { S::stream(line, place) };
        }
    }

    #[target_feature(enable = "avx512f")]
    pub fn copy_avx512<'p>(pieces: impl Iterator<Item = &'p [u8]>, into: &mut [u8]) {
        copy::<Avx512>(pieces, into);
    }

    /// Copies `pieces` to `into`, which has their length.
    #[inline(always)]
    pub fn copy<'p, S: Streaming>(pieces: impl Iterator<Item = &'p [u8]>, into: &mut [u8]) {
        let mut before_lines = into.as_ptr().align_offset(LINE).min(into.len());
        let mut line = Line([0; LINE]);
        let mut filled = 0;
        let mut end = 0;
        for mut piece in pieces {
            if before_lines > 0 {
                let first;
                (first, piece) = piece.split_at(before_lines.min(piece.len()));
                into[end..end + first.len()].copy_from_slice(first);
                end += first.len();
                before_lines -= first.len();
            }
            if filled > 0 {
                let first;
                (first, piece) = piece.split_at((LINE - filled).min(piece.len()));
                line.0[filled..filled + first.len()].copy_from_slice(first);
                filled += first.len();
                if filled == LINE {
                    filled = 0;
                    put::<S>(&line.0, &mut into[end..]);
                    end += LINE;
                }
            }
            let (lines, rest) = piece.as_chunks::<LINE>();
            for line in lines {
                put::<S>(line, &mut into[end..]);
                end += LINE;
            }
            if !rest.is_empty() {
                line.0[..rest.len()].copy_from_slice(rest);
                filled = rest.len();
            }
        }
        into[end..end + filled].copy_from_slice(&line.0[..filled]);
        // SAFETY: every x86-64 has it. It comes before anything that may tell others of these bytes.
        unsafe { _mm_sfence() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of many lengths, to places that begin anywhere in a line.
    #[test]
    fn every_byte_comes_to_its_place_and_no_other_changes() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for length in [1, 3, 20, 63, 64, 65, 200, 1432] {
            for start in 0..70 {
                for len in [0, 1, 63, 64, 130, 4000] {
                    let mut memory = vec![0xee; 5000];
                    let pieces = bytes[..len].chunks(length);
                    copy_past_caches(pieces, &mut memory[start..]);
                    let (before, rest) = memory.split_at(start);
                    let (copied, behind) = rest.split_at(len);
                    assert!(copied == &bytes[..len], "{len} bytes by {length} at {start}");
                    assert!(before.iter().chain(behind).all(|byte| *byte == 0xee));
                }
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn it_is_the_same_without_avx512() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 31) as u8).collect();
        let mut memory = vec![0; 1000];
        x86_64::copy::<x86_64::Sse2>(bytes.chunks(77), &mut memory);
        assert_eq!(memory, bytes);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn too_little_room_is_noticed_before_anything_is_written() {
        copy_past_caches([&[1; 8][..]].into_iter(), &mut [0; 7]);
    }
}
