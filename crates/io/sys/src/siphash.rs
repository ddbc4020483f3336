//! Header tags for `--protect clear` (docs/protocol.md section 4.4): SipHash-2-4 over 32 bytes,
//! for eight headers at once.
//!
//! SipHash is a chain of dependent operations, too short to keep a core busy with one header; eight
//! chains side by side fill the vector units. One source serves all: the compiler makes AVX-512,
//! AVX2 or plain code of it, and the best that the CPU has is chosen at creation.

/// Makes and checks the tags of one direction of a lane.
#[derive(Clone)]
pub struct HeaderMac {
    key: [u64; 2],
    code: Code,
}

impl HeaderMac {
    /// A maker of tags under `key`, the header key.
    pub fn new(key: [u8; 16]) -> Self {
        let (low, high) = key.split_at(8);
        Self { key: [word(low), word(high)], code: Code::detect() }
    }

    /// Writes the tag of each of `headers` to its place in `tags`.
    ///
    /// # Panics
    /// When the two differ in length.
    pub fn tags(&self, headers: &[[u8; HEADER]], tags: &mut [[u8; TAG]]) {
        assert_eq!(headers.len(), tags.len(), "a place for every tag");
        for (headers, tags) in headers.chunks(LANES).zip(tags.chunks_mut(LANES)) {
            for (tag, hash) in tags.iter_mut().zip(self.hash(headers)) {
                *tag = hash.to_le_bytes();
            }
        }
    }

    /// Tells by bit `i` whether `tags[i]` is that of `headers[i]`, in time that depends on their
    /// number only.
    ///
    /// # Panics
    /// When the two differ in length, or are more than 128.
    pub fn verify(&self, headers: &[[u8; HEADER]], tags: &[[u8; TAG]]) -> u128 {
        assert_eq!(headers.len(), tags.len(), "a tag for every header");
        assert!(headers.len() <= VERIFY_MAX, "a bit for every header");
        let mut valid = 0;
        for (index, (headers, tags)) in headers.chunks(LANES).zip(tags.chunks(LANES)).enumerate() {
            let mut bits = 0u128;
            for (lane, (tag, hash)) in tags.iter().zip(self.hash(headers)).enumerate() {
                bits |= u128::from(u64::from_le_bytes(*tag) == hash) << lane;
            }
            valid |= bits << (index * LANES);
        }
        valid
    }

    /// Hashes up to eight headers; lanes without one hold nothing of use.
    fn hash(&self, headers: &[[u8; HEADER]]) -> [u64; LANES] {
        let mut message = [[0; LANES]; WORDS];
        for (lane, header) in headers.iter().enumerate() {
            for (words, bytes) in message.iter_mut().zip(header.chunks_exact(8)) {
                words[lane] = word(bytes);
            }
        }
        match self.code {
            Code::Portable => hash_lanes(self.key, &message),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Code::detect` found AVX2 on this CPU.
            Code::Avx2 => unsafe { hash_avx2(self.key, &message) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Code::detect` found AVX-512F on this CPU.
            Code::Avx512 => unsafe { hash_avx512(self.key, &message) },
        }
    }
}

impl std::fmt::Debug for HeaderMac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeaderMac").field("code", &self.code).finish_non_exhaustive()
    }
}

/// Which compilation of the same source to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Code {
    fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }

    /// What this CPU can run, best last.
    fn available() -> Vec<Self> {
        let mut found = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                found.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                found.push(Self::Avx512);
            }
        }
        found
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn hash_avx2(key: [u64; 2], message: &[[u64; LANES]; WORDS]) -> [u64; LANES] {
    hash_lanes(key, message)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn hash_avx512(key: [u64; 2], message: &[[u64; LANES]; WORDS]) -> [u64; LANES] {
    hash_lanes(key, message)
}

/// SipHash-2-4 (Aumasson and Bernstein 2012, section 2) of one 32-byte message in each lane.
#[inline(always)]
fn hash_lanes(key: [u64; 2], message: &[[u64; LANES]; WORDS]) -> [u64; LANES] {
    let mut state = [
        Lanes([key[0] ^ 0x736f_6d65_7073_6575; LANES]),
        Lanes([key[1] ^ 0x646f_7261_6e64_6f6d; LANES]),
        Lanes([key[0] ^ 0x6c79_6765_6e65_7261; LANES]),
        Lanes([key[1] ^ 0x7465_6462_7974_6573; LANES]),
    ];
    let last = [(HEADER as u64) << 56; LANES];
    for words in message.iter().chain([&last]) {
        state[3] = state[3].xor(Lanes(*words));
        round(&mut state);
        round(&mut state);
        state[0] = state[0].xor(Lanes(*words));
    }
    state[2] = state[2].xor(Lanes([0xff; LANES]));
    for _ in 0..4 {
        round(&mut state);
    }
    state[0].xor(state[1]).xor(state[2]).xor(state[3]).0
}

#[inline(always)]
fn round([v0, v1, v2, v3]: &mut [Lanes; 4]) {
    *v0 = v0.add(*v1);
    *v2 = v2.add(*v3);
    *v1 = v1.rotate::<13>().xor(*v0);
    *v3 = v3.rotate::<16>().xor(*v2);
    *v0 = v0.rotate::<32>();
    *v2 = v2.add(*v1);
    *v0 = v0.add(*v3);
    *v1 = v1.rotate::<17>().xor(*v2);
    *v3 = v3.rotate::<21>().xor(*v0);
    *v2 = v2.rotate::<32>();
}

/// The same word of eight states.
#[derive(Clone, Copy)]
struct Lanes([u64; LANES]);

impl Lanes {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane].wrapping_add(other.0[lane])))
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] ^ other.0[lane]))
    }

    #[inline(always)]
    fn rotate<const BITS: u32>(self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane].rotate_left(BITS)))
    }
}

/// The little-endian word in `bytes`, which are eight.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Bytes of an object packet's header (docs/protocol.md section 4.2).
pub const HEADER: usize = 32;
/// Bytes of its tag.
pub const TAG: usize = 8;
/// Headers that one call of [`HeaderMac::verify`] takes: a whole super-packet.
pub const VERIFY_MAX: usize = 128;

const WORDS: usize = HEADER / 8;
const LANES: usize = 8;

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;
    use siphasher::sip::SipHasher24;

    use super::*;

    /// Key 00..0f, message 00..1f: `vectors_sip64[32]` of the authors' reference code.
    #[test]
    fn published_vector() {
        let header: [u8; HEADER] = std::array::from_fn(|i| i as u8);
        let mut tags = [[0; TAG]];
        HeaderMac::new(std::array::from_fn(|i| i as u8)).tags(&[header], &mut tags);
        assert_eq!(tags[0], [0xce, 0x7c, 0xf2, 0x72, 0x2f, 0x51, 0x27, 0x71]);
    }

    proptest! {
        #[test]
        fn every_code_agrees_with_the_reference(
            key in any::<[u8; 16]>(),
            headers in proptest::collection::vec(any::<[u8; HEADER]>(), 0..130),
        ) {
            let expected: Vec<[u8; TAG]> = headers.iter().map(|header| {
                let mut hasher = SipHasher24::new_with_key(&key);
                hasher.write(header);
                hasher.finish().to_le_bytes()
            }).collect();
            for code in Code::available() {
                let mac = HeaderMac { code, ..HeaderMac::new(key) };
                let mut tags = vec![[0xa5; TAG]; headers.len()];
                mac.tags(&headers, &mut tags);
                prop_assert_eq!(&tags, &expected, "{:?}", code);
            }
        }

        #[test]
        fn exactly_the_forged_are_found(
            key in any::<[u8; 16]>(),
            headers in proptest::collection::vec(any::<[u8; HEADER]>(), 1..=VERIFY_MAX),
            flips in proptest::collection::vec((any::<usize>(), 0usize..8 * (HEADER + TAG)), 0..9),
        ) {
            let mac = HeaderMac::new(key);
            let mut tags = vec![[0; TAG]; headers.len()];
            mac.tags(&headers, &mut tags);
            let (mut bad_headers, mut bad_tags) = (headers.clone(), tags.clone());
            for (index, bit) in flips {
                let index = index % headers.len();
                match bit / 8 {
                    byte @ 0..HEADER => bad_headers[index][byte] ^= 1 << (bit % 8),
                    byte => bad_tags[index][byte - HEADER] ^= 1 << (bit % 8),
                }
            }
            let valid = mac.verify(&bad_headers, &bad_tags);
            for index in 0..headers.len() {
                let same = bad_headers[index] == headers[index] && bad_tags[index] == tags[index];
                prop_assert_eq!(valid >> index & 1 == 1, same);
            }
            let all = u128::MAX >> (VERIFY_MAX - headers.len());
            prop_assert_eq!(valid & !all, 0);
        }
    }
}
