use alloc::vec::Vec;

use super::entry::{EntryPath, InvalidPath, MAX_PATH};
use super::{NAMES, SinkMessage, append};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;

/// A name that a user lists (docs/protocol.md section 7.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// Its path below the source.
    pub path: EntryPath,
    /// It has a slash behind it: a link is followed that leads to a directory.
    pub follows: bool,
}

impl ListedName {
    /// The name that is written so, perhaps with a slash behind it.
    ///
    /// # Errors
    /// It is no path below a source.
    pub fn new(mut name: Vec<u8>) -> Result<Self, InvalidPath> {
        let follows = name.last() == Some(&b'/');
        name.truncate(name.len() - usize::from(follows));
        Ok(Self { path: EntryPath::new(name)?, follows })
    }

    /// The same as it is written.
    fn written(&self) -> Vec<u8> {
        [self.path.as_bytes(), if self.follows { b"/" } else { b"" }].concat()
    }
}

/// NAMES: flags, and names to the end.
pub(super) fn encode(out: &mut Vec<u8>, names: &[ListedName], is_last: bool) -> Result<(), Full> {
    append(out, NAMES, |w| {
        w.varint(u64::from(is_last))?;
        names.iter().try_for_each(|name| w.sized(&name.written()))
    })
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<SinkMessage, DecodeError> {
    let is_last = match r.varint()? {
        0 => false,
        1 => true,
        _ => return Err(r.invalid()),
    };
    let mut names = Vec::new();
    while !r.is_empty() {
        let name = ListedName::new(r.sized(MAX_PATH + 1)?.to_vec());
        names.push(name.ok().filter(|name| !name.path.is_empty()).ok_or_else(|| r.invalid())?);
    }
    Ok(SinkMessage::Names { names, is_last })
}
