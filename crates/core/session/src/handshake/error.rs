use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use longhaul_wire::{CloseCode, ControlMessage, DecodeError};

/// Why a handshake failed. The variants say whose fault it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer broke the protocol, or is no Longhaul at all.
    #[error("the peer broke the protocol: {0}")]
    Misbehaved(DecodeError),
    /// The peer sent a message that is not allowed at this point.
    #[error("the peer broke the protocol: {message} is not allowed here")]
    Unexpected {
        /// The message.
        message: &'static str,
    },
    /// The server chose what was not offered.
    #[error("the server chose a {what} that was not offered")]
    NotOffered {
        /// The option.
        what: &'static str,
    },
    /// Both ends are right, but have nothing in common.
    #[error("the two ends do not fit together: {0}")]
    Incompatible(DecodeError),
    /// The server does not take the client's wish.
    #[error("the client wishes a {what} that this server does not offer")]
    NoCommon {
        /// The option.
        what: &'static str,
    },
    /// The peer does not hold the token, or somebody stands between the two ends.
    #[error("the peer does not hold the token")]
    Unauthorized,
    /// The peer ended the connection.
    #[error("the peer closed the connection: {code} ({})", .reason)]
    Closed {
        /// Why, for programs.
        code: CloseCode,
        /// Why, for people. The peer chose the text.
        reason: String,
    },
    /// The handshake took too long.
    #[error("the handshake was not complete in time")]
    TimedOut,
}

impl HandshakeError {
    /// The code to close the connection with; `None` when the peer has closed it.
    pub const fn close_code(&self) -> Option<CloseCode> {
        Some(match self {
            Self::Misbehaved(error) | Self::Incompatible(error) => error.close_code(),
            Self::Unexpected { .. } | Self::NotOffered { .. } => CloseCode::PROTOCOL_VIOLATION,
            Self::NoCommon { .. } => CloseCode::UNSUPPORTED_OPTION,
            Self::Unauthorized => CloseCode::UNAUTHORIZED,
            Self::TimedOut => CloseCode::TIMEOUT,
            Self::Closed { .. } => return None,
        })
    }

    /// The CLOSE message to send before the connection is ended; empty when there is none.
    pub fn close_message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(code) = self.close_code() {
            // A reason is cut to what fits, so this cannot fail.
            let _ = ControlMessage::Close { code, reason: &self.reason(code) }.encode(&mut out);
        }
        out
    }

    /// Reason for the peer: `Display` speaks from the other point of view.
    fn reason(&self, code: CloseCode) -> String {
        match self {
            Self::Misbehaved(error) | Self::Incompatible(error) => error.to_string(),
            Self::Unexpected { message } => format!("{message} is not allowed here"),
            Self::NotOffered { what } => format!("this {what} was not offered"),
            Self::NoCommon { what } => format!("this server does not offer the {what} wished"),
            _ => code.meaning().unwrap_or_default().into(),
        }
    }
}

impl From<DecodeError> for HandshakeError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Unsupported { .. } | DecodeError::UnsupportedVersion => {
                Self::Incompatible(error)
            }
            _ => Self::Misbehaved(error),
        }
    }
}
