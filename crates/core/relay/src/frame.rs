//! Payload on transports without half-close (docs/relay.md section 5, Phoebus section 4.4).

use alloc::string::String;
use alloc::vec::Vec;

use longhaul_wire::{DecodeError, Reader};

use crate::answer::MAX_REASON;
use crate::place::cut;
use crate::status::Status;

/// Bytes in front of a frame's payload.
pub const HEAD_LEN: usize = 6;
/// Most payload of a frame.
pub const MAX_DATA: usize = 1 << 20;

/// The head of a frame: what its payload is, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Payload of the session, 1 to [`MAX_DATA`] bytes.
    Data(usize),
    /// The sender of the frame writes no more.
    EndOfWriting,
    /// The sender of the frame reads no more.
    EndOfReading,
    /// The session is over; a payload of this length says why (see [`Reset`]).
    Reset(usize),
    /// The sender is there.
    KeepAlive,
}

impl Head {
    /// The bytes.
    pub const fn encode(self) -> [u8; HEAD_LEN] {
        let (kind, direction, len) = match self {
            Self::Data(len) => (DATA, 0, len as u32),
            Self::EndOfWriting => (SHUTDOWN, WRITING, 0),
            Self::EndOfReading => (SHUTDOWN, READING, 0),
            Self::Reset(len) => (RESET, 0, len as u32),
            Self::KeepAlive => (KEEP_ALIVE, 0, 0),
        };
        let [a, b, c, d] = len.to_be_bytes();
        [kind, direction, a, b, c, d]
    }

    /// Reads a head.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: [u8; HEAD_LEN]) -> Result<Self, DecodeError> {
        let [kind, direction, len @ ..] = bytes;
        let len = u32::from_be_bytes(len) as usize;
        match (kind, direction, len) {
            (DATA, 0, 1..=MAX_DATA) => Ok(Self::Data(len)),
            (SHUTDOWN, WRITING, 0) => Ok(Self::EndOfWriting),
            (SHUTDOWN, READING, 0) => Ok(Self::EndOfReading),
            (RESET, 0, RESET_MIN..=RESET_MAX) => Ok(Self::Reset(len)),
            (KEEP_ALIVE, 0, 0) => Ok(Self::KeepAlive),
            _ => Err(DecodeError::Invalid { what: "frame" }),
        }
    }
}

/// Why a session was reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The cause.
    pub status: Status,
    /// Gateways between the sender of this frame and the one where it happened.
    pub hop: u8,
    /// For people, at most [`MAX_REASON`] bytes.
    pub reason: String,
}

impl Reset {
    /// The frame.
    pub fn encode(&self) -> Vec<u8> {
        let reason = cut(&self.reason, MAX_REASON);
        let mut frame = Vec::from(Head::Reset(RESET_MIN + reason.len()).encode());
        frame.extend_from_slice(&self.status.0.to_be_bytes());
        frame.push(self.hop);
        frame.extend_from_slice(reason.as_bytes());
        frame
    }

    /// Reads the payload of a frame.
    ///
    /// # Errors
    /// It is none of a reset.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(payload, "reset");
        let (status, hop) = (Status(r.u16()?), r.u8()?);
        Ok(Self { status, hop, reason: r.text(MAX_REASON)?.into() })
    }
}

const DATA: u8 = 0;
const SHUTDOWN: u8 = 1;
const RESET: u8 = 2;
const KEEP_ALIVE: u8 = 3;
const WRITING: u8 = 1;
const READING: u8 = 2;
const RESET_MIN: usize = 3;
const RESET_MAX: usize = RESET_MIN + MAX_REASON;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_of_frames() {
        for (head, bytes) in [
            (Head::Data(258), [0, 0, 0, 0, 1, 2]),
            (Head::EndOfWriting, [1, 1, 0, 0, 0, 0]),
            (Head::EndOfReading, [1, 2, 0, 0, 0, 0]),
            (Head::KeepAlive, [3, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(head.encode(), bytes);
            assert_eq!(Head::decode(bytes), Ok(head));
        }
        let reset = Reset { status: Status::RESET, hop: 2, reason: "gone".into() };
        let frame = reset.encode();
        assert_eq!(frame, [2, 0, 0, 0, 0, 7, 0, 12, 2, b'g', b'o', b'n', b'e']);
        assert_eq!(Reset::decode(&frame[HEAD_LEN..]), Ok(reset));
    }

    proptest! {
        #[test]
        fn a_head_that_is_read_is_written_back(bytes in any::<[u8; HEAD_LEN]>()) {
            if let Ok(head) = Head::decode(bytes) {
                prop_assert_eq!(head.encode(), bytes);
            }
        }

        #[test]
        fn any_payload_of_a_reset_is_read_or_refused(bytes in any::<Vec<u8>>()) {
            if let Ok(reset) = Reset::decode(&bytes) {
                prop_assert_eq!(&reset.encode()[HEAD_LEN..], &bytes[..]);
            }
        }
    }
}
