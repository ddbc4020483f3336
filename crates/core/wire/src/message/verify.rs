use alloc::vec::Vec;

use super::ending::EntryEnd;
use super::entry::{EntryPath, MAX_PATH};
use super::{VERIFY, append};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// VERIFY: the client asks for hashes of files below a path of the server (docs/protocol.md section 7.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyRequest {
    /// Path of a directory at the server, at most [`MAX_PATH`] bytes, none of them zero; the root where it is
    /// empty. Empty behind the first of a connection.
    pub path: Vec<u8>,
    /// More questions.
    pub questions: Vec<Question>,
    /// No more questions follow.
    pub is_last: bool,
}

/// A question about something below the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Hash of a file.
    Hash(EntryPath),
    /// Names of all that is in a directory, and below.
    List(EntryPath),
}

/// An answer about a file, in HASHED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// Number of the question, counted from 0.
    pub question: u64,
    /// Answer.
    pub outcome: HashOutcome,
}

/// Answer to a [`Question::Hash`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashOutcome {
    /// BLAKE3 of the file's contents.
    Is {
        /// Bytes of the file.
        size: u64,
        /// Their hash.
        hash: [u8; 32],
    },
    /// It cannot be hashed; with a code of sources.
    Failed(EntryEnd),
    /// It is being hashed.
    Begun {
        /// Bytes so far.
        bytes: u64,
    },
}

impl VerifyRequest {
    /// As [`Message::encode`](super::Message::encode).
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        append(out, VERIFY, |w| {
            w.varint(u64::from(self.is_last))?;
            w.sized(&self.path)?;
            self.questions.iter().try_for_each(|question| {
                let (kind, path) = match question {
                    Question::Hash(path) => (1, path),
                    Question::List(path) => (2, path),
                };
                w.u8(kind)?;
                w.sized(path.as_bytes())
            })
        })
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let is_last = match r.varint()? {
            0 => false,
            1 => true,
            _ => return Err(r.invalid()),
        };
        let path = r.sized(MAX_PATH)?.to_vec();
        if path.contains(&0) {
            return Err(r.invalid());
        }
        let mut questions = Vec::new();
        while !r.is_empty() {
            let kind = r.u8()?;
            let path = EntryPath::new(r.sized(MAX_PATH)?.to_vec()).map_err(|_| r.invalid())?;
            questions.push(match kind {
                1 => Question::Hash(path),
                2 => Question::List(path),
                _ => return Err(r.invalid()),
            });
        }
        Ok(Self { path, questions, is_last })
    }

    /// Number of bytes that it takes, about.
    pub fn cost(&self) -> usize {
        self.path.len() + self.questions.iter().map(Question::encoded_len).sum::<usize>()
    }
}

impl Question {
    /// Number of bytes that it takes in a VERIFY.
    pub fn encoded_len(&self) -> usize {
        let (Self::Hash(path) | Self::List(path)) = self;
        let len = path.as_bytes().len();
        1 + varint::len(len as u64) + len
    }
}

impl Hashed {
    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(self.question)?;
        match &self.outcome {
            HashOutcome::Is { size, hash } => {
                w.u8(1)?;
                w.varint(*size)?;
                w.bytes(hash)
            }
            HashOutcome::Failed(end) => {
                w.u8(2)?;
                end.encode_sized(w, end.code.of_source())
            }
            HashOutcome::Begun { bytes } => {
                w.u8(3)?;
                w.varint(*bytes)
            }
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let question = r.varint()?;
        let outcome = match r.u8()? {
            1 => HashOutcome::Is { size: r.varint()?, hash: r.array()? },
            2 => HashOutcome::Failed(EntryEnd::decode_sized(r)?),
            3 => HashOutcome::Begun { bytes: r.varint()? },
            _ => return Err(r.invalid()),
        };
        Ok(Self { question, outcome })
    }

    /// Number of bytes that it takes in a HASHED, about.
    pub fn encoded_len(&self) -> usize {
        let outcome = match &self.outcome {
            HashOutcome::Failed(end) => end.reason.len(),
            HashOutcome::Is { .. } | HashOutcome::Begun { .. } => 40,
        };
        8 + outcome
    }
}
