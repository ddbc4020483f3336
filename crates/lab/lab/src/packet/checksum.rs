//! The internet checksum (RFC 1071).

/// Sum of big-endian words in ones' complement, not complemented; `bytes` of odd length is padded.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let mut words = bytes.chunks_exact(2);
    let mut sum: u64 =
        words.by_ref().map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    fold(sum)
}

/// Sum of two sums.
pub(super) fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0x00, 0x01, 0xf2]), 0xf201);
        assert_eq!(add(0xffff, 1), 1);
        assert_eq!(sum(&[0xff; 100_000]), 0xffff);
    }
}
