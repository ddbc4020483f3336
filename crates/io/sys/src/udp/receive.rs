use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use longhaul_units::Ecn;

use super::address::RawAddress;
use super::control::{ControlBuffer, ReceivedControl};
use super::{UdpSocket, Wait};
use crate::clock::WallTime;

/// Properties of a received super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Bytes in all.
    pub len: usize,
    /// Bytes of each datagram; the last is what remains, at most that. Equal to `len` when the
    /// kernel joined nothing; zero only for an empty datagram.
    pub segment: u16,
    /// Sender.
    pub from: SocketAddr,
    /// The local address it was sent to, on a socket bound to the unspecified address.
    pub to: Option<IpAddr>,
    /// When the kernel got the first datagram of it from the device.
    pub kernel_time: Option<WallTime>,
    /// Super-packets that the socket had dropped before this one was queued, in all, modulo 2^32.
    /// A rise between two receipts places the drops between them. Zero where not reported.
    pub overflow: u32,
    /// The traffic class byte, DSCP and ECN; that of the first datagram, but the kernel never
    /// joins datagrams whose classes differ.
    pub traffic_class: u8,
    /// The buffers were too small (or the kernel's notes did not fit): the end of it is gone, and
    /// `segment` may not be known.
    pub truncated: bool,
}

impl Received {
    /// Number of datagrams.
    pub fn datagrams(&self) -> usize {
        self.len.div_ceil(usize::from(self.segment.max(1))).max(1)
    }

    /// The ECN codepoint, of all datagrams: the kernel joins none that differ in it.
    pub fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.traffic_class)
    }
}

impl UdpSocket {
    /// Receives one super-packet of up to 65535 bytes into `buffers`, in order; `None` when
    /// `wait` is [`Wait::No`] and nothing is there.
    ///
    /// # Errors
    /// Those of `recvmsg`, but for ICMP messages about earlier datagrams.
    pub fn recv(&self, buffers: &mut [IoSliceMut<'_>], wait: Wait) -> io::Result<Option<Received>> {
        let mut name = RawAddress::EMPTY;
        let mut control = ControlBuffer::new();
        // SAFETY: null pointers, zero lengths and no flags make a valid, empty `msghdr`.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSliceMut` is guaranteed to have the layout of `iovec`.
        header.msg_iov = buffers.as_mut_ptr().cast();
        header.msg_iovlen = buffers.len() as _;
        let len = self.past_icmp(|| {
            loop {
                header.msg_name = name.bytes.as_mut_ptr().cast();
                header.msg_namelen = name.len;
                header.msg_control = control.bytes.as_mut_ptr().cast();
                header.msg_controllen = control.bytes.len() as _;
                // SAFETY: the kernel writes to the caller's buffers, `name` and `control`, no more
                // than the lengths in `header` say, and all of them outlive the call.
                let len = unsafe { libc::recvmsg(self.raw_fd(), &mut header, wait.flags()) };
                if len >= 0 {
                    return Ok(Some(len as usize));
                }
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(None),
                    _ => return Err(error),
                }
            }
        })?;
        let Some(len) = len else { return Ok(None) };
        name.len = header.msg_namelen;
        let notes = control.bytes.get(..header.msg_controllen as usize).unwrap_or_default();
        let notes = ReceivedControl::parse(notes);
        let from = name.decode().ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Received {
            len,
            // `len` fits: no UDP datagram or super-packet is longer than 65535 bytes.
            segment: notes.segment.unwrap_or(len as u16),
            from,
            to: notes.to,
            kernel_time: notes.kernel_time,
            overflow: notes.overflow,
            traffic_class: notes.traffic_class,
            truncated: header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
        }))
    }
}
