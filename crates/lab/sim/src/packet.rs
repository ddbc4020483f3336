//! Datagrams, as bytes: one that leaves an end, one on its way, one that has arrived.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_pathsim::Flip;
use longhaul_units::{Ecn, LaneId};
use longhaul_wire::{AEAD_TAG_LEN, Frame, Frames, HEADER_LEN, Header, Kind, ObjectHeader};

use crate::scenario::End;

/// A datagram and where it seems to come from.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub from: SocketAddr,
    pub bytes: Arc<[u8]>,
}

/// A datagram that leaves an end.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub to: SocketAddr,
    pub lane: LaneId,
    /// The path that a client sends it over.
    pub route: u16,
    pub ecn: Ecn,
    pub bytes: Arc<[u8]>,
}

/// A packet that arrived at a host.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub at: End,
    pub packet: Datagram,
    pub ecn: Ecn,
}

impl Datagram {
    /// Its header; `None` where somebody made it up.
    pub fn header(&self) -> Option<Header> {
        Header::parse(&self.bytes).ok()
    }

    /// Its packet number, 0 if it has none.
    pub fn number(&self) -> u64 {
        self.header().map_or(0, |header| header.number.get())
    }

    /// The same with another header, and the tag that it had.
    #[must_use]
    pub fn with_header(&self, header: &Header) -> Self {
        let mut bytes = Arc::clone(&self.bytes);
        if let Some(head) = Arc::make_mut(&mut bytes).first_chunk_mut::<HEADER_LEN>() {
            header.emit(head);
        }
        Self { from: self.from, bytes }
    }

    /// IP-layer bytes.
    pub fn wire_bytes(&self) -> u64 {
        wire_bytes(self.from, self.bytes.len())
    }

    /// True if it carries object bytes.
    pub fn is_object(&self) -> bool {
        self.header().is_some_and(|header| header.kind == Kind::Object)
    }

    /// A bit changes.
    pub fn corrupt(&mut self, flip: Flip) {
        if let Some((byte, mask)) = flip.bit(self.bytes.len()) {
            Arc::make_mut(&mut self.bytes)[byte] ^= mask;
        }
    }

    /// Its contents, for people.
    pub fn brief(&self) -> String {
        let Some(Header { kind, lane, number, .. }) = self.header() else {
            return "garbage".into();
        };
        let body = match kind {
            Kind::Object => ObjectHeader::parse(&self.bytes).map_or_else(
                |error| error.to_string(),
                |header| format!("{:?} {}+", header.object, header.offset),
            ),
            Kind::Control => {
                let frames = self.bytes[HEADER_LEN..].len().saturating_sub(AEAD_TAG_LEN);
                frames_in_brief(&self.bytes[HEADER_LEN..][..frames])
            }
        };
        format!("{lane:?} #{} ({} bytes): {body}", number.get(), self.wire_bytes())
    }
}

/// IP-layer bytes of a datagram of `len` bytes between hosts with addresses such as this.
pub(crate) fn wire_bytes(address: SocketAddr, len: usize) -> u64 {
    len as u64 + if address.is_ipv6() { 48 } else { 28 }
}

fn frames_in_brief(frames: &[u8]) -> String {
    Frames::new(frames)
        .map(|frame| match frame {
            Ok(Frame::Padding(_)) => String::new(),
            Ok(Frame::Stream { offset, data, fin, .. }) => {
                format!("Stream {offset}+{} {fin} ", data.len())
            }
            Ok(frame) => format!("{frame:?} "),
            Err(error) => format!("{error} "),
        })
        .collect()
}
