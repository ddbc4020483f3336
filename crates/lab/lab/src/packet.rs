//! Packets as a TUN device gives and takes them: what is in a super-packet, and how a part of it
//! is cut out so that it looks like the segments that the sender's stack would have made.

mod checksum;
mod cut;
mod join;
mod too_big;

use longhaul_pathsim::Ecn;
use longhaul_sys::tun::{GsoKind, VNET_LEN, VnetHeader};

pub(crate) use self::cut::{Cut, Part, corrupted};
pub(crate) use self::join::Joined;
pub(crate) use self::too_big::too_big;

/// A packet or super-packet, understood as far as the emulator must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) vnet: VnetHeader,
    pub(crate) ip: Ip,
    pub(crate) ecn: Ecn,
    /// IP packet length in bytes, all segments together.
    pub(crate) len: u32,
    /// Bytes that every segment repeats: IP and transport headers.
    pub(crate) headers: u16,
    /// Segments on the wire, at least one.
    pub(crate) segments: u16,
    /// For people and logs.
    pub(crate) flow: Flow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    V4,
    V6,
}

/// The flow of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Flow {
    /// IP protocol: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// Port of the sender, 0 for what has none.
    pub source_port: u16,
    /// Port of the receiver, 0 for what has none.
    pub destination_port: u16,
}

impl Shape {
    /// Reads a packet behind its virtio header; `None` for what is no packet, or a super-packet of
    /// a kind that cannot be cut.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let vnet = VnetHeader::parse(packet)?;
        let ip_packet = packet.get(VNET_LEN..)?;
        let (ip, class, protocol, ip_header) = ip_header(ip_packet)?;
        let transport = ip_packet.get(ip_header..)?;
        let flow = flow(protocol, transport);
        let len = ip_packet.len() as u32;
        let ecn = Ecn::from_bits(class);
        let single = Self { vnet, ip, ecn, len, headers: ip_header as u16, segments: 1, flow };
        let Some(kind) = vnet.gso else { return Some(single) };
        // Only with an open checksum can parts be cut without summing all of the payload.
        if !vnet.needs_checksum
            || usize::from(vnet.checksum_start) != ip_header
            || vnet.segment == 0
        {
            return None;
        }
        let (transport_header, least, checksum_offset) = match (kind, ip, protocol) {
            (GsoKind::Tcp4, Ip::V4, TCP) | (GsoKind::Tcp6, Ip::V6, TCP) => {
                (usize::from(transport.get(TCP_OFFSET)? >> 4) * 4, TCP_HEADER, 16)
            }
            (GsoKind::Udp, _, UDP) => (UDP_HEADER, UDP_HEADER, 6),
            _ => return None,
        };
        let headers = ip_header + transport_header;
        let payload = ip_packet.len().checked_sub(headers)?;
        let expected = transport_header >= least && vnet.checksum_offset == checksum_offset;
        if headers > HEADERS_MAX || !expected {
            return None;
        }
        let segments = payload.div_ceil(usize::from(vnet.segment)).max(1) as u16;
        Some(Self { headers: headers as u16, segments, ..single })
    }

    /// IP-layer bytes of each segment but the last.
    pub(crate) fn segment_len(&self) -> u32 {
        if self.segments == 1 {
            return self.len;
        }
        u32::from(self.headers) + u32::from(self.vnet.segment)
    }

    /// IP-layer bytes of the last segment.
    pub(crate) fn last_len(&self) -> u32 {
        let before = u32::from(self.segments - 1) * u32::from(self.vnet.segment);
        self.len - before
    }

    /// The first bytes of a segment's datagram, zeroes where it has fewer or is none. `packet` has its
    /// virtio header.
    pub(crate) fn head<const N: usize>(&self, packet: &[u8], index: u32) -> [u8; N] {
        let mut head = [0; N];
        if self.flow.protocol == UDP {
            let before = if self.vnet.gso.is_none() { UDP_HEADER } else { 0 };
            let within = index as usize * usize::from(self.vnet.segment);
            let start = VNET_LEN + usize::from(self.headers) + before + within;
            let bytes = packet.get(start..).unwrap_or_default();
            let count = bytes.len().min(N);
            head[..count].copy_from_slice(&bytes[..count]);
        }
        head
    }

    /// Where the payload of `part` stands in the packet with its virtio header.
    fn payload(&self, part: Part) -> std::ops::Range<usize> {
        let start = VNET_LEN + usize::from(self.headers);
        let segment = usize::from(self.vnet.segment);
        let end = VNET_LEN + self.len as usize;
        let from = start + usize::from(part.first) * segment;
        let to = start + usize::from(part.first + part.count) * segment;
        from..if part.first + part.count == self.segments { end } else { to }
    }
}

/// True if routers would keep a packet to its own link: multicast, broadcast and link-local
/// addresses. `packet` is a packet with its virtio header.
pub(crate) fn stays_on_link(packet: &[u8]) -> bool {
    match packet.get(VNET_LEN..) {
        Some([first, rest @ ..]) if first >> 4 == 4 => {
            matches!(rest.get(15..17), Some(&[high, low]) if high >= 224 || [high, low] == [169, 254])
        }
        Some([first, rest @ ..]) if first >> 4 == 6 => match rest.get(23..25) {
            Some([0xff, _]) => true,
            Some([0xfe, second]) => second & 0xc0 == 0x80,
            _ => false,
        },
        _ => false,
    }
}

/// Version, traffic class, protocol of the transport, bytes before it.
fn ip_header(packet: &[u8]) -> Option<(Ip, u8, u8, usize)> {
    match packet.first()? >> 4 {
        4 => {
            let length = usize::from(packet[0] & 0xf) * 4;
            let fixed = packet.first_chunk::<IPV4_HEADER>()?;
            (length >= IPV4_HEADER && length <= packet.len()).then_some((
                Ip::V4,
                fixed[1],
                fixed[9],
                length,
            ))
        }
        6 => {
            let fixed = packet.first_chunk::<IPV6_HEADER>()?;
            let class = (fixed[0] << 4) | (fixed[1] >> 4);
            let (mut next, mut at) = (fixed[6], IPV6_HEADER);
            while IPV6_OPTIONS.contains(&next) {
                let &[following, units] = packet.get(at..)?.first_chunk()?;
                (next, at) = (following, at + 8 + usize::from(units) * 8);
            }
            Some((Ip::V6, class, next, at))
        }
        _ => None,
    }
}

fn flow(protocol: u8, transport: &[u8]) -> Flow {
    match transport.first_chunk() {
        Some(&[a, b, c, d]) if matches!(protocol, TCP | UDP) => Flow {
            protocol,
            source_port: u16::from_be_bytes([a, b]),
            destination_port: u16::from_be_bytes([c, d]),
        },
        _ => Flow { protocol, ..Flow::default() },
    }
}

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const TCP_HEADER: usize = 20;
/// Of the byte whose upper half is the length of a TCP header.
const TCP_OFFSET: usize = 12;
const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// Extension headers that may stand before a transport: hop-by-hop, routing, destination options.
const IPV6_OPTIONS: [u8; 3] = [0, 43, 60];
/// IPv6 with some extensions and TCP with all options.
const HEADERS_MAX: usize = 240;

#[cfg(test)]
mod tests;
