//! Headers and answers alike: magic, version, kind, length, options (docs/relay.md section 2).

use alloc::vec::Vec;

use longhaul_wire::{CRITICAL_OPTION, DecodeError};

/// The two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Header = 1,
    Answer = 2,
}

/// Length of the message at the start of `bytes` and its options; `None` when more are needed.
pub(crate) fn split(bytes: &[u8], kind: Kind) -> Result<Option<Split<'_>>, DecodeError> {
    let what = match kind {
        Kind::Header => "header",
        Kind::Answer => "answer",
    };
    // A stream of another protocol is seen at its first byte.
    let len = bytes.len().min(MAGIC.len());
    if bytes[..len] != MAGIC[..len] {
        return Err(DecodeError::Invalid { what });
    }
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if prefix[4] != VERSION {
        return Err(DecodeError::Unsupported { what: "version" });
    }
    let len = usize::from(u16::from_be_bytes([prefix[6], prefix[7]]));
    if prefix[5] != kind as u8 || len + PREFIX > MAX_MESSAGE {
        return Err(DecodeError::Invalid { what });
    }
    Ok(rest.get(..len).map(|options| Split { options, len: len + PREFIX }))
}

/// Bytes of the message that begins with `bytes` that are certainly missing.
pub(crate) fn wanted(bytes: &[u8]) -> usize {
    let len = match bytes.first_chunk::<PREFIX>() {
        Some(prefix) => PREFIX + usize::from(u16::from_be_bytes([prefix[6], prefix[7]])),
        None => PREFIX,
    };
    len.saturating_sub(bytes.len())
}

/// A message that is there whole.
pub(crate) struct Split<'a> {
    pub options: &'a [u8],
    /// Bytes of the message.
    pub len: usize,
}

/// Begins a message, whose length [`finish`] writes.
pub(crate) fn begin(kind: Kind) -> Vec<u8> {
    let mut message = Vec::with_capacity(256);
    message.extend_from_slice(&MAGIC);
    message.extend_from_slice(&[VERSION, kind as u8, 0, 0]);
    message
}

/// Appends an option whose value `write` writes.
pub(crate) fn put(
    message: &mut Vec<u8>,
    critical: bool,
    number: u16,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let first = number | if critical { CRITICAL_OPTION } else { 0 };
    message.extend_from_slice(&first.to_be_bytes());
    message.extend_from_slice(&[0; 2]);
    let start = message.len();
    write(message);
    let len = (message.len() - start) as u16;
    message[start - 2..start].copy_from_slice(&len.to_be_bytes());
}

/// Writes the length of a message to which `more` bytes will be appended.
pub(crate) fn finish(message: &mut [u8], more: usize) {
    let len = (message.len() + more - PREFIX) as u16;
    message[6..PREFIX].copy_from_slice(&len.to_be_bytes());
}

const MAGIC: [u8; 4] = *b"LHGW";
const VERSION: u8 = 1;
const PREFIX: usize = 8;

/// Most bytes of a header or an answer.
pub const MAX_MESSAGE: usize = 4096;
