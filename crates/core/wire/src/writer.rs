use alloc::vec::Vec;

use crate::error::Full;
use crate::varint;

/// Writes fields in order, into a caller's buffer or at the end of a vector.
///
/// A write that does not fit fails and writes nothing.
#[derive(Debug)]
pub struct Writer<'a>(Target<'a>);

#[derive(Debug)]
enum Target<'a> {
    Slice { buffer: &'a mut [u8], len: usize },
    Vec { vec: &'a mut Vec<u8>, start: usize },
}

impl<'a> Writer<'a> {
    /// Writes into `buffer`, from its start.
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self(Target::Slice { buffer, len: 0 })
    }

    /// Appends to `vec`, which grows: writing never fails.
    pub const fn append(vec: &'a mut Vec<u8>) -> Self {
        let start = vec.len();
        Self(Target::Vec { vec, start })
    }

    /// Number of bytes written.
    pub const fn len(&self) -> usize {
        match &self.0 {
            Target::Slice { len, .. } => *len,
            Target::Vec { vec, start } => vec.len() - *start,
        }
    }

    /// True if nothing is written.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes that still fit.
    pub const fn room(&self) -> usize {
        match &self.0 {
            Target::Slice { buffer, len } => buffer.len() - *len,
            Target::Vec { .. } => usize::MAX,
        }
    }

    /// Writes `bytes`.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Full> {
        match &mut self.0 {
            Target::Slice { buffer, len } => {
                let end = len.checked_add(bytes.len()).ok_or(Full)?;
                buffer.get_mut(*len..end).ok_or(Full)?.copy_from_slice(bytes);
                *len = end;
            }
            Target::Vec { vec, .. } => vec.extend_from_slice(bytes),
        }
        Ok(())
    }

    /// Writes `count` zero bytes.
    pub fn zeros(&mut self, count: usize) -> Result<(), Full> {
        match &mut self.0 {
            Target::Slice { buffer, len } => {
                let end = len.checked_add(count).ok_or(Full)?;
                buffer.get_mut(*len..end).ok_or(Full)?.fill(0);
                *len = end;
            }
            Target::Vec { vec, .. } => vec.resize(vec.len() + count, 0),
        }
        Ok(())
    }

    /// Writes a byte.
    pub fn u8(&mut self, value: u8) -> Result<(), Full> {
        self.bytes(&[value])
    }

    /// Writes a 16-bit number.
    pub fn u16(&mut self, value: u16) -> Result<(), Full> {
        self.bytes(&value.to_be_bytes())
    }

    /// Writes the low 24 bits of a number.
    pub fn u24(&mut self, value: u32) -> Result<(), Full> {
        let [_, low @ ..] = value.to_be_bytes();
        self.bytes(&low)
    }

    /// Writes a 32-bit number.
    pub fn u32(&mut self, value: u32) -> Result<(), Full> {
        self.bytes(&value.to_be_bytes())
    }

    /// Writes a 64-bit number.
    pub fn u64(&mut self, value: u64) -> Result<(), Full> {
        self.bytes(&value.to_be_bytes())
    }

    /// Writes a variable-length integer in its shortest form; values above [`varint::MAX`] are
    /// written as that.
    pub fn varint(&mut self, value: u64) -> Result<(), Full> {
        let (form, len) = varint::encode(value);
        self.bytes(&form[..len])
    }

    /// Writes `bytes` preceded by their length (varint).
    pub fn sized(&mut self, bytes: &[u8]) -> Result<(), Full> {
        if varint::len(bytes.len() as u64).saturating_add(bytes.len()) > self.room() {
            return Err(Full);
        }
        self.varint(bytes.len() as u64)?;
        self.bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(w: &mut Writer<'_>) -> Result<(), Full> {
        w.u8(1)?;
        w.u16(2)?;
        w.u24(3)?;
        w.u32(4)?;
        w.u64(5)?;
        w.varint(0x1234)?;
        w.zeros(2)?;
        w.sized(&[9, 9])
    }

    const BYTES: [u8; 25] =
        [1, 0, 2, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0x52, 0x34, 0, 0, 2, 9, 9];

    #[test]
    fn both_targets_get_the_same_bytes() {
        let mut buffer = [0xa5; 26];
        let mut w = Writer::new(&mut buffer);
        assert_eq!(fill(&mut w), Ok(()));
        assert_eq!((w.len(), w.room()), (25, 1));
        assert_eq!(buffer[..25], BYTES);
        assert_eq!(buffer[25], 0xa5);

        let mut vec = alloc::vec![7];
        let mut w = Writer::append(&mut vec);
        assert_eq!(fill(&mut w), Ok(()));
        assert_eq!(w.len(), 25);
        assert_eq!(vec[1..], BYTES);
    }

    #[test]
    fn full_at_every_length() {
        for len in 0..BYTES.len() {
            let mut buffer = [0xa5; 25];
            let mut w = Writer::new(&mut buffer[..len]);
            assert_eq!(fill(&mut w), Err(Full));
            let written = w.len();
            assert_eq!(buffer[..written], BYTES[..written]);
            assert!(buffer[written..].iter().all(|b| *b == 0xa5));
        }
    }
}
