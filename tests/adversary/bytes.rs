//! A writer that checks nothing: with it a hostile peer can send whatever it wants.

/// Bytes under way.
#[derive(Clone, Debug, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub fn u16(self, value: u16) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub fn u24(self, value: u32) -> Self {
        self.raw(&value.to_be_bytes()[1..])
    }

    pub fn u32(self, value: u32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub fn u64(self, value: u64) -> Self {
        self.raw(&value.to_be_bytes())
    }

    /// RFC 9000 section 16; the two highest bits of `value` are lost.
    pub fn varint(self, value: u64) -> Self {
        match value {
            0..0x40 => self.u8(value as u8),
            0x40..0x4000 => self.u16(value as u16 | 0x4000),
            0x4000..0x4000_0000 => self.u32(value as u32 | 0x8000_0000),
            _ => self.u64(value | 0xc000_0000_0000_0000),
        }
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Bytes behind their length.
    pub fn sized(self, bytes: &[u8]) -> Self {
        self.varint(bytes.len() as u64).raw(bytes)
    }
}
