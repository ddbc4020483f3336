use alloc::vec::Vec;

use super::{MAX_MESSAGE, Message};
use crate::error::DecodeError;
use crate::varint;

/// Cuts the bytes of stream 0 into messages.
///
/// Keeps the bytes of a message that is not complete: at most [`MAX_MESSAGE`] and what was pushed
/// last, if the caller takes every complete message before it pushes more. Behind an error the
/// stream is useless: the same error is returned for ever.
#[derive(Clone, Debug, Default)]
pub struct MessageReader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that belong to messages already taken.
    taken: usize,
}

impl MessageReader {
    /// A reader at the start of the stream.
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), taken: 0 }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next message; `None` when more bytes are needed.
    ///
    /// # Errors
    /// The peer broke the protocol. A message that is too long is an error as soon as its length
    /// is known.
    pub fn next_message(&mut self) -> Result<Option<Message>, DecodeError> {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let Some((len, prefix)) = varint::decode(rest) else {
            return Ok(None);
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > MAX_MESSAGE {
            return Err(DecodeError::Invalid { what: "length of a message" });
        }
        let Some(bytes) = rest.get(prefix..prefix + len) else {
            return Ok(None);
        };
        let message = Message::decode(bytes)?;
        self.taken += prefix + len;
        Ok(Some(message))
    }

    /// True if the stream stands between two messages: only there may it end.
    pub const fn is_between_messages(&self) -> bool {
        self.taken == self.buffer.len()
    }
}
