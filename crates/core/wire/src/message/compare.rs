use alloc::vec::Vec;
use core::ops::Range;

use super::{COMPARE, append, encode_range, range};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// COMPARE of the source: chaining values of consecutive groups of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHashes {
    /// Number of the entry.
    pub entry: u64,
    /// Group of the first value.
    pub first_group: u64,
    /// The values, one at least.
    pub values: Vec<[u8; 32]>,
}

/// COMPARE of either end.
pub(super) enum Compare {
    Asked(Vec<(u64, Range<u64>)>),
    Answered(Vec<FileHashes>),
}

pub(super) fn encode_asked(out: &mut Vec<u8>, files: &[(u64, Range<u64>)]) -> Result<(), Full> {
    append(out, COMPARE, |w| {
        w.u8(ASKED)?;
        files.iter().try_for_each(|(entry, groups)| {
            w.varint(*entry)?;
            encode_range(w, groups)
        })
    })
}

pub(super) fn encode_answered(out: &mut Vec<u8>, files: &[FileHashes]) -> Result<(), Full> {
    append(out, COMPARE, |w| {
        w.u8(ANSWERED)?;
        files.iter().try_for_each(|file| file.encode(w))
    })
}

impl Compare {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            ASKED => {
                let mut files = Vec::new();
                while !r.is_empty() {
                    files.push((r.varint()?, range(r)?));
                }
                Ok(Self::Asked(files))
            }
            ANSWERED => {
                let mut files = Vec::new();
                while !r.is_empty() {
                    files.push(FileHashes::decode(r)?);
                }
                Ok(Self::Answered(files))
            }
            _ => Err(r.invalid()),
        }
    }
}

impl FileHashes {
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(self.entry)?;
        w.varint(self.first_group)?;
        w.sized(self.values.as_flattened())
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (entry, first_group) = (r.varint()?, r.varint()?);
        let (values, rest) = r.sized(super::MAX_MESSAGE)?.as_chunks::<32>();
        let is_whole = !values.is_empty() && rest.is_empty();
        if !is_whole || first_group + values.len() as u64 > varint::MAX {
            return Err(r.invalid());
        }
        Ok(Self { entry, first_group, values: values.to_vec() })
    }
}

const ASKED: u8 = 1;
const ANSWERED: u8 = 2;
