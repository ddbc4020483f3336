//! Attributes of entries (docs/protocol.md section 7.10).

mod data;
mod metadata;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use self::data::DataRanges;
pub use self::metadata::{
    AccessEntry, AccessList, Account, HardLink, KeptAttributes, Metadata, OTHER_NAMES_MAX, Xattr,
};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// Most bytes that the attributes of one entry take in a MANIFEST.
pub const MAX_ATTRIBUTES: usize = 1 << 16;
/// Most ranges with data that a file with holes names.
pub const MAX_DATA_RANGES: usize = 1 << 12;

/// Properties of an entry that few have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Of a file with holes: where its data is.
    pub data: Option<DataRanges>,
    /// Of requests that keep more than modes and times. Never empty.
    pub metadata: Option<Box<Metadata>>,
}

impl Attributes {
    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.data.is_none() && self.metadata.is_none()
    }

    /// Number of bytes that they take in a MANIFEST.
    pub(super) fn encoded_len(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let len = self.body_len();
        varint::len(len as u64) + len
    }

    /// The same without their length: at most [`MAX_ATTRIBUTES`].
    pub fn body_len(&self) -> usize {
        let data = self.data.as_ref().map_or(0, |data| value_len(data.encoded_len()));
        data + self.metadata_len()
    }

    /// Bytes of this that are metadata.
    pub fn metadata_len(&self) -> usize {
        let values = self.metadata.as_deref().into_iter().flat_map(Metadata::values);
        values.map(|(_, value)| value_len(value.len())).sum()
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let len = self.body_len();
        if len > MAX_ATTRIBUTES {
            return Err(Full);
        }
        w.varint(len as u64)?;
        if let Some(data) = &self.data {
            w.varint(DATA)?;
            w.varint(data.encoded_len() as u64)?;
            data.encode(w)?;
        }
        self.metadata.as_deref().into_iter().flat_map(Metadata::values).try_for_each(
            |(kind, value)| {
                w.varint(kind)?;
                w.sized(&value)
            },
        )
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "attributes of an entry";
        let mut all = Reader::new(r.sized(MAX_ATTRIBUTES).map_err(|_| r.invalid())?, WHAT);
        let (mut data, mut metadata) = (None, Metadata::default());
        let mut past = 0;
        while !all.is_empty() {
            let kind = all.varint()?;
            let value = all.sized(MAX_ATTRIBUTES)?;
            if kind <= past {
                return Err(all.invalid());
            }
            past = kind;
            match kind {
                DATA => data = Some(DataRanges::decode(value)?),
                _ => metadata.decode(kind, &mut Reader::new(value, WHAT))?,
            }
        }
        let attributes = Self { data, metadata: metadata.boxed() };
        if attributes.is_empty() {
            return Err(all.invalid());
        }
        Ok(attributes)
    }
}

const DATA: u64 = 1;

/// Bytes of a value of so many with its type and length.
const fn value_len(len: usize) -> usize {
    1 + varint::len(len as u64) + len
}

/// Appends to a value in memory, which has room.
fn built(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
    let mut value = Vec::new();
    write(&mut Writer::append(&mut value)).expect("a value in memory has room");
    value
}
