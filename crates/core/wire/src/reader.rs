use crate::error::DecodeError;
use crate::varint;

/// Reads the fields of one structure in order. Never panics on any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which errors call `what`.
    pub const fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(self.truncated())?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.truncated())?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next 16-bit number.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 24-bit number.
    pub fn u24(&mut self) -> Result<u32, DecodeError> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// The next 32-bit number.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64-bit number.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next variable-length integer.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let (value, len) = varint::decode(self.rest).ok_or(self.truncated())?;
        self.rest = self.rest.get(len..).unwrap_or_default();
        Ok(value)
    }

    /// Bytes preceded by their length (varint), at most `limit` of them.
    pub fn sized(&mut self, limit: usize) -> Result<&'a [u8], DecodeError> {
        let len = self.varint()?;
        match usize::try_from(len) {
            Ok(len) if len <= limit => self.take(len),
            _ => Err(self.invalid()),
        }
    }

    /// All that is left, as UTF-8 of at most `limit` bytes.
    pub fn text(&mut self, limit: usize) -> Result<&'a str, DecodeError> {
        let bytes = self.rest();
        match core::str::from_utf8(bytes) {
            Ok(text) if bytes.len() <= limit => Ok(text),
            _ => Err(self.invalid()),
        }
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Takes the zero bytes that come next; returns how many.
    pub(crate) fn skip_zeros(&mut self) -> usize {
        let zeros = self.rest.iter().take_while(|byte| **byte == 0).count();
        self.rest = self.rest.get(zeros..).unwrap_or_default();
        zeros
    }

    /// Number of bytes left.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// True if nothing is left.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends the structure: bytes left over are an error.
    pub const fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing { what: self.what }) }
    }

    /// The error for a forbidden value in this structure.
    pub const fn invalid(&self) -> DecodeError {
        DecodeError::Invalid { what: self.what }
    }

    const fn truncated(&self) -> DecodeError {
        DecodeError::Truncated { what: self.what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_in_order() {
        let bytes = [1, 0, 2, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0x40, 6, 2, 7, 8, b'x'];
        let mut r = Reader::new(&bytes, "test");
        assert_eq!(r.u8(), Ok(1));
        assert_eq!(r.u16(), Ok(2));
        assert_eq!(r.u24(), Ok(3));
        assert_eq!(r.u32(), Ok(4));
        assert_eq!(r.u64(), Ok(5));
        assert_eq!(r.varint(), Ok(6));
        assert_eq!(r.sized(2), Ok(&[7, 8][..]));
        assert_eq!(r.finish(), Err(DecodeError::Trailing { what: "test" }));
        assert_eq!(r.text(1), Ok("x"));
        assert_eq!(r.u8(), Err(DecodeError::Truncated { what: "test" }));
        assert_eq!(r.finish(), Ok(()));
    }

    #[test]
    fn sizes_are_checked_before_use() {
        let huge = [0xff; 8];
        assert_eq!(Reader::new(&huge, "t").sized(10), Err(DecodeError::Invalid { what: "t" }));
        assert_eq!(Reader::new(&[3, 1], "t").sized(10), Err(DecodeError::Truncated { what: "t" }));
        assert_eq!(Reader::new(&[0xff], "t").text(9), Err(DecodeError::Invalid { what: "t" }));
        assert_eq!(Reader::new(b"ab", "t").text(1), Err(DecodeError::Invalid { what: "t" }));
    }
}
