//! Eight words side by side, in whatever registers there are.

#[cfg(target_arch = "x86_64")]
pub(super) use self::x86::{Avx2, Avx512};

use super::{Group, LANES, WORDS, word};

/// The operations of SipHash on the same word of eight states.
///
/// Implementations for vector registers may only be reached from code that runs on a CPU with the
/// instructions; [`super::HeaderMac`] sees to that.
pub(super) trait Lanes: Copy {
    fn splat(word: u64) -> Self;
    /// The words of eight headers: the first of each, the second of each, and so on.
    fn load(headers: &Group) -> [Self; WORDS];
    fn store(self) -> [u64; LANES];
    fn add(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// To the left by `LEFT`; `RIGHT` is what is missing to 64.
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self;
}

/// Eight plain words.
#[derive(Clone, Copy)]
pub(super) struct Words([u64; LANES]);

impl Lanes for Words {
    #[inline(always)]
    fn splat(word: u64) -> Self {
        Self([word; LANES])
    }

    #[inline(always)]
    fn load(headers: &Group) -> [Self; WORDS] {
        std::array::from_fn(|index| {
            Self(headers.map(|header| word(&header[8 * index..8 * index + 8])))
        })
    }

    #[inline(always)]
    fn store(self) -> [u64; LANES] {
        self.0
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane].wrapping_add(other.0[lane])))
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] ^ other.0[lane]))
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane].rotate_left(LEFT as u32)))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Group, LANES, Lanes, WORDS};

    /// Two registers of four words.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(__m256i, __m256i);

    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(word: u64) -> Self {
            // SAFETY: the trait asks its users for a CPU with AVX2.
            let half = unsafe { _mm256_set1_epi64x(word as i64) };
            Self(half, half)
        }

        #[inline(always)]
        fn load(headers: &Group) -> [Self; WORDS] {
            // SAFETY: the trait asks its users for a CPU with AVX2.
            let (low, high) = unsafe { (transpose(headers, 0), transpose(headers, 4)) };
            std::array::from_fn(|index| Self(low[index], high[index]))
        }

        #[inline(always)]
        fn store(self) -> [u64; LANES] {
            let mut words = [0; LANES];
            let start = words.as_mut_ptr().cast::<__m256i>();
            // SAFETY: as above; the array has the 64 bytes that two unaligned stores write.
            unsafe {
                _mm256_storeu_si256(start, self.0);
                _mm256_storeu_si256(start.add(1), self.1);
            }
            words
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: the trait asks its users for a CPU with AVX2.
            unsafe { Self(_mm256_add_epi64(self.0, other.0), _mm256_add_epi64(self.1, other.1)) }
        }

        #[inline(always)]
        fn xor(self, other: Self) -> Self {
            // SAFETY: the trait asks its users for a CPU with AVX2.
            unsafe { Self(_mm256_xor_si256(self.0, other.0), _mm256_xor_si256(self.1, other.1)) }
        }

        #[inline(always)]
        fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
            // SAFETY: the trait asks its users for a CPU with AVX2.
            let half = |half| unsafe {
                match LEFT {
                    32 => _mm256_shuffle_epi32::<0b10_11_00_01>(half),
                    _ => _mm256_or_si256(
                        _mm256_slli_epi64::<LEFT>(half),
                        _mm256_srli_epi64::<RIGHT>(half),
                    ),
                }
            };
            Self(half(self.0), half(self.1))
        }
    }

    /// One register of eight words.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512(__m512i);

    impl Lanes for Avx512 {
        #[inline(always)]
        fn splat(word: u64) -> Self {
            // SAFETY: the trait asks its users for a CPU with AVX-512F.
            Self(unsafe { _mm512_set1_epi64(word as i64) })
        }

        #[inline(always)]
        fn load(headers: &Group) -> [Self; WORDS] {
            // SAFETY: the trait asks its users for a CPU with AVX-512F, which includes AVX2.
            unsafe {
                let (low, high) = (transpose(headers, 0), transpose(headers, 4));
                std::array::from_fn(|index| {
                    let low = _mm512_castsi256_si512(low[index]);
                    Self(_mm512_inserti64x4::<1>(low, high[index]))
                })
            }
        }

        #[inline(always)]
        fn store(self) -> [u64; LANES] {
            let mut words = [0u64; LANES];
            // SAFETY: as above; the array has the 64 bytes that an unaligned store writes.
            unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), self.0) };
            words
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: the trait asks its users for a CPU with AVX-512F.
            Self(unsafe { _mm512_add_epi64(self.0, other.0) })
        }

        #[inline(always)]
        fn xor(self, other: Self) -> Self {
            // SAFETY: the trait asks its users for a CPU with AVX-512F.
            Self(unsafe { _mm512_xor_si512(self.0, other.0) })
        }

        #[inline(always)]
        fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
            // SAFETY: the trait asks its users for a CPU with AVX-512F.
            Self(unsafe { _mm512_rol_epi64::<LEFT>(self.0) })
        }
    }

    /// The words of the four headers from `first`: the first of each, the second of each, ...
    ///
    /// # Safety
    /// The CPU must have AVX2.
    #[inline(always)]
    unsafe fn transpose(headers: &Group, first: usize) -> [__m256i; WORDS] {
        let rows: [_; 4] = std::array::from_fn(|row| headers[first + row].as_ptr());
        // SAFETY: a header has the 32 bytes that an unaligned load reads; the caller sees to AVX2.
        unsafe {
            let [a, b, c, d] = rows.map(|row| _mm256_loadu_si256(row.cast()));
            let (ab_even, ab_odd) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
            let (cd_even, cd_odd) = (_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
            [
                _mm256_permute2x128_si256::<0x20>(ab_even, cd_even),
                _mm256_permute2x128_si256::<0x20>(ab_odd, cd_odd),
                _mm256_permute2x128_si256::<0x31>(ab_even, cd_even),
                _mm256_permute2x128_si256::<0x31>(ab_odd, cd_odd),
            ]
        }
    }
}
