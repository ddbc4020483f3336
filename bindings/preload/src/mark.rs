//! A note in a socket: that it carries a session, whose, and where to.
//!
//! It lies in the socket's filter (`SO_ATTACH_FILTER`), which lets every packet through by its first
//! instruction; the constants behind it are never reached. So the note belongs to the socket
//! itself: it is there behind `dup`, `fork` and `exec`, and gone with the socket.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{c_void, sock_filter, sock_fprog, socklen_t};

use crate::sys;

/// The note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Random: finds the session in the memory of the process that began it.
    pub id: u64,
    /// The destination, as the program wrote it.
    pub peer: SocketAddr,
    /// The answer was taken off the stream.
    pub answered: bool,
}

impl Mark {
    pub fn read(fd: c_int) -> Option<Self> {
        let mut program = [instruction(0, 0); LEN];
        let mut len = LEN as socklen_t;
        // SAFETY: the kernel counts in instructions here, of which there is room for as many.
        let result = unsafe {
            let at = program.as_mut_ptr().cast::<c_void>();
            sys::get_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, &raw mut len)
        };
        if result != 0 || len as usize != LEN {
            return None;
        }
        Self::decode(&program)
    }

    /// Notes it in the socket; `false` where the kernel has no room for it.
    pub fn write(&self, fd: c_int) -> bool {
        let mut program = self.encode();
        let filter = sock_fprog { len: LEN as u16, filter: program.as_mut_ptr() };
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    pub fn remove(fd: c_int) {
        let unused: c_int = 0;
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &unused);
    }

    fn encode(&self) -> [sock_filter; LEN] {
        let ip = match self.peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let scope = match self.peer {
            SocketAddr::V6(peer) => peer.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let flags = u32::from(self.peer.is_ipv6()) << 1 | u32::from(self.answered);
        let [a, b, c, d] = words(ip.to_bits());
        let (high, low) = ((self.id >> 32) as u32, self.id as u32);
        let port = self.peer.port().into();
        let constants = [MAGIC, flags, high, low, port, scope, a, b, c, d];
        let mut program = [instruction(RETURN, u32::MAX); LEN];
        for (at, constant) in program[1..].iter_mut().zip(constants) {
            *at = instruction(LOAD, constant);
        }
        program
    }

    fn decode(program: &[sock_filter; LEN]) -> Option<Self> {
        let [first, constants @ .., last] = program;
        let whole = [first, last].iter().all(|at| at.code == RETURN && at.k == u32::MAX)
            && constants.iter().all(|at| at.code == LOAD);
        let [magic, flags, high, low, port, scope, a, b, c, d] = constants.map(|at| at.k);
        if !whole || magic != MAGIC {
            return None;
        }
        let bits = [a, b, c, d].into_iter().fold(0, |bits, word| bits << 32 | u128::from(word));
        let (ip, port) = (Ipv6Addr::from_bits(bits), u16::try_from(port).ok()?);
        let peer = match flags & 2 {
            0 => SocketAddr::new(ip.to_ipv4_mapped()?.into(), port),
            _ => SocketAddrV6::new(ip, port, 0, scope).into(),
        };
        let id = u64::from(high) << 32 | u64::from(low);
        Some(Self { id, peer, answered: flags & 1 != 0 })
    }
}

fn words(bits: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

const fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// `BPF_RET | BPF_K`
const RETURN: u16 = 0x06;
/// `BPF_LD | BPF_IMM`
const LOAD: u16 = 0;
/// "lhgw"
const MAGIC: u32 = 0x6c68_6777;
/// Ten constants between two returns: the kernel wants one at the end.
const LEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn mark(peer: &str) -> Mark {
        Mark { id: 0x0123_4567_89ab_cdef, peer: peer.parse().unwrap(), answered: false }
    }

    #[test]
    fn a_mark_is_in_the_socket_and_lets_everything_through() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let fd = client.as_raw_fd();
        assert_eq!(Mark::read(fd), None);
        for peer in ["192.0.2.1:80", "[::ffff:192.0.2.1]:80", "[2001:db8::1%7]:443"] {
            let mark = mark(peer);
            assert!(mark.write(fd));
            let other = client.try_clone().unwrap();
            assert_eq!(Mark::read(other.as_raw_fd()), Some(mark));
        }
        let sent = vec![7; 1 << 18];
        let writing = std::thread::spawn(move || std::io::Write::write_all(&mut server, &sent));
        let mut received = vec![0; 1 << 18];
        std::io::Read::read_exact(&mut client, &mut received).unwrap();
        writing.join().unwrap().unwrap();
        Mark::remove(fd);
        assert_eq!(Mark::read(fd), None);
    }

    #[test]
    fn other_filters_and_descriptors_are_no_mark() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Mark::read(file.as_raw_fd()), None);
        let mut program = mark("192.0.2.1:80").encode();
        assert_eq!(Mark::decode(&program), Some(mark("192.0.2.1:80")));
        program[1].k ^= 1;
        assert_eq!(Mark::decode(&program), None);
    }
}
