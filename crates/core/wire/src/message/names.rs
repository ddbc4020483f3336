use alloc::vec::Vec;

use super::entry::{EntryPath, MAX_PATH};
use super::{NAMES, SinkMessage, append};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;

/// NAMES: flags, and names to the end.
pub(super) fn encode(out: &mut Vec<u8>, names: &[EntryPath], is_last: bool) -> Result<(), Full> {
    append(out, NAMES, |w| {
        w.varint(u64::from(is_last))?;
        names.iter().try_for_each(|name| w.sized(name.as_bytes()))
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
        let name = EntryPath::new(r.sized(MAX_PATH)?.to_vec());
        names.push(name.ok().filter(|name| !name.is_empty()).ok_or_else(|| r.invalid())?);
    }
    Ok(SinkMessage::Names { names, is_last })
}
