/// Bytes of a [`VnetHeader`].
pub const VNET_LEN: usize = 10;

/// Header before each packet (`struct virtio_net_hdr` of include/uapi/linux/virtio_net.h, in
/// the byte order of the machine).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// The transport checksum is open: its field holds the sum of the pseudo-header, and covers
    /// everything from `checksum_start`.
    pub needs_checksum: bool,
    /// Segments into which the packet is to be cut; `None` for one packet.
    pub gso: Option<GsoKind>,
    /// TCP: the first segment alone keeps the CWR flag.
    pub gso_ecn: bool,
    /// Bytes that should lie together in memory, a hint; 0 says nothing.
    pub header_len: u16,
    /// Transport payload of each segment but the last; 0 for one packet.
    pub segment: u16,
    /// Offset of the transport header in the packet.
    pub checksum_start: u16,
    /// Offset of the checksum in that header.
    pub checksum_offset: u16,
}

/// Protocol of the packets of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP segments over IPv4.
    Tcp4,
    /// TCP segments over IPv6.
    Tcp6,
    /// UDP datagrams over either.
    Udp,
}

impl VnetHeader {
    /// Reads the header in front of `packet`; `None` when that is shorter, or asks for a kind of
    /// segments that was not offered to the kernel.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let &[flags, gso, ref rest @ ..] = packet.first_chunk::<VNET_LEN>()?;
        let word = |at: usize| u16::from_ne_bytes([rest[at], rest[at + 1]]);
        let kind = match gso & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCP4 => Some(GsoKind::Tcp4),
            GSO_TCP6 => Some(GsoKind::Tcp6),
            GSO_UDP_L4 => Some(GsoKind::Udp),
            _ => return None,
        };
        Some(Self {
            needs_checksum: flags & NEEDS_CSUM != 0,
            gso: kind,
            gso_ecn: gso & GSO_ECN != 0,
            header_len: word(0),
            segment: word(2),
            checksum_start: word(4),
            checksum_offset: word(6),
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; VNET_LEN] {
        let mut bytes = [0; VNET_LEN];
        bytes[0] = if self.needs_checksum { NEEDS_CSUM } else { 0 };
        bytes[1] = match self.gso {
            None => GSO_NONE,
            Some(GsoKind::Tcp4) => GSO_TCP4,
            Some(GsoKind::Tcp6) => GSO_TCP6,
            Some(GsoKind::Udp) => GSO_UDP_L4,
        };
        if self.gso_ecn {
            bytes[1] |= GSO_ECN;
        }
        let words = [self.header_len, self.segment, self.checksum_start, self.checksum_offset];
        for (slot, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tcp_super_packet_by_hand() {
        // Made by the kernel for MTU 1500: 20 + 32 bytes of headers, segments of 1448.
        let mut bytes = vec![1, 0x81];
        for word in [52u16, 1448, 20, 16] {
            bytes.extend(word.to_ne_bytes());
        }
        let header = VnetHeader {
            needs_checksum: true,
            gso: Some(GsoKind::Tcp4),
            gso_ecn: true,
            header_len: 52,
            segment: 1448,
            checksum_start: 20,
            checksum_offset: 16,
        };
        assert_eq!(VnetHeader::parse(&bytes), Some(header));
        assert_eq!(header.emit(), bytes[..]);
        assert_eq!(VnetHeader::parse(&bytes[..9]), None);
        // UFO, which nobody asked for.
        bytes[1] = 3;
        assert_eq!(VnetHeader::parse(&bytes), None);
        assert_eq!(VnetHeader::default().emit(), [0; VNET_LEN]);
    }

    proptest! {
        #[test]
        fn a_header_read_is_written_again(bytes: [u8; VNET_LEN]) {
            if let Some(header) = VnetHeader::parse(&bytes) {
                prop_assert_eq!(VnetHeader::parse(&header.emit()), Some(header));
            }
        }
    }
}
