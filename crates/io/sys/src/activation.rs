//! Sockets that a service manager has opened for this process (`sd_listen_fds(3)`).

use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

/// The TCP socket with the number `descriptor`, which listens.
///
/// # Errors
/// There is no such descriptor, or it is something else.
pub fn listener(descriptor: RawFd) -> io::Result<TcpListener> {
    if descriptor < FIRST {
        return Err(io::Error::other("it is no descriptor of a service manager"));
    }
    // SAFETY: the number is not -1, and is used for a copy only: that fails where no descriptor has it.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
    match socket_type(&socket)? == SocketType::STREAM && socket_acceptconn(&socket)? {
        true => Ok(TcpListener::from(socket)),
        false => Err(io::Error::other("it is no TCP socket that listens (ListenStream=)")),
    }
}

/// Behind the standard streams.
const FIRST: RawFd = 3;

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_socket_that_listens_is_taken_and_nothing_else() {
        let passed = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener(passed.as_raw_fd()).unwrap();
        let _client = TcpStream::connect(passed.local_addr().unwrap()).unwrap();
        taken.accept().unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(listener(other.as_raw_fd()).is_err());
        assert!(listener(-1).is_err() && listener(60_000).is_err());
    }
}
