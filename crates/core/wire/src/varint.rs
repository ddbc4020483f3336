//! Variable-length integers of RFC 9000 section 16.

/// Largest value that a varint holds: 2^62 - 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Bytes that the shortest form of `value` takes; 8 for values above [`MAX`].
pub const fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// The shortest form of `value` and its length. Values above [`MAX`] are written as [`MAX`].
pub(crate) const fn encode(value: u64) -> ([u8; 8], usize) {
    let value = if value > MAX { MAX } else { value };
    let len = len(value);
    // The form stands at the top of the word, its length as a power of two in the first two bits.
    let shifted = value << (64 - 8 * len as u32);
    let tag = (len.trailing_zeros() as u64) << 62;
    ((shifted | tag).to_be_bytes(), len)
}

/// The value at the start of `bytes` and the bytes it takes, or `None` when they are too few.
#[inline]
pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    // The first two bits are the length as a power of two, the others belong to the value.
    Some(match first >> 6 {
        0 => (u64::from(first), 1),
        1 => (u64::from(u16::from_be_bytes(*bytes.first_chunk()?) & 0x3fff), 2),
        2 => (u64::from(u32::from_be_bytes(*bytes.first_chunk()?) & 0x3fff_ffff), 4),
        _ => (u64::from_be_bytes(*bytes.first_chunk()?) & MAX, 8),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples_of_rfc_9000() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(decode(bytes), Some((value, bytes.len())));
            let (form, len) = encode(value);
            assert_eq!(&form[..len], bytes);
        }
        // A longer form than needed is accepted.
        assert_eq!(decode(&[0x40, 0x25]), Some((37, 2)));
    }

    #[test]
    fn too_large_is_written_as_the_largest() {
        assert_eq!(encode(u64::MAX), ([0xff; 8], 8));
        assert_eq!(decode(&[0xff; 8]), Some((MAX, 8)));
    }

    #[test]
    fn too_short_is_seen() {
        for bytes in [&[][..], &[0x40], &[0x80, 0, 0], &[0xc0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(decode(bytes), None);
        }
    }

    proptest! {
        #[test]
        fn round_trip(bits in 0u32..62, low in any::<u64>()) {
            let value = low & ((1 << (bits + 1)) - 1) & MAX;
            let (form, size) = encode(value);
            prop_assert_eq!(size, len(value));
            prop_assert_eq!(decode(&form[..size]), Some((value, size)));
        }
    }
}
