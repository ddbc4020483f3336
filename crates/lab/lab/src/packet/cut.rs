use std::ops::Range;

use longhaul_pathsim::{Ecn, Flip};
use longhaul_sys::tun::{GsoKind, VNET_LEN};

use super::checksum::{add, sum};
use super::{HEADERS_MAX, Ip, Shape, TCP_OFFSET};

/// Consecutive segments of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first: u16,
    pub(crate) count: u16,
    /// Congestion Experienced is to be set.
    pub(crate) marked: bool,
}

/// A part that is a packet of its own: new headers, and the payload where it stands.
pub(crate) struct Cut {
    headers: [u8; VNET_LEN + HEADERS_MAX],
    headers_len: usize,
    /// In the packet with its virtio header.
    pub(crate) payload: Range<usize>,
}

impl Cut {
    /// Cuts `part` out of `packet`, which begins with a virtio header.
    ///
    /// IP identification, lengths, TCP sequence numbers and flags, and the open checksum become
    /// what the kernel gives to segments (net/ipv4/tcp_offload.c, net/ipv4/udp_offload.c).
    pub(crate) fn new(shape: &Shape, packet: &[u8], part: Part) -> Self {
        let payload = shape.payload(part);
        let headers_len = VNET_LEN + usize::from(shape.headers);
        let mut headers = [0; VNET_LEN + HEADERS_MAX];
        headers[..headers_len].copy_from_slice(&packet[..headers_len]);
        let whole = part.count == shape.segments;
        if !whole {
            let mut vnet = shape.vnet;
            vnet.header_len = shape.headers;
            vnet.gso_ecn &= part.first == 0;
            if part.count == 1 {
                (vnet.gso, vnet.gso_ecn, vnet.segment, vnet.header_len) = (None, false, 0, 0);
            }
            headers[..VNET_LEN].copy_from_slice(&vnet.emit());
        }
        let ip = &mut headers[VNET_LEN..headers_len];
        let len = usize::from(shape.headers) + payload.len();
        if !whole {
            segment_transport(shape, part, ip, len);
        }
        segment_ip(shape, part, ip, len);
        Self { headers, headers_len, payload }
    }

    /// The virtio header and the headers of the packet.
    pub(crate) fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_len]
    }
}

/// Length, identification, ECN field and checksum of an IP header, for a packet of `len` bytes.
fn segment_ip(shape: &Shape, part: Part, ip: &mut [u8], len: usize) {
    match shape.ip {
        Ip::V4 => {
            let header = usize::from(ip[0] & 0xf) * 4;
            ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(part.first);
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            if part.marked {
                ip[1] |= Ecn::Ce.bits();
            }
            ip[10..12].fill(0);
            let checksum = !sum(&ip[..header]);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Ip::V6 => {
            ip[4..6].copy_from_slice(&((len - super::IPV6_HEADER) as u16).to_be_bytes());
            if part.marked {
                ip[1] |= Ecn::Ce.bits() << 4;
            }
        }
    }
}

/// Sequence number and flags of TCP, length of UDP, and the sum of the pseudo-header for a packet
/// of `len` bytes.
fn segment_transport(shape: &Shape, part: Part, ip: &mut [u8], len: usize) {
    let at = usize::from(shape.vnet.checksum_start);
    let transport_len = (len - at) as u16;
    let transport = &mut ip[at..];
    if shape.vnet.gso == Some(GsoKind::Udp) {
        transport[4..6].copy_from_slice(&transport_len.to_be_bytes());
    } else {
        let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
        let before = u32::from(part.first) * u32::from(shape.vnet.segment);
        transport[4..8].copy_from_slice(&sequence.wrapping_add(before).to_be_bytes());
        let flags = &mut transport[TCP_OFFSET + 1];
        if part.first > 0 {
            *flags &= !CWR;
        }
        if part.first + part.count < shape.segments {
            *flags &= !(FIN | PSH);
        }
    }
    let field = at + usize::from(shape.vnet.checksum_offset);
    let pseudo = pseudo_header(shape, ip, transport_len);
    ip[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
}

/// Sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn pseudo_header(shape: &Shape, ip: &[u8], transport_len: u16) -> u16 {
    let addresses = match shape.ip {
        Ip::V4 => &ip[12..20],
        Ip::V6 => &ip[8..40],
    };
    add(add(sum(addresses), transport_len), u16::from(shape.flow.protocol))
}

/// Writes to `out` the one segment of `cut` as a packet with a finished checksum and then a wrong
/// bit behind its IP header, so that its receiver has to find out.
pub(crate) fn corrupted(shape: &Shape, packet: &[u8], cut: &Cut, flip: Flip, out: &mut Vec<u8>) {
    out.clear();
    out.extend([0; VNET_LEN]);
    out.extend(&cut.headers()[VNET_LEN..]);
    out.extend(&packet[cut.payload.clone()]);
    let ip = &mut out[VNET_LEN..];
    if shape.vnet.needs_checksum {
        let at = usize::from(shape.vnet.checksum_start);
        let field = at + usize::from(shape.vnet.checksum_offset);
        if let Some(transport) = ip.get_mut(at..).filter(|_| field + 2 <= cut_len(shape, cut)) {
            // The field holds the sum of the pseudo-header.
            let checksum = match !sum(transport) {
                0 => 0xffff,
                checksum => checksum,
            };
            ip[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        }
    }
    let header = match shape.ip {
        Ip::V4 => usize::from(ip[0] & 0xf) * 4,
        Ip::V6 => super::IPV6_HEADER,
    };
    let behind = &mut ip[header..];
    if let Some((byte, mask)) = flip.bit(behind.len()) {
        behind[byte] ^= mask;
    }
}

fn cut_len(shape: &Shape, cut: &Cut) -> usize {
    usize::from(shape.headers) + cut.payload.len()
}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
