//! The device that has an address.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The MTU in bytes, IP header included, of the device that has this address of this host.
///
/// # Errors
/// `NotFound` if none has it; those of `getifaddrs` and of `SIOCGIFMTU`.
pub(super) fn mtu_at(fd: BorrowedFd<'_>, address: IpAddr) -> io::Result<u32> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the kernel's answer becomes a list that `freeifaddrs` gives back below.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Err(io::ErrorKind::NotFound.into());
    let mut next = first;
    // SAFETY: each entry is valid until the list is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the kernel gave null, or an address that is as long as its family says.
        if unsafe { ip_of(entry.ifa_addr) } == Some(address) {
            // SAFETY: names end with zero.
            found = mtu(fd, unsafe { CStr::from_ptr(entry.ifa_name) });
            break;
        }
    }
    // SAFETY: nothing refers to the list any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// # Safety
/// `address` is null, or as long as its family says.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the contract; the casts follow the family.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let bits = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from(bits.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let octets = (*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr;
                Some(Ipv6Addr::from(octets).into())
            }
            _ => None,
        }
    }
}

fn mtu(fd: BorrowedFd<'_>, device: &CStr) -> io::Result<u32> {
    // SAFETY: all zeros are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = device.to_bytes_with_nul();
    if name.len() > request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the request lives through the call, which writes its MTU.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU, &mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: that is what was asked for.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu })
        .map_err(|_| io::ErrorKind::InvalidData.into())
}
