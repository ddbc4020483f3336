//! Socket addresses as the C library has them.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// The address of the internet at `address`, if it is one.
///
/// # Safety
/// `address` points to `len` bytes.
pub(crate) unsafe fn read(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if address.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the family comes first, and each length is checked before more is read.
    unsafe {
        match c_int::from(address.cast::<libc::sa_family_t>().read_unaligned()) {
            libc::AF_INET if len >= size_of::<sockaddr_in>() => {
                let found = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from_bits(u32::from_be(found.sin_addr.s_addr));
                Some(SocketAddr::new(ip.into(), u16::from_be(found.sin_port)))
            }
            libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
                let found = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(found.sin6_addr.s6_addr);
                let port = u16::from_be(found.sin6_port);
                Some(SocketAddrV6::new(ip, port, found.sin6_flowinfo, found.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// An address in the form of one family.
pub(crate) struct Raw {
    storage: libc::sockaddr_storage,
    len: socklen_t,
}

impl Raw {
    /// `address` for sockets of `family`: IPv4 is mapped for those of IPv6. `None` where the family
    /// cannot reach it.
    pub fn new(address: SocketAddr, family: c_int) -> Option<Self> {
        // SAFETY: zeros are an address without a family.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let port = address.port().to_be();
        let at = &raw mut storage;
        let len = match (family, address.ip().to_canonical()) {
            (libc::AF_INET, IpAddr::V4(ip)) => {
                // SAFETY: the storage has room for every family, and is aligned for it.
                let out = unsafe { &mut *at.cast::<sockaddr_in>() };
                out.sin_family = libc::AF_INET as libc::sa_family_t;
                out.sin_port = port;
                out.sin_addr.s_addr = ip.to_bits().to_be();
                size_of::<sockaddr_in>()
            }
            (libc::AF_INET6, ip) => {
                // SAFETY: as above.
                let out = unsafe { &mut *at.cast::<sockaddr_in6>() };
                out.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                out.sin6_port = port;
                out.sin6_addr.s6_addr = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                if let SocketAddr::V6(address) = address {
                    out.sin6_scope_id = address.scope_id();
                }
                size_of::<sockaddr_in6>()
            }
            _ => return None,
        };
        Some(Self { storage, len: len as socklen_t })
    }

    pub fn connect(&self, fd: c_int) -> c_int {
        // SAFETY: storage and length belong together.
        unsafe { crate::sys::connect(fd, (&raw const self.storage).cast(), self.len) }
    }

    /// Writes it as `getpeername` does: as much as there is room for, and how long it is.
    ///
    /// # Safety
    /// `len` points to the size of what `address` points to.
    pub unsafe fn write(&self, address: *mut sockaddr, len: *mut socklen_t) {
        // SAFETY: no more is written than there is room for.
        unsafe {
            let room = (*len).min(self.len) as usize;
            std::ptr::copy_nonoverlapping(
                (&raw const self.storage).cast(),
                address.cast::<u8>(),
                room,
            );
            *len = self.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(address: &str, family: c_int) -> Option<SocketAddr> {
        let raw = Raw::new(address.parse().unwrap(), family)?;
        // SAFETY: storage and length belong together.
        unsafe { read((&raw const raw.storage).cast(), raw.len) }
    }

    #[test]
    fn addresses_survive_the_form_of_their_family() {
        for (address, family, read) in [
            ("192.0.2.1:80", libc::AF_INET, "192.0.2.1:80"),
            ("192.0.2.1:80", libc::AF_INET6, "[::ffff:192.0.2.1]:80"),
            ("[::ffff:192.0.2.1]:80", libc::AF_INET, "192.0.2.1:80"),
            ("[2001:db8::1%3]:80", libc::AF_INET6, "[2001:db8::1%3]:80"),
        ] {
            assert_eq!(round(address, family), Some(read.parse().unwrap()), "{address}");
        }
        assert_eq!(round("[2001:db8::1]:80", libc::AF_INET), None);
    }

    #[test]
    fn what_is_too_short_is_no_address() {
        let raw = Raw::new("192.0.2.1:80".parse().unwrap(), libc::AF_INET).unwrap();
        for len in 0..16 {
            // SAFETY: the storage is longer.
            assert_eq!(unsafe { read((&raw const raw.storage).cast(), len) }, None);
        }
        // SAFETY: nothing is read.
        assert_eq!(unsafe { read(std::ptr::null(), 16) }, None);
    }
}
