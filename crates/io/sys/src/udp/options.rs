use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::Capabilities;
use super::address::Family;
use crate::sockopt::{int, set_int};

/// Options of a socket. The default asks for everything.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpOptions {
    /// Bytes of receive buffer to ask for. The buffer is what covers stalls of the reader.
    pub receive_buffer: usize,
    /// Bytes of send buffer to ask for.
    pub send_buffer: usize,
    /// Let the kernel cut super-packets. Off: one datagram each, for measuring and for networks
    /// where spacing matters.
    pub gso: bool,
    /// Let the kernel join received datagrams. Off: one datagram a call.
    pub gro: bool,
    /// Receive the kernel's time stamps.
    pub timestamps: bool,
    /// Receive drop counts.
    pub overflow_counts: bool,
    /// Receive the traffic class.
    pub receive_traffic_class: bool,
    /// Receive the address sent to, on a socket bound to the unspecified address.
    pub destination: bool,
    /// The traffic class byte (DSCP and ECN) to send with; ECT(0) is 0x02 (RFC 3168).
    pub traffic_class: u8,
    /// Keep IPv4 off a socket bound to `[::]`.
    pub only_v6: bool,
    /// Let further sockets bind to the same port (`SO_REUSEPORT`).
    pub reuse_port: bool,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            receive_buffer: DEFAULT_BUFFER,
            send_buffer: DEFAULT_BUFFER,
            gso: true,
            gro: true,
            timestamps: true,
            overflow_counts: true,
            receive_traffic_class: true,
            destination: true,
            traffic_class: 0,
            only_v6: false,
            reuse_port: false,
        }
    }
}

/// A socket buffer, in the terms of `SO_RCVBUF`: bytes of data, half of what the kernel charges
/// against its limit to allow for headers and slack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSize {
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes obtained.
    pub obtained: usize,
    /// The sysctl that holds the limit.
    pub sysctl: &'static str,
}

impl BufferSize {
    /// The sysctl to raise, when less was obtained than asked for.
    pub fn sysctl_to_raise(&self) -> Option<&'static str> {
        (self.obtained < self.asked).then_some(self.sysctl)
    }
}

impl UdpOptions {
    /// Sets everything but buffer sizes on a new socket, and finds what the kernel can do.
    pub(super) fn apply(&self, fd: BorrowedFd<'_>, family: Family, local: IpAddr) -> Capabilities {
        let set = |level, name, value| set_int(fd, level, name, value).is_ok();
        // Zero leaves the size to each call; a kernel without the option refuses it all the same.
        let gso = self.gso && set(libc::SOL_UDP, libc::UDP_SEGMENT, 0);
        let gro = self.gro && set(libc::SOL_UDP, libc::UDP_GRO, 1);
        let timestamps = self.timestamps && set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
        let overflow_counts = self.overflow_counts && set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
        let fixed = !local.is_unspecified();
        let mut ecn = set_traffic_class(fd, family, self.traffic_class).is_ok();
        let mut destination = fixed || !self.destination;
        let mut dont_fragment = true;
        // A socket for IPv6 may carry IPv4 too, which has its own options. They fail where the
        // socket or the kernel has no IPv4, and then nothing is missing.
        let v4 = family == Family::V4;
        let probe = libc::IP_PMTUDISC_PROBE;
        let df = set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe);
        dont_fragment &= df || !v4;
        if self.receive_traffic_class {
            ecn &= set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1) || !v4;
        }
        if !v4 {
            let probe = libc::IPV6_PMTUDISC_PROBE;
            dont_fragment &= set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe);
            if self.receive_traffic_class {
                ecn &= set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
            }
        }
        if !destination {
            destination = match family {
                Family::V4 => set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
                Family::V6 => set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
            };
        }
        Capabilities {
            gso,
            gro,
            timestamps,
            overflow_counts,
            ecn,
            destination,
            dont_fragment,
            segments_max: segments_max(),
        }
    }

    /// Asks beyond the system's limit first, which takes `CAP_NET_ADMIN`.
    pub(super) fn ask_receive_buffer(&self, socket: &Socket) -> BufferSize {
        let asked = self.receive_buffer;
        if set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, clamp(asked)).is_err() {
            // Never fails: the kernel cuts the size to its limit.
            let _ = set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, clamp(asked));
        }
        let obtained = int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0) as usize;
        BufferSize { asked, obtained: obtained / 2, sysctl: "net.core.rmem_max" }
    }

    pub(super) fn ask_send_buffer(&self, socket: &Socket) -> BufferSize {
        let asked = self.send_buffer;
        if set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, clamp(asked)).is_err() {
            let _ = set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, clamp(asked));
        }
        let obtained = int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0) as usize;
        BufferSize { asked, obtained: obtained / 2, sysctl: "net.core.wmem_max" }
    }
}

/// Sets the traffic class of a socket, on both IP versions where it has both.
pub(super) fn set_traffic_class(fd: BorrowedFd<'_>, family: Family, class: u8) -> io::Result<()> {
    let class = i32::from(class);
    let v4 = set_int(fd, libc::IPPROTO_IP, libc::IP_TOS, class);
    match family {
        Family::V4 => v4,
        Family::V6 => set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class),
    }
}

/// UDP_MAX_SEGMENTS of include/linux/udp.h, which became 128 in Linux 6.9.
fn segments_max() -> u16 {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if release_at_least(&release, (6, 9)) { 128 } else { 64 }
}

fn release_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= wanted,
        _ => false,
    }
}

/// The kernel doubles the value in a C `int`.
fn clamp(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2)
}

/// 20 ms at 10 Gb/s: a stall of five scheduler ticks at 250 Hz.
const DEFAULT_BUFFER: usize = 25_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_by_number() {
        assert!(release_at_least("6.18.44-fc-v669\n", (6, 9)));
        assert!(release_at_least("6.9.0", (6, 9)));
        assert!(release_at_least("10.0", (6, 9)));
        assert!(!release_at_least("6.8.12-generic", (6, 9)));
        assert!(!release_at_least("", (6, 9)));
        assert!(!release_at_least("next", (6, 9)));
    }

    #[test]
    fn shortfall_names_the_sysctl() {
        let size = BufferSize { asked: 10, obtained: 5, sysctl: "net.core.rmem_max" };
        assert_eq!(size.sysctl_to_raise(), Some("net.core.rmem_max"));
        assert_eq!(BufferSize { obtained: 10, ..size }.sysctl_to_raise(), None);
    }
}
