//! UDP in batches: one call moves up to 64 kB of equal datagrams (`UDP_SEGMENT`, `UDP_GRO`).
//!
//! A *super-packet* is what one call moves: datagrams of one size, the last may be shorter, laid
//! one after the other in the caller's memory. Where the kernel or the outgoing device cannot cut
//! it, [`UdpSocket::send`] does so behind the same face; [`UdpSocket::capabilities`] tells.
//!
//! No call allocates or keeps anything of the caller's. Datagrams never fragment (DF is set, the
//! kernel's path MTU is ignored): the caller finds the path MTU (RFC 8899). ICMP messages fail no call:
//! who is a stranger to a connection can make them up.

mod address;
mod control;
mod icmp;
mod mtu;
mod options;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use longhaul_units::Instant;
use socket2::{Domain, Protocol, Socket, Type};

use self::address::Family;
use crate::sockopt;
use crate::wait::{self, Interest, Waker};

pub use self::options::{BufferSize, UdpOptions};
pub use self::receive::Received;
pub use self::send::{Route, SendError};

/// A bound UDP socket, for IPv4, IPv6, or both (`[::]`). Any thread may use it at any time.
///
/// IPv4 addresses are `SocketAddr::V4` even on a socket for both.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    family: Family,
    local: SocketAddr,
    capabilities: Capabilities,
    /// Cleared when the outgoing device turns out not to cut super-packets.
    cuts: AtomicBool,
    /// As it was set last.
    traffic_class: AtomicU8,
    receive_buffer: BufferSize,
    send_buffer: BufferSize,
}

/// Waiting of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return at once.
    No,
    /// Wait until there is a datagram, or room for one. Nothing else ends this wait; see
    /// [`UdpSocket::wait_readable`] for one with a deadline and a waker.
    UntilReady,
}

/// End of a [`UdpSocket::wait_readable`]. Neither: the deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// A datagram, or an error, waits.
    pub socket: bool,
    /// The waker was used; call [`Waker::clear`], then look for work.
    pub woken: bool,
}

/// Abilities of the kernel for a socket, found by asking it at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The kernel cuts super-packets when sending (`UDP_SEGMENT`). Found out on the way, too: an
    /// outgoing device that refuses clears it, see [`UdpSocket::capabilities`].
    pub gso: bool,
    /// The kernel joins datagrams when receiving (`UDP_GRO`).
    pub gro: bool,
    /// Datagrams carry the time at which the kernel got them (`SO_TIMESTAMPNS`).
    pub timestamps: bool,
    /// Datagrams carry the count of earlier drops (`SO_RXQ_OVFL`).
    pub overflow_counts: bool,
    /// The traffic class of datagrams, with its ECN bits, can be set and is received.
    pub ecn: bool,
    /// Received datagrams tell the address they were sent to, where that may vary.
    pub destination: bool,
    /// DF is set on all datagrams, so that the path MTU can be probed.
    pub dont_fragment: bool,
    /// Datagrams in one super-packet: 128, and 64 before Linux 6.9. Also without `gso`.
    pub segments_max: u16,
}

/// Memory that the kernel accounts to a socket (`SO_MEMINFO`), readable while another thread sleeps
/// in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Bytes that the receive queue takes, headers and slack included. An upper bound: what a
    /// reader frees is given back in lumps of up to a quarter of `receive_limit`.
    pub receive_used: u32,
    /// Bytes that the receive queue may take.
    pub receive_limit: u32,
    /// Bytes sent that no device has taken yet.
    pub send_used: u32,
    /// Bytes that may be so.
    pub send_limit: u32,
    /// Super-packets (not datagrams, where the kernel joins them) dropped for want of room.
    pub drops: u32,
}

impl UdpSocket {
    /// Binds to `local` and asks for everything in `options`; port 0 takes a free port, and
    /// `[::]` receives IPv4 as well unless [`UdpOptions::only_v6`].
    ///
    /// # Errors
    /// Those of `socket(2)` and `bind(2)`. What the kernel lacks is no error but missing in
    /// [`Self::capabilities`].
    pub fn bind(local: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        let family = Family::of(&local);
        if family == Family::V6 {
            socket.set_only_v6(options.only_v6)?;
        }
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        // Before binding, so that the first datagram is stamped and joined like the rest.
        let capabilities = options.apply(socket.as_fd(), family, local.ip());
        let receive_buffer = options.ask_receive_buffer(&socket);
        let send_buffer = options.ask_send_buffer(&socket);
        socket.bind(&local.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let cuts = AtomicBool::new(capabilities.gso);
        let traffic_class = AtomicU8::new(options.traffic_class);
        Ok(Self {
            socket,
            family,
            local,
            capabilities,
            cuts,
            traffic_class,
            receive_buffer,
            send_buffer,
        })
    }

    /// Fixes the peer: datagrams of others are not received, sending by [`Route::CONNECTED`]
    /// spares a route lookup, and what a queue of this host drops is an error
    /// ([`SendError::NoBuffers`]). On a socket without a peer it counts as sent: there ICMP messages
    /// about any datagram could be made up, and would have to be passed over.
    ///
    /// # Errors
    /// Those of `connect(2)`.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.report_drops()?;
        let peer = match (peer, self.family) {
            (SocketAddr::V4(v4), Family::V6) => {
                SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port())
            }
            (peer, _) => peer,
        };
        self.socket.connect(&peer.into())
    }

    /// The address bound to; its port is never 0. Unspecified where the socket serves all.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Abilities, as known by now.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities { gso: self.cuts.load(Ordering::Relaxed), ..self.capabilities }
    }

    /// Room for received datagrams, asked for and obtained.
    pub fn receive_buffer(&self) -> BufferSize {
        self.receive_buffer
    }

    /// Room for datagrams on their way out, asked for and obtained.
    pub fn send_buffer(&self) -> BufferSize {
        self.send_buffer
    }

    /// The MTU in bytes, IP header included, of the route and the device towards the connected
    /// peer, and not what ICMP messages report of the path, which anybody can make up: the path may
    /// take less. Where the kernel does not say which it is, [`Self::path_mtu`].
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn route_mtu(&self) -> io::Result<u32> {
        let knows = self.path_mtu()?;
        let (local, peer) = (self.socket.local_addr()?, self.socket.peer_addr()?);
        let (Some(local), Some(peer)) = (local.as_socket(), peer.as_socket()) else {
            return Ok(knows);
        };
        let route = mtu::without_icmp(local.ip(), peer, knows);
        Ok(route.ok().flatten().unwrap_or(knows))
    }

    /// MTU of the path to the connected peer in the kernel's view, in bytes, IP header included:
    /// that of route and device, or what an ICMP message reported in the last ten minutes; an error
    /// when not connected.
    pub fn path_mtu(&self) -> io::Result<u32> {
        let mtu = match self.family {
            Family::V4 => sockopt::int(self.as_fd(), libc::IPPROTO_IP, libc::IP_MTU),
            Family::V6 => sockopt::int(self.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        mtu.map(|mtu| mtu as u32)
    }

    /// Sets the traffic class byte (DSCP and ECN) of datagrams whose route gives none. A byte that is
    /// set already costs no system call.
    ///
    /// # Errors
    /// Those of `setsockopt`: `ENOPROTOOPT` where the kernel knows no such byte.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        if self.traffic_class.load(Ordering::Relaxed) != class {
            options::set_traffic_class(self.as_fd(), self.family, class)?;
            self.traffic_class.store(class, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Lets reads that find nothing ask the network device for that long, instead of waiting for its
    /// interrupt (`SO_BUSY_POLL`). Devices without a queue of their own, as loopback, take no notice.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_ADMIN`.
    pub fn poll_device(&self, lasts: std::time::Duration) -> io::Result<()> {
        let micros = i32::try_from(lasts.as_micros()).unwrap_or(i32::MAX);
        sockopt::set_int(self.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros)
    }

    /// Memory that the kernel holds for the socket now; one system call of about 1 us.
    pub fn memory(&self) -> io::Result<SocketMemory> {
        memory_of(self.as_fd())
    }

    /// Sampler that shows the same to another thread, which need not share the socket for that. The
    /// socket is there, and its port in use, as long as either is.
    pub fn memory_sampler(&self) -> io::Result<MemorySampler> {
        Ok(MemorySampler { socket: self.as_fd().try_clone_to_owned()? })
    }

    /// Waits for a datagram, for `waker` where given, and until `deadline` where given.
    pub fn wait_readable(
        &self,
        waker: Option<&Waker>,
        deadline: Option<Instant>,
    ) -> io::Result<Ready> {
        let socket = (self.as_fd(), Interest::Readable);
        let mask = match waker {
            None => wait::wait(&[socket], deadline)?,
            Some(waker) => wait::wait(&[socket, (waker.as_fd(), Interest::Readable)], deadline)?,
        };
        Ok(Ready { socket: mask & 1 != 0, woken: mask & 2 != 0 })
    }

    /// Waits for room to send, until `deadline` where given, and tells whether there is.
    pub fn wait_writable(&self, deadline: Option<Instant>) -> io::Result<bool> {
        Ok(wait::wait(&[(self.as_fd(), Interest::Writable)], deadline)? != 0)
    }
}

/// Samples [`SocketMemory`] of a socket.
#[derive(Debug)]
pub struct MemorySampler {
    socket: OwnedFd,
}

impl MemorySampler {
    /// The figures now.
    pub fn sample(&self) -> io::Result<SocketMemory> {
        memory_of(self.socket.as_fd())
    }
}

fn memory_of(socket: BorrowedFd<'_>) -> io::Result<SocketMemory> {
    let mut bytes = [0; 4 * MEMINFO_WORDS];
    let len = sockopt::bytes(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes)?;
    let word = |index: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[4 * index..4 * index + 4]);
        u32::from_ne_bytes(word)
    };
    if len < bytes.len() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SK_MEMINFO_RMEM_ALLOC and so on, of include/uapi/linux/sock_diag.h.
    Ok(SocketMemory {
        receive_used: word(0),
        receive_limit: word(1),
        send_used: word(2),
        send_limit: word(3),
        drops: word(8),
    })
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Capabilities {
    /// Missing abilities and their cost, one line each, for the user.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.gso, "no UDP_SEGMENT: one system call moves fewer datagrams, sending is slower"),
            (self.gro, "no UDP_GRO: receiving costs several times the CPU time"),
            (self.timestamps, "no SO_TIMESTAMPNS: stalls of this host cannot be seen"),
            (
                self.overflow_counts,
                "no SO_RXQ_OVFL: losses in this host are taken for the network's",
            ),
            (self.ecn, "no traffic class: congestion is seen by loss and delay only"),
            (self.destination, "no packet information: answers may leave from another address"),
            (self.dont_fragment, "DF cannot be set: large datagrams may be fragmented"),
        ]
        .into_iter()
        .filter_map(|(present, text)| (!present).then_some(text))
    }
}

impl fmt::Display for BufferSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.obtained, self.asked)
    }
}

/// The most bytes of one super-packet, and of one datagram: what IPv4 allows.
pub const PAYLOAD_MAX: usize = 65535 - 20 - 8;

/// The most slices of one call (`UIO_MAXIOV`).
pub const SLICES_MAX: usize = 1024;

/// SK_MEMINFO_VARS since Linux 4.12.
const MEMINFO_WORDS: usize = 9;
