//! TUN devices that carry super-packets: IP packets of up to 64 KiB with a virtio header that says
//! how they would be cut into segments, for TCP and UDP over IPv4 and IPv6.
//!
//! A packet that is read may be written to another device as it is: it then reaches a socket with
//! one call of the stack, whole. Made by [`crate::netns::Namespace::add_tun`].

mod header;

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::Errno;

pub use self::header::{GsoKind, VNET_LEN, VnetHeader};

/// One device's other end: what the stack sends comes out, what is written the stack receives.
///
/// Usable from any thread of any namespace, by a reader and a writer at a time. The device is gone
/// when this is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes device `name` in the namespace of the calling thread, down.
    pub(crate) fn make(name: &str) -> io::Result<Self> {
        let path = "/dev/net/tun";
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}; {NEEDED}")))?;
        let name = name.as_bytes();
        // SAFETY: all zeroes is a valid `ifreq`, which is plain numbers and addresses.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One byte remains zero behind the name.
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (slot, byte) in request.ifr_name.iter_mut().zip(name) {
            *slot = *byte as libc::c_char;
        }
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL)
                as libc::c_short;
        // SAFETY: this call reads and writes one `ifreq`, which lives through it.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        // SAFETY: this call takes a number and no memory.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, OFFLOADS) }).map_err(
            |error| match error.raw_os_error() {
                Some(libc::EINVAL) => io::Error::new(io::ErrorKind::Unsupported, TOO_OLD),
                _ => error,
            },
        )?;
        Ok(Self { file })
    }

    /// Reads one packet behind its [`VnetHeader`], [`PACKET_MAX`] bytes at most; `None` when there
    /// is none. What does not fit `buffer` is lost.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.file, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands one packet, gathered from `parts` that begin with a [`VnetHeader`], to the stack, whose
    /// work of receiving it is done within this call. The stack may still drop it; see
    /// [`crate::netns::DeviceCounters`].
    ///
    /// # Errors
    /// `InvalidInput` for a packet that is not what its header says, and those of a device that
    /// is down or gone.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.file, parts)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The longest packet with its header: IP's limit, and some more for IPv6, which does not count
/// its first header.
pub const PACKET_MAX: usize = VNET_LEN + 65_535 + 40;

/// Checksums left open, and segments of TCP (with and without ECN) and UDP.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM
    | libc::TUN_F_TSO4
    | libc::TUN_F_TSO6
    | libc::TUN_F_TSO_ECN
    | libc::TUN_F_USO4
    | libc::TUN_F_USO6;

const NEEDED: &str = "emulated links need this device (module tun), readable and writable";
const TOO_OLD: &str = "this kernel's TUN devices do not carry UDP super-packets: Linux 6.2 does";

#[cfg(test)]
mod tests;
