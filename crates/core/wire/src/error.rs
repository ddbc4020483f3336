use crate::close::CloseCode;

/// Why bytes from the peer are not what docs/protocol.md defines. `what` names the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The structure is longer than the bytes.
    #[error("{what} is truncated")]
    Truncated {
        /// The structure.
        what: &'static str,
    },
    /// Bytes are left over behind a complete structure.
    #[error("bytes left over behind {what}")]
    Trailing {
        /// The structure.
        what: &'static str,
    },
    /// A field has a value that the protocol forbids.
    #[error("{what} is not valid")]
    Invalid {
        /// The field or structure.
        what: &'static str,
    },
    /// A type or value that this version does not know and may not ignore.
    #[error("{what} is not supported")]
    Unsupported {
        /// The kind of thing that is unknown.
        what: &'static str,
    },
    /// HELLO offers, or WELCOME chose, no version that this side speaks.
    #[error("no common protocol version")]
    UnsupportedVersion,
}

impl DecodeError {
    /// The code to close the connection with (docs/protocol.md section 3).
    pub const fn close_code(&self) -> CloseCode {
        match self {
            Self::Truncated { .. } | Self::Trailing { .. } | Self::Invalid { .. } => {
                CloseCode::PROTOCOL_VIOLATION
            }
            Self::Unsupported { .. } => CloseCode::UNSUPPORTED_OPTION,
            Self::UnsupportedVersion => CloseCode::UNSUPPORTED_VERSION,
        }
    }
}

/// Error: the value does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room to write")]
pub struct Full;
