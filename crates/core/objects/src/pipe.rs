//! A pipe: bytes in order and of unknown number, moved as numbered pieces
//! (docs/protocol.md section 7.6).
//!
//! [`PipeSource`] numbers pieces and keeps account of those that may have to be sent again;
//! [`PipeSink`] verifies them and gives them out in order. Neither holds a byte of them.

mod sink;
mod source;

use alloc::string::String;

use longhaul_units::{Extent, ObjectId};

use crate::limits::GROUP_SIZE;

pub use sink::{PipeSink, PipeSinkEvent};
pub use source::{PipeSource, PipeSourceEvent};

/// A piece of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place in the pipe.
    pub number: u32,
    /// Its bytes: 1 to [`GROUP_SIZE`].
    pub len: u32,
}

impl Piece {
    /// Where it travels: the object is its length.
    pub const fn extent(self) -> Extent {
        let offset = self.number as u64 * GROUP_SIZE;
        Extent { object: self.object(), offset, len: self.len as u64 }
    }

    /// The object that packets name.
    pub const fn object(self) -> ObjectId {
        ObjectId(self.len)
    }
}

/// Why a pipe cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipeError {
    /// The peer broke the protocol.
    #[error("{0}")]
    Protocol(String),
    /// A piece came with other bytes than were sent, again and again.
    #[error("piece {0} arrived damaged {n} times", n = crate::limits::REPAIRS_MAX + 1)]
    Damaged(u32),
}

fn violation<T>(what: &str) -> Result<T, PipeError> {
    Err(PipeError::Protocol(what.into()))
}

#[cfg(test)]
mod tests;
