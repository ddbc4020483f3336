//! A router's answer to a packet that does not fit its next link.

use longhaul_sys::tun::VNET_LEN;

use super::checksum::{add, sum};
use super::{IPV4_HEADER, IPV6_HEADER, Ip, Shape};

/// The answer to `packet`, with a virtio header of its own: "fragmentation needed" (RFC 792, RFC
/// 1191) or "packet too big" (RFC 4443). `None` to errors of ICMP, which are never answered.
///
/// It bears the destination's address: a router's own would have to be known to the hosts.
pub(crate) fn too_big(shape: &Shape, packet: &[u8], mtu: u32) -> Option<Vec<u8>> {
    let ip = packet.get(VNET_LEN..)?;
    let about = ip.get(usize::from(shape.headers)..).unwrap_or_default();
    let is_error = match (shape.flow.protocol, about.first()) {
        (ICMP, Some(kind)) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        (ICMPV6, Some(kind)) => *kind < 128,
        _ => false,
    };
    if is_error {
        return None;
    }
    let mut answer = vec![0; VNET_LEN];
    match shape.ip {
        Ip::V4 => {
            let quote = &ip[..ip.len().min(V4_MAX - IPV4_HEADER - 8)];
            let length = (IPV4_HEADER + 8 + quote.len()) as u16;
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            let mut header = [0; IPV4_HEADER];
            (header[0], header[8], header[9]) = (0x45, TTL, ICMP);
            header[2..4].copy_from_slice(&length.to_be_bytes());
            header[12..16].copy_from_slice(&ip[16..20]);
            header[16..20].copy_from_slice(&ip[12..16]);
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            let mut icmp = [3, 4, 0, 0, 0, 0, 0, 0];
            icmp[6..8].copy_from_slice(&mtu.to_be_bytes());
            let checksum = !add(sum(&icmp), sum(quote));
            icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
            answer.extend(header);
            answer.extend(icmp);
            answer.extend(quote);
        }
        Ip::V6 => {
            let quote = &ip[..ip.len().min(V6_MAX - IPV6_HEADER - 8)];
            let length = (8 + quote.len()) as u16;
            let mut header = [0; IPV6_HEADER];
            (header[0], header[6], header[7]) = (0x60, ICMPV6, TTL);
            header[4..6].copy_from_slice(&length.to_be_bytes());
            header[8..24].copy_from_slice(&ip[24..40]);
            header[24..40].copy_from_slice(&ip[8..24]);
            let mut icmp = [2, 0, 0, 0, 0, 0, 0, 0];
            icmp[4..8].copy_from_slice(&mtu.to_be_bytes());
            let pseudo = add(add(sum(&header[8..40]), length), u16::from(ICMPV6));
            let checksum = !add(add(pseudo, sum(&icmp)), sum(quote));
            icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
            answer.extend(header);
            answer.extend(icmp);
            answer.extend(quote);
        }
    }
    Some(answer)
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TTL: u8 = 64;
/// The longest that errors may be (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4).
const V4_MAX: usize = 576;
const V6_MAX: usize = 1280;
