//! Errors that the kernel reports for datagrams that a socket sent before: local drops count, ICMP
//! messages do not.
//!
//! Two kinds come: that a queue of this host dropped a datagram, which the call that sent it fails
//! with (`ENOBUFS`), and ICMP messages, which come later and which anybody who guesses addresses and
//! ports can make up (RFC 5927 tells of TCP). The kernel tells both (`IP_RECVERR`) or neither, and
//! lets an ICMP message fail whatever call is next. Nobody here believes one.

use std::io;
use std::os::fd::AsFd;

use super::UdpSocket;
use super::address::Family;
use crate::sockopt::set_int;

impl UdpSocket {
    /// From now on a call that sends fails where a queue of this host drops what it sends. Without, it
    /// succeeds.
    pub(super) fn report_drops(&self) -> io::Result<()> {
        let v4 = set_int(self.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1);
        match self.family {
            Family::V4 => v4,
            // IPv4 on such a socket has its own option, if there is any.
            Family::V6 => set_int(self.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        }
    }

    /// Makes a call of the kernel, and once more after each ICMP message that failed it. What fails it
    /// several times running is no ICMP message, or a flood of them. Nothing is left in the queue: the
    /// kernel also puts there that a datagram was too large (`EMSGSIZE`), and a socket with something in
    /// it is never at rest.
    pub(super) fn past_icmp<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut result = call();
        for _ in 1..TRIES {
            if !result.as_ref().is_err_and(may_be_icmp) {
                return result;
            }
            self.forget_icmp();
            result = call();
        }
        if result.as_ref().is_err_and(may_be_icmp) {
            self.forget_icmp();
        }
        result
    }

    /// Empties the queue of ICMP messages: they take room of the receive buffer, and wake a thread
    /// that waits for a datagram. If some are left, the next call fails for the first of them.
    fn forget_icmp(&self) {
        for _ in 0..MESSAGES_MAX {
            // SAFETY: null pointers, zero lengths and no flags make a valid, empty `msghdr`.
            let mut nowhere: libc::msghdr = unsafe { std::mem::zeroed() };
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: `nowhere` outlives the call and has no memory that the kernel could write to.
            if unsafe { libc::recvmsg(self.raw_fd(), &mut nowhere, flags) } < 0 {
                return;
            }
        }
    }
}

/// True if an ICMP message can be what fails a call: the kernel has an error for each of their
/// codes (`icmp_err_convert`), none of which is one of these.
fn may_be_icmp(error: &io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR))
}

/// Number of calls made while they fail so.
const TRIES: usize = 4;
/// Messages taken before the call is made again: its thread has other things to do.
const MESSAGES_MAX: usize = 64;

#[cfg(test)]
pub(super) mod tests {
    use std::io::{IoSlice, IoSliceMut};
    use std::net::{IpAddr, SocketAddr};

    use longhaul_needs::needs;
    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;
    use crate::clock;
    use crate::netns::Namespace;
    use crate::udp::{Route, UdpOptions, Wait};

    #[needs(namespaces)]
    #[test]
    fn icmp_messages_that_somebody_made_up_fail_no_call() {
        // Unreachable for each reason, too large a packet among them; quench, time, parameter.
        let unreachable = (0..16).map(|code| (3, code));
        made_up("127.0.0.1", unreachable.chain([(4, 0), (11, 0), (12, 0)]));
    }

    #[needs(namespaces, ipv6)]
    #[test]
    fn icmpv6_messages_that_somebody_made_up_fail_no_call() {
        // Unreachable for each reason, packet too big, time, parameter.
        let unreachable = (0..8).map(|code| (1, code));
        made_up("::1", unreachable.chain([(2, 0), (3, 0), (4, 0)]));
    }

    fn made_up(local: &str, kinds: impl Iterator<Item = (u8, u8)>) {
        let local = SocketAddr::new(local.parse().unwrap(), 0);
        let make = || {
            let bind = || UdpSocket::bind(local, &UdpOptions::default()).unwrap();
            (raw(local.ip()), bind(), bind())
        };
        let (raw, socket, peer) = Namespace::new().unwrap().run(make).unwrap();
        socket.connect(peer.local_addr()).unwrap();
        let send = |socket: &UdpSocket, to: &Route| {
            assert_eq!(socket.send(to, &[IoSlice::new(b"!")], None, Wait::No).unwrap(), 1);
        };
        let back = Route::to(socket.local_addr());
        for kind in kinds {
            let message = message(kind, [socket.local_addr(), peer.local_addr()]);
            // One, and more than are taken at once.
            for count in [1, 2 * MESSAGES_MAX] {
                let forge = || (0..count).for_each(|_| forge(&raw, &message, local));
                forge();
                send(&socket, &Route::CONNECTED);
                send(&peer, &back);
                forge();
                let mut byte = [0];
                let got = socket.recv(&mut [IoSliceMut::new(&mut byte)], Wait::UntilReady);
                assert_eq!(got.unwrap().map(|got| got.len), Some(1), "{kind:?}");
                forge();
                assert_eq!(socket.recv(&mut [], Wait::No).unwrap(), None, "{kind:?}");
            }
        }
        // Nothing is left that would wake who waits for a datagram.
        let mut looks = 0;
        while socket.wait_readable(None, Some(clock::now())).unwrap().socket {
            assert_eq!(socket.recv(&mut [], Wait::No).unwrap(), None);
            looks += 1;
            assert!(looks < 100);
        }
    }

    /// A socket for ICMP messages.
    pub(crate) fn raw(at: IpAddr) -> Socket {
        let (domain, protocol) = match at {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        Socket::new(domain, Type::RAW, Some(protocol)).unwrap()
    }

    pub(crate) fn forge(raw: &Socket, message: &[u8], to: SocketAddr) {
        assert_eq!(raw.send_to(message, &to.into()).unwrap(), message.len());
    }

    /// A message of such a kind and code about a datagram between these ends (RFC 792, RFC 4443).
    pub(crate) fn message((kind, code): (u8, u8), ends: [SocketAddr; 2]) -> Vec<u8> {
        let mut message = vec![kind, code, 0, 0, 0, 0, 2, 0];
        match ends[0] {
            SocketAddr::V4(_) => {
                message.extend([0x45, 0, 5, 0xdc, 0, 0, 0, 0, 64, libc::IPPROTO_UDP as u8, 0, 0]);
            }
            SocketAddr::V6(_) => {
                message.extend([0x60, 0, 0, 0, 5, 0xb4, libc::IPPROTO_UDP as u8, 64]);
            }
        }
        for end in ends {
            match end.ip() {
                IpAddr::V4(ip) => message.extend(ip.octets()),
                IpAddr::V6(ip) => message.extend(ip.octets()),
            }
        }
        ends.iter().for_each(|end| message.extend(end.port().to_be_bytes()));
        message.extend([5, 0xc8, 0, 0]);
        // That of ICMPv6 is made by the kernel.
        if ends[0].is_ipv4() {
            let sum = message.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum: u32 = sum.sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            message[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        }
        message
    }
}
