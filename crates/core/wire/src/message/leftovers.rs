use alloc::vec::Vec;

use super::entry::{EntryPath, MAX_PATH};
use super::{LEFTOVERS, append, decode_look, encode_look};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// LEFTOVERS: the client wants to know which copies to a directory of the server were interrupted
/// (docs/protocol.md section 7.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoversRequest {
    /// Removes all that they keep.
    pub discard: bool,
    /// Path at the server, at most [`MAX_PATH`] bytes, none of them zero; the root where it is empty.
    pub path: Vec<u8>,
}

/// An unfinished copy, as LEFT describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// State of the copy.
    pub state: LeftState,
    /// Seconds since it noted last what is durable.
    pub idle: u64,
    /// Bytes that have arrived of files that are not whole under their names.
    pub bytes: u64,
    /// Bytes that these files will have.
    pub total: u64,
    /// Path of its hidden directory below the path that was asked for.
    pub path: EntryPath,
    /// Places that it comes from, for people, with zero bytes between them; nothing where that is not known. At most
    /// 1024 bytes.
    pub sources: Vec<u8>,
}

/// Bytes of [`Left::sources`].
pub const MAX_SOURCES: usize = 1024;

/// State of a copy that is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftState {
    /// It was interrupted.
    Interrupted = 1,
    /// It is running.
    Running = 2,
    /// It was interrupted, and what it kept is removed.
    Discarded = 3,
}

impl LeftoversRequest {
    /// As [`Message::encode`](super::Message::encode).
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        append(out, LEFTOVERS, |w| encode_look(w, self.discard, &self.path))
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (discard, path) = decode_look(r)?;
        Ok(Self { discard, path })
    }
}

impl Left {
    /// Number of bytes that it takes in a LEFT.
    pub fn encoded_len(&self) -> usize {
        let sized = |len: usize| varint::len(len as u64) + len;
        let (path, sources) = (self.path.as_bytes().len(), self.sources.len());
        let numbers = [self.idle, self.bytes, self.total].map(varint::len);
        1 + numbers.iter().sum::<usize>() + sized(path) + sized(sources)
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u8(self.state as u8)?;
        w.varint(self.idle)?;
        w.varint(self.bytes)?;
        w.varint(self.total)?;
        w.sized(self.path.as_bytes())?;
        w.sized(&self.sources)
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let state = match r.u8()? {
            1 => LeftState::Interrupted,
            2 => LeftState::Running,
            3 => LeftState::Discarded,
            _ => return Err(r.invalid()),
        };
        let (idle, bytes, total) = (r.varint()?, r.varint()?, r.varint()?);
        let path = EntryPath::new(r.sized(MAX_PATH)?.to_vec()).map_err(|_| r.invalid())?;
        let sources = r.sized(MAX_SOURCES)?.to_vec();
        Ok(Self { state, idle, bytes, total, path, sources })
    }
}
