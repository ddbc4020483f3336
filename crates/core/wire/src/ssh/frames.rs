//! Frames that carry connections behind the messages over ssh (docs/protocol.md section 10).

use alloc::vec::Vec;

use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::writer::Writer;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshFrame<'a> {
    /// A connection begins.
    Open {
        /// Its number.
        channel: u16,
    },
    /// Bytes of it.
    Data {
        /// Its number.
        channel: u16,
        /// At least one, at most [`MAX_SSH_DATA`].
        bytes: &'a [u8],
    },
    /// More bytes may be sent.
    Credit {
        /// Of this connection.
        channel: u16,
        /// At least one.
        bytes: u32,
    },
    /// No more bytes come from this end.
    End {
        /// Of this connection.
        channel: u16,
    },
    /// The connection is over in both directions.
    Reset {
        /// Its number.
        channel: u16,
    },
    /// Lanes begin at these UDP ports of the client.
    First {
        /// At least one, at most [`MAX_SSH_PORTS`]; none is zero.
        ports: Vec<u16>,
    },
    /// A piece of what the server says of a copy to another server.
    Report {
        /// At least one, at most [`MAX_SSH_DATA`].
        bytes: &'a [u8],
    },
}

impl<'a> SshFrame<'a> {
    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// More bytes or ports than a frame takes.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        let (credit, ports): ([u8; 4], Vec<u8>);
        let (kind, channel, body) = match self {
            Self::Open { channel } => (OPEN, *channel, &[][..]),
            Self::Data { channel, bytes } => (DATA, *channel, *bytes),
            Self::Credit { channel, bytes } => {
                credit = bytes.to_be_bytes();
                (CREDIT, *channel, &credit[..])
            }
            Self::End { channel } => (END, *channel, &[][..]),
            Self::Reset { channel } => (RESET, *channel, &[][..]),
            Self::First { ports: all } => {
                ports = all.iter().flat_map(|port| port.to_be_bytes()).collect();
                (FIRST, 0, &ports[..])
            }
            Self::Report { bytes } => (REPORT, 0, *bytes),
        };
        let most = if kind == FIRST { 2 * MAX_SSH_PORTS } else { MAX_SSH_DATA };
        if body.len() > most {
            return Err(Full);
        }
        let mut w = Writer::append(out);
        w.u8(kind)?;
        w.u16(channel)?;
        w.u16(body.len() as u16)?;
        w.bytes(body)
    }

    /// Reads the frame that `bytes` begin with, and its length; `None` when more are needed.
    ///
    /// # Errors
    /// No frame of this protocol.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let mut head = Reader::new(bytes, WHAT);
        let (Ok(kind), Ok(channel), Ok(len)) = (head.u8(), head.u16(), head.u16()) else {
            // What is known is judged at once: a stranger may send no more than that.
            return match bytes.first() {
                Some(kind) if !(OPEN..=REPORT).contains(kind) => Err(INVALID),
                _ => Ok(None),
            };
        };
        let len = usize::from(len);
        let fits = match kind {
            OPEN | END | RESET => len == 0,
            DATA => len > 0,
            CREDIT => len == 4,
            REPORT => channel == 0 && len > 0,
            FIRST => channel == 0 && len > 0 && len % 2 == 0 && len <= 2 * MAX_SSH_PORTS,
            _ => false,
        };
        if !fits || (channel == 0) != (kind >= FIRST) {
            return Err(INVALID);
        }
        let Ok(body) = head.take(len) else { return Ok(None) };
        let frame = match (kind, body) {
            (OPEN, _) => Self::Open { channel },
            (DATA, bytes) => Self::Data { channel, bytes },
            (CREDIT, &[a, b, c, d]) => {
                Self::Credit { channel, bytes: u32::from_be_bytes([a, b, c, d]) }
            }
            (REPORT, bytes) => Self::Report { bytes },
            (END, _) => Self::End { channel },
            (RESET, _) => Self::Reset { channel },
            _ => {
                let ports = body.as_chunks().0.iter().map(|port| u16::from_be_bytes(*port));
                Self::First { ports: ports.collect() }
            }
        };
        match &frame {
            Self::Credit { bytes: 0, .. } => Err(INVALID),
            Self::First { ports } if ports.contains(&0) => Err(INVALID),
            _ => Ok(Some((frame, HEAD + len))),
        }
    }
}

/// Bytes of a connection in one frame, at most.
pub const MAX_SSH_DATA: usize = u16::MAX as usize;
/// Ports in one frame, at most.
pub const MAX_SSH_PORTS: usize = 128;
/// Bytes that may be sent on a channel before any CREDIT.
pub const SSH_WINDOW: u32 = 1 << 22;

const HEAD: usize = 5;
const WHAT: &str = "frame over ssh";
const INVALID: DecodeError = DecodeError::Invalid { what: WHAT };
const OPEN: u8 = 1;
const DATA: u8 = 2;
const CREDIT: u8 = 3;
const END: u8 = 4;
const RESET: u8 = 5;
const FIRST: u8 = 6;
const REPORT: u8 = 7;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_these_bytes() {
        for (frame, bytes) in [
            (SshFrame::Open { channel: 1 }, &[1, 0, 1, 0, 0][..]),
            (SshFrame::Data { channel: 0x102, bytes: b"ab" }, &[2, 1, 2, 0, 2, b'a', b'b']),
            (SshFrame::Credit { channel: 3, bytes: 0x10000 }, &[3, 0, 3, 0, 4, 0, 1, 0, 0]),
            (SshFrame::End { channel: 4 }, &[4, 0, 4, 0, 0]),
            (SshFrame::Reset { channel: 5 }, &[5, 0, 5, 0, 0]),
            (SshFrame::First { ports: vec![258, 9] }, &[6, 0, 0, 0, 4, 1, 2, 0, 9]),
            (SshFrame::Report { bytes: b"{}" }, &[7, 0, 0, 0, 2, b'{', b'}']),
        ] {
            let mut out = Vec::new();
            frame.encode(&mut out).unwrap();
            assert_eq!(out, bytes);
            assert_eq!(SshFrame::parse(bytes), Ok(Some((frame, bytes.len()))));
            for len in 0..bytes.len() {
                assert_eq!(SshFrame::parse(&bytes[..len]), Ok(None), "{bytes:?} {len}");
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [
            &[0][..],
            &[8],
            &[7, 0, 1, 0, 1, 9],
            &[7, 0, 0, 0, 0],
            b"Last login",
            &[1, 0, 0, 0, 0],
            &[1, 0, 1, 0, 1, 9],
            &[2, 0, 1, 0, 0],
            &[3, 0, 1, 0, 3, 0, 0, 1],
            &[3, 0, 1, 0, 4, 0, 0, 0, 0],
            &[6, 0, 1, 0, 2, 0, 1],
            &[6, 0, 0, 0, 0],
            &[6, 0, 0, 0, 3, 1, 1, 1],
            &[6, 0, 0, 0, 2, 0, 0],
            &[6, 0, 0, 1, 2],
        ] {
            assert!(SshFrame::parse(bytes).is_err(), "{bytes:?}");
        }
        let ports = vec![1; MAX_SSH_PORTS + 1];
        assert!(SshFrame::First { ports }.encode(&mut Vec::new()).is_err());
        let bytes = &vec![1; MAX_SSH_DATA + 1][..];
        assert!(SshFrame::Data { channel: 1, bytes }.encode(&mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in prop::collection::vec(any::<u8>(), 0..40), kind in 0..9_u8) {
            let bytes = [&[kind, 0][..], &bytes].concat();
            if let Ok(Some((frame, len))) = SshFrame::parse(&bytes) {
                let mut out = Vec::new();
                frame.encode(&mut out).unwrap();
                prop_assert_eq!(out, &bytes[..len]);
            }
        }
    }
}
