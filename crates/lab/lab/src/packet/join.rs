use longhaul_sys::tun::{GsoKind, VNET_LEN, VnetHeader};

use super::checksum::{add, sum};
use super::{IPV4_HEADER, IPV6_HEADER, UDP, UDP_HEADER};

/// Datagrams that came one by one and are put together, as a network card with receive offload does:
/// the reverse of [`super::Cut`]. All are of one flow and of one size but the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    /// Bytes of what there is, with the virtio header.
    len: usize,
    count: usize,
    /// The shape that the next one must have; `None` where nothing can follow.
    like: Option<Like>,
}

#[derive(Clone, Copy, Debug)]
struct Like {
    ip_header: usize,
    /// Bytes of payload.
    segment: usize,
}

impl Joined {
    /// The first packet, whatever it is, with its virtio header.
    pub(crate) fn start(packet: &[u8]) -> Self {
        Self { len: packet.len(), count: 1, like: like(packet) }
    }

    /// Puts a packet behind those that are in `place`; false when it does not belong to them.
    pub(crate) fn add(&mut self, place: &mut [u8], packet: &[u8]) -> bool {
        let Some(Like { ip_header, segment }) = self.like else { return false };
        let start = VNET_LEN + ip_header + UDP_HEADER;
        let payload = packet.get(start..).unwrap_or_default();
        let end = self.len + payload.len();
        let fits = (1..=segment).contains(&payload.len())
            && end <= LEN_MAX
            && self.count < COUNT_MAX
            && same_flow(place, packet, ip_header);
        if fits {
            place[self.len..end].copy_from_slice(payload);
            self.len = end;
            self.count += 1;
            // A shorter one is the last.
            self.like = self.like.filter(|_| payload.len() == segment);
        }
        fits
    }

    /// Makes one packet or super-packet of what is in `place`: its length.
    pub(crate) fn finish(self, place: &mut [u8]) -> usize {
        let Some(Like { ip_header, segment }) = like(place).filter(|_| self.count > 1) else {
            return self.len;
        };
        let (vnet, ip) = place[..self.len].split_at_mut(VNET_LEN);
        let udp_len = ((ip.len() - ip_header) as u16).to_be_bytes();
        let addresses = if ip_header == IPV4_HEADER {
            let len = (ip.len() as u16).to_be_bytes();
            ip[2..4].copy_from_slice(&len);
            ip[10..12].fill(0);
            let checksum = !sum(&ip[..ip_header]);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            12..20
        } else {
            ip[4..6].copy_from_slice(&udp_len);
            8..40
        };
        let pseudo = add(add(sum(&ip[addresses]), u16::from_be_bytes(udp_len)), UDP.into());
        ip[ip_header + 4..ip_header + 6].copy_from_slice(&udp_len);
        ip[ip_header + 6..ip_header + 8].copy_from_slice(&pseudo.to_be_bytes());
        let header = VnetHeader {
            needs_checksum: true,
            gso: Some(GsoKind::Udp),
            gso_ecn: false,
            header_len: (ip_header + UDP_HEADER) as u16,
            segment: segment as u16,
            checksum_start: ip_header as u16,
            checksum_offset: CHECKSUM,
        };
        vnet.copy_from_slice(&header.emit());
        self.len
    }
}

/// The shape that may follow a packet: nothing unless it is a whole UDP datagram without IP options
/// whose checksum is open, so that it need not be verified.
fn like(packet: &[u8]) -> Option<Like> {
    let vnet = VnetHeader::parse(packet)?;
    let ip = packet.get(VNET_LEN..)?;
    let (ip_header, protocol, whole) = match ip.first()? {
        0x45 => (IPV4_HEADER, *ip.get(9)?, ip[6] & 0x3f == 0 && ip[7] == 0),
        first if first >> 4 == 6 => (IPV6_HEADER, *ip.get(6)?, true),
        _ => return None,
    };
    let length_at = ip_header + 4;
    let udp_len = u16::from_be_bytes(*ip.get(length_at..)?.first_chunk()?).into();
    let open = vnet.needs_checksum && vnet.gso.is_none() && vnet.checksum_offset == CHECKSUM;
    let starts = usize::from(vnet.checksum_start) == ip_header;
    // In the first of several the length is still its own.
    let segment = usize::checked_sub(udp_len, UDP_HEADER).filter(|segment| *segment > 0)?;
    (protocol == UDP && whole && open && starts && ip.len() >= ip_header + udp_len)
        .then_some(Like { ip_header, segment })
}

/// All of the headers is alike but lengths, identification and checksums.
fn same_flow(a: &[u8], b: &[u8], ip_header: usize) -> bool {
    let ports = ip_header..ip_header + 4;
    let ip = match ip_header {
        IPV4_HEADER => [0..2, 6..10, 12..20, ports],
        _ => [0..4, 6..8, 8..40, ports],
    };
    a[..VNET_LEN] == b[..VNET_LEN]
        && ip.into_iter().all(|field| a[VNET_LEN..][field.clone()] == b[VNET_LEN..][field])
}

/// Of the checksum in the header of UDP.
const CHECKSUM: u16 = 6;
/// Of IP, with the virtio header.
const LEN_MAX: usize = VNET_LEN + 65_535;
/// UDP_MAX_SEGMENTS of kernels before Linux 6.10.
const COUNT_MAX: usize = 64;
