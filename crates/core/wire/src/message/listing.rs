use alloc::vec::Vec;

use super::ending::EntryEnd;
use super::entry::{EntryPath, MAX_PATH, MODE_BITS, link_target};
use super::leftovers::Left;
use super::verify::Hashed;
use super::{HASHED, LEFT, LIST, LIST_END, LISTED, UNLISTED, append, decode_look, encode_look};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// LIST: the client wants to know what is at a path of the server (docs/protocol.md section 7.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// All that is below a directory, not only what is in it.
    pub recursive: bool,
    /// Path at the server, at most [`MAX_PATH`] bytes, none of them zero; the root where it is empty.
    pub path: Vec<u8>,
}

/// A message that answers a request without objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerMessage {
    /// LISTED: something that is there, and more behind it.
    Listed(Vec<Listed>),
    /// UNLISTED: something that cannot be looked at.
    Unlisted {
        /// Its path as LISTED would have it; longer than an entry allows, perhaps.
        path: Vec<u8>,
        /// Why, with a code of sources.
        end: EntryEnd,
    },
    /// HASHED: answers to questions of VERIFY.
    Hashed(Vec<Hashed>),
    /// LEFT: copies that are not finished, and more behind them.
    Left(Vec<Left>),
    /// LIST_END: all was answered.
    End {
        /// Number of things that were listed, of answers in HASHED, of copies in LEFT.
        listed: u64,
        /// Number of those that could not be.
        unlisted: u64,
    },
}

/// Something at the server, as LISTED describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its kind.
    pub kind: ListedKind,
    /// Permission bits; only the low twelve are written.
    pub mode: u16,
    /// Time of the last modification in nanoseconds since 1970.
    pub modified: i64,
    /// Bytes of a file's contents.
    pub size: u64,
    /// Path below the path that was asked for; empty for that one, where it is no directory.
    pub path: EntryPath,
}

/// Kind of a [`Listed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Where it points: 1 to [`MAX_PATH`] bytes, none of them zero.
        target: Vec<u8>,
    },
    /// None of these: a FIFO, socket or device.
    Other,
}

impl ListRequest {
    /// As [`Message::encode`](super::Message::encode).
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        append(out, LIST, |w| encode_look(w, self.recursive, &self.path))
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (recursive, path) = decode_look(r)?;
        Ok(Self { recursive, path })
    }
}

impl AnswerMessage {
    /// As [`Message::encode`](super::Message::encode).
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        match self {
            Self::Listed(all) => {
                append(out, LISTED, |w| all.iter().try_for_each(|it| it.encode(w)))
            }
            Self::Unlisted { path, end } => append(out, UNLISTED, |w| {
                w.sized(path)?;
                end.encode(w, end.code.of_source())
            }),
            Self::Hashed(all) => {
                append(out, HASHED, |w| all.iter().try_for_each(|it| it.encode(w)))
            }
            Self::Left(all) => append(out, LEFT, |w| all.iter().try_for_each(|it| it.encode(w))),
            Self::End { listed, unlisted } => append(out, LIST_END, |w| {
                w.varint(*listed)?;
                w.varint(*unlisted)
            }),
        }
    }

    pub(super) fn decode(kind: u64, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match kind {
            LISTED => {
                let mut all = Vec::new();
                while !r.is_empty() {
                    all.push(Listed::decode(r)?);
                }
                Ok(Self::Listed(all))
            }
            HASHED => {
                let mut all = Vec::new();
                while !r.is_empty() {
                    all.push(Hashed::decode(r)?);
                }
                Ok(Self::Hashed(all))
            }
            LEFT => {
                let mut all = Vec::new();
                while !r.is_empty() {
                    all.push(Left::decode(r)?);
                }
                Ok(Self::Left(all))
            }
            UNLISTED => {
                let path = r.sized(UNLISTED_PATH_MAX)?.to_vec();
                let end = EntryEnd::decode(r)?;
                let code = end.code.of_source();
                Ok(Self::Unlisted { path, end: EntryEnd { code, ..end } })
            }
            _ => Ok(Self::End { listed: r.varint()?, unlisted: r.varint()? }),
        }
    }

    /// Number of bytes that it takes, about.
    pub fn cost(&self) -> usize {
        match self {
            Self::Listed(all) => all.iter().map(Listed::encoded_len).sum(),
            Self::Unlisted { path, end } => path.len() + end.reason.len(),
            Self::Hashed(all) => all.iter().map(Hashed::encoded_len).sum(),
            Self::Left(all) => all.iter().map(Left::encoded_len).sum(),
            Self::End { .. } => 0,
        }
    }
}

impl Listed {
    /// Number of bytes that it takes in a LISTED.
    pub fn encoded_len(&self) -> usize {
        let sized = |bytes: &[u8]| varint::len(bytes.len() as u64) + bytes.len();
        let target = match &self.kind {
            ListedKind::Link { target } => sized(target),
            ListedKind::File | ListedKind::Directory | ListedKind::Other => 0,
        };
        1 + 2 + 8 + varint::len(self.size) + sized(self.path.as_bytes()) + target
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.u8(match self.kind {
            ListedKind::File => 1,
            ListedKind::Directory => 2,
            ListedKind::Link { .. } => 3,
            ListedKind::Other => 4,
        })?;
        w.u16(self.mode & MODE_BITS)?;
        w.bytes(&self.modified.to_be_bytes())?;
        w.varint(self.size)?;
        w.sized(self.path.as_bytes())?;
        match &self.kind {
            ListedKind::Link { target } => w.sized(target),
            ListedKind::File | ListedKind::Directory | ListedKind::Other => Ok(()),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (kind, mode) = (r.u8()?, r.u16()?);
        let modified = i64::from_be_bytes(r.array()?);
        let size = r.varint()?;
        let path = EntryPath::new(r.sized(MAX_PATH)?.to_vec()).map_err(|_| r.invalid())?;
        let kind = match kind {
            1 => ListedKind::File,
            2 => ListedKind::Directory,
            3 => ListedKind::Link { target: link_target(r)?.ok_or_else(|| r.invalid())? },
            4 => ListedKind::Other,
            _ => return Err(r.invalid()),
        };
        if mode & !MODE_BITS != 0 {
            return Err(r.invalid());
        }
        Ok(Self { kind, mode, modified, size, path })
    }
}

/// Longest path of something that cannot be looked at: its name is too long for an entry, perhaps.
const UNLISTED_PATH_MAX: usize = 2 * MAX_PATH;
