//! Header tags for `--protect clear` (docs/protocol.md section 4.4): SipHash-2-4 over 32 bytes,
//! for eight headers at once.
//!
//! SipHash is a chain of dependent operations, too short to keep a core busy with one header; eight
//! chains side by side fill the vector units. One source serves AVX-512, AVX2 and plain words; the
//! best that the CPU has is chosen at creation.

mod lanes;

use self::lanes::{Lanes, Words};

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
        let (groups, rest) = headers.as_chunks::<LANES>();
        let mut tags = tags.chunks_mut(LANES);
        for (group, tags) in groups.iter().zip(&mut tags) {
            write_tags(&self.hash(group), tags);
        }
        if let Some(tags) = tags.next() {
            write_tags(&self.hash(&filled_up(rest)), tags);
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
        let (groups, rest) = headers.as_chunks::<LANES>();
        let mut tags = tags.chunks(LANES);
        let mut valid = 0;
        for (index, (group, tags)) in groups.iter().zip(&mut tags).enumerate() {
            valid |= matching(&self.hash(group), tags) << (index * LANES);
        }
        if let Some(tags) = tags.next() {
            let place = groups.len() * LANES;
            valid |= matching(&self.hash(&filled_up(rest)), tags) << place;
        }
        valid
    }

    fn hash(&self, headers: &Group) -> [u64; LANES] {
        match self.code {
            Code::Portable => hash_lanes::<Words>(self.key, headers),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Code::detect` found AVX2 on this CPU.
            Code::Avx2 => unsafe { hash_avx2(self.key, headers) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Code::detect` found AVX-512F on this CPU.
            Code::Avx512 => unsafe { hash_avx512(self.key, headers) },
        }
    }
}

fn write_tags(hashes: &[u64; LANES], tags: &mut [[u8; TAG]]) {
    for (tag, hash) in tags.iter_mut().zip(hashes) {
        *tag = hash.to_le_bytes();
    }
}

/// A bit for each of `tags` that equals its hash.
fn matching(hashes: &[u64; LANES], tags: &[[u8; TAG]]) -> u128 {
    let pairs = tags.iter().zip(hashes).enumerate();
    pairs.fold(0, |bits, (lane, (tag, hash))| {
        bits | u128::from(u64::from_le_bytes(*tag) == *hash) << lane
    })
}

/// The last headers and zeroes behind them.
fn filled_up(headers: &[[u8; HEADER]]) -> Group {
    let mut group = [[0; HEADER]; LANES];
    group[..headers.len()].copy_from_slice(headers);
    group
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

    /// Implementations that this CPU can run, best last.
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
fn hash_avx2(key: [u64; 2], headers: &Group) -> [u64; LANES] {
    hash_lanes::<lanes::Avx2>(key, headers)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn hash_avx512(key: [u64; 2], headers: &Group) -> [u64; LANES] {
    hash_lanes::<lanes::Avx512>(key, headers)
}

/// SipHash-2-4 (Aumasson and Bernstein 2012, section 2) of one header in each lane. Runs
/// inside of a function that is compiled for the CPU that `L` needs.
#[inline(always)]
fn hash_lanes<L: Lanes>(key: [u64; 2], headers: &Group) -> [u64; LANES] {
    let mut state = [
        L::splat(key[0] ^ 0x736f_6d65_7073_6575),
        L::splat(key[1] ^ 0x646f_7261_6e64_6f6d),
        L::splat(key[0] ^ 0x6c79_6765_6e65_7261),
        L::splat(key[1] ^ 0x7465_6462_7974_6573),
    ];
    for words in L::load(headers) {
        absorb(&mut state, words);
    }
    absorb(&mut state, L::splat((HEADER as u64) << 56));
    state[2] = state[2].xor(L::splat(0xff));
    for _ in 0..4 {
        round(&mut state);
    }
    state[0].xor(state[1]).xor(state[2]).xor(state[3]).store()
}

#[inline(always)]
fn absorb<L: Lanes>(state: &mut [L; 4], words: L) {
    state[3] = state[3].xor(words);
    round(state);
    round(state);
    state[0] = state[0].xor(words);
}

#[inline(always)]
fn round<L: Lanes>([v0, v1, v2, v3]: &mut [L; 4]) {
    *v0 = v0.add(*v1);
    *v2 = v2.add(*v3);
    *v1 = v1.rotate::<13, 51>().xor(*v0);
    *v3 = v3.rotate::<16, 48>().xor(*v2);
    *v0 = v0.rotate::<32, 32>();
    *v2 = v2.add(*v1);
    *v0 = v0.add(*v3);
    *v1 = v1.rotate::<17, 47>().xor(*v2);
    *v3 = v3.rotate::<21, 43>().xor(*v0);
    *v2 = v2.rotate::<32, 32>();
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

/// As many headers as are hashed at once.
type Group = [[u8; HEADER]; LANES];

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
