//! A datagram on its way.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use longhaul_pathsim::Flip;
use longhaul_units::{LaneId, ObjectId};
use longhaul_wire::{
    AEAD_TAG_LEN, CLEAR_TAG_LEN, ConnectionId, HEADER_LEN, OBJECT_HEADER_LEN, Protect,
};

/// A packet with its IP addresses. Protection is modelled: a packet is authentic or not.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub connection: ConnectionId,
    pub lane: LaneId,
    pub from: SocketAddr,
    pub number: u64,
    pub send_time: u32,
    /// Whether it opens under the keys of its connection, lane and direction.
    pub authentic: bool,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Control(Arc<Vec<u8>>),
    Object {
        object: ObjectId,
        offset: u64,
        /// The group that the payload is a part of.
        data: Arc<Vec<u8>>,
        part: Range<usize>,
        /// A payload byte that was changed on the way, and how.
        flipped: Option<(usize, u8)>,
    },
}

impl Packet {
    /// UDP payload in bytes.
    pub fn datagram(&self, protect: Protect) -> usize {
        match &self.body {
            Body::Control(frames) => HEADER_LEN + frames.len() + AEAD_TAG_LEN,
            Body::Object { part, .. } => OBJECT_HEADER_LEN + part.len() + object_tag(protect),
        }
    }

    /// IP-layer bytes.
    pub fn wire_bytes(&self, protect: Protect) -> u64 {
        let headers = if self.from.is_ipv6() { 48 } else { 28 };
        self.datagram(protect) as u64 + headers
    }

    /// A bit of the datagram changes. Only payload in `clear` escapes authentication
    /// (docs/protocol.md section 4.3).
    pub fn corrupt(&mut self, flip: Flip, protect: Protect) {
        let Some((byte, mask)) = flip.bit(self.datagram(protect)) else { return };
        match &mut self.body {
            Body::Object { part, flipped, .. }
                if protect == Protect::Clear
                    && (OBJECT_HEADER_LEN..OBJECT_HEADER_LEN + part.len()).contains(&byte) =>
            {
                *flipped = Some((byte - OBJECT_HEADER_LEN, mask));
            }
            _ => self.authentic = false,
        }
    }
}

/// Bytes of the tag of an OBJECT packet.
pub(crate) fn object_tag(protect: Protect) -> usize {
    if protect == Protect::Clear { CLEAR_TAG_LEN } else { AEAD_TAG_LEN }
}
