//! Socket addresses as the kernel lays them out (`sockaddr_in`, `sockaddr_in6`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: &SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// Bytes of a socket address, ready for `msg_name`.
#[repr(align(8))]
pub(crate) struct RawAddress {
    pub(crate) bytes: [u8; CAPACITY],
    pub(crate) len: u32,
}

impl RawAddress {
    /// Room for the kernel to fill in.
    pub(crate) const EMPTY: Self = Self { bytes: [0; CAPACITY], len: CAPACITY as u32 };

    /// `address` as a socket of `family` names it: an IPv4 address on an IPv6 socket is mapped.
    pub(crate) fn new(address: SocketAddr, family: Family) -> Self {
        let mut raw = Self::EMPTY;
        match (address, family) {
            (SocketAddr::V4(v4), Family::V4) => raw.put_v4(v4),
            (SocketAddr::V4(v4), Family::V6) => {
                raw.put_v6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0));
            }
            (SocketAddr::V6(v6), _) => raw.put_v6(v6),
        }
        raw
    }

    /// The address that the kernel filled in, with mapped IPv4 addresses as IPv4; nothing when it
    /// is of another family.
    pub(crate) fn decode(&self) -> Option<SocketAddr> {
        let bytes = &self.bytes;
        let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        match (family, self.len as usize) {
            (libc::AF_INET, V4_LEN..) => Some(SocketAddr::new(IpAddr::V4(v4_at(bytes, 4)), port)),
            (libc::AF_INET6, V6_LEN..) => {
                let ip = v6_at(bytes, 8);
                if let Some(v4) = ip.to_ipv4_mapped() {
                    return Some(SocketAddr::new(IpAddr::V4(v4), port));
                }
                let scope = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
            }
            _ => None,
        }
    }

    fn put_v4(&mut self, address: SocketAddrV4) {
        self.put_family_and_port(libc::AF_INET, address.port());
        self.bytes[4..8].copy_from_slice(&address.ip().octets());
        self.len = V4_LEN as u32;
    }

    fn put_v6(&mut self, address: SocketAddrV6) {
        self.put_family_and_port(libc::AF_INET6, address.port());
        self.bytes[8..24].copy_from_slice(&address.ip().octets());
        self.bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
        self.len = V6_LEN as u32;
    }

    fn put_family_and_port(&mut self, family: libc::c_int, port: u16) {
        self.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        self.bytes[2..4].copy_from_slice(&port.to_be_bytes());
    }
}

/// The IPv4 address at `offset`, which must leave four bytes.
pub(crate) fn v4_at(bytes: &[u8], offset: usize) -> Ipv4Addr {
    let mut octets = [0; 4];
    octets.copy_from_slice(&bytes[offset..offset + 4]);
    Ipv4Addr::from(octets)
}

/// The IPv6 address at `offset`, which must leave sixteen bytes.
pub(crate) fn v6_at(bytes: &[u8], offset: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[offset..offset + 16]);
    Ipv6Addr::from(octets)
}

const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();
const CAPACITY: usize = V6_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_the_kernels() {
        let raw = RawAddress::new("192.0.2.7:7420".parse().unwrap(), Family::V4);
        assert_eq!(raw.len, 16);
        assert_eq!(raw.bytes[2..8], [0x1c, 0xfc, 192, 0, 2, 7]);
        let raw = RawAddress::new("[2001:db8::1]:7420".parse().unwrap(), Family::V6);
        assert_eq!(raw.len, 28);
        assert_eq!(raw.bytes[8..12], [0x20, 0x01, 0x0d, 0xb8]);
    }

    #[test]
    fn addresses_survive_the_round_trip() {
        for (text, family) in [
            ("127.0.0.1:1", Family::V4),
            ("127.0.0.1:65535", Family::V6),
            ("[::1]:7420", Family::V6),
            ("[fe80::1%3]:9", Family::V6),
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::new(address, family).decode(), Some(address), "{text}");
        }
    }

    #[test]
    fn short_or_foreign_addresses_are_nothing() {
        let mut raw = RawAddress::new("127.0.0.1:1".parse().unwrap(), Family::V4);
        raw.len = 8;
        assert_eq!(raw.decode(), None);
        assert_eq!(RawAddress::EMPTY.decode(), None);
    }
}
