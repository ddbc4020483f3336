//! A program's `connect`, led through the gateways.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::Instant;

use libc::{sockaddr, socklen_t};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::address;
use crate::first_gateway::{PATIENCE, Unreached, begin, reach};
use crate::mark::Mark;
use crate::pending::{self, Progress};
use crate::settings::{Loaded, loaded};
use crate::sys;

/// `connect` as the program calls it: 0, or -1 and an errno.
///
/// # Safety
/// `address` points to `len` bytes.
pub(crate) unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as promised by the caller.
    let (target, real) =
        unsafe { (address::read(address, len), || sys::connect(fd, address, len)) };
    if let Some(session) = pending::find(fd) {
        if target.is_none() {
            // The socket is taken back.
            session.report(fd);
            return real();
        }
        return result(resume(fd, &session));
    }
    let (Some(target), Some(loaded)) = (target, loaded()) else { return real() };
    if target.port() == 0 || !loaded.settings.covers(target) {
        return real();
    }
    match stream_protocol(fd) {
        Some(libc::IPPROTO_TCP) if sys::is_closed(fd) => {}
        Some(libc::IPPROTO_MPTCP) => {
            // It has no place for the mark. Who asked for it can do without.
            sys::write_words("MPTCP is not led through gateways, TCP is");
            return result(Err(libc::EPROTONOSUPPORT));
        }
        // The kernel says what is connected already, or listens: a header would be payload there.
        _ => return real(),
    }
    match dial(fd, target, loaded) {
        Outcome::Done(outcome) => result(outcome),
        Outcome::Directly => real(),
    }
}

/// `connect` as far as gateways are concerned.
enum Outcome {
    Done(Result<(), c_int>),
    /// The program's own call is to be made after all.
    Directly,
}

fn result(outcome: Result<(), c_int>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(errno) => {
            sys::set_errno(errno);
            -1
        }
    }
}

/// The program asks how a `connect` goes that was interrupted or did not wait. Who saw the socket become
/// writable takes "not yet" for a failure, so the answer has a moment to come.
fn resume(fd: c_int, session: &pending::Session) -> Result<(), c_int> {
    let waits = !sys::is_nonblocking(fd);
    let until = Instant::now() + PATIENCE;
    while !waits && session.look(fd) == Progress::Waiting {
        let left = until.saturating_duration_since(Instant::now());
        if !sys::wait_for(fd, libc::POLLIN, left) {
            return Err(libc::EALREADY);
        }
    }
    settle(fd, session, waits)
}

/// Waits for the answer, as a blocking `connect` does.
fn settle(fd: c_int, session: &pending::Session, waits: bool) -> Result<(), c_int> {
    session.settle(fd, waits, libc::SO_SNDTIMEO).map_err(|errno| match errno {
        libc::EAGAIN => libc::EINPROGRESS,
        errno => errno,
    })
}

fn dial(fd: c_int, target: SocketAddr, loaded: &Loaded) -> Outcome {
    let refuse = |errno| Outcome::Done(Err(errno));
    let Some(gateways) = loaded.gateways() else { return refuse(libc::EACCES) };
    let gateway = match reach(fd, loaded, gateways) {
        Ok(gateway) => gateway,
        Err(Unreached::Own(errno)) => return refuse(errno),
        Err(Unreached::Silent) => return Outcome::Directly,
        Err(Unreached::Gateway(words)) if loaded.settings.direct => {
            sys::write_words(&format!("{words}; connecting directly"));
            return Outcome::Directly;
        }
        Err(Unreached::Gateway(words)) => {
            sys::write_words(&words);
            return refuse(libc::ENETUNREACH);
        }
    };
    let attempt = match begin(fd, target, gateway, gateways) {
        Ok(attempt) => attempt,
        Err(failure) => {
            sys::write_words(&failure.words);
            sys::disconnect(fd);
            return refuse(failure.errno);
        }
    };
    let mark = match new_mark(target) {
        Some(mark) if mark.write(fd) => mark,
        _ => {
            sys::write_words("this kernel has no room to note a session in its socket");
            sys::disconnect(fd);
            return refuse(libc::ENOBUFS);
        }
    };
    let session = pending::insert(mark, attempt);
    if sys::is_nonblocking(fd) {
        return refuse(libc::EINPROGRESS);
    }
    Outcome::Done(settle(fd, &session, true))
}

fn new_mark(peer: SocketAddr) -> Option<Mark> {
    let mut id = [0; 8];
    let drawn = getrandom(&mut id, GetRandomFlags::empty()).ok()?;
    (drawn == id.len()).then(|| Mark { id: u64::from_ne_bytes(id), peer, answered: false })
}

/// The protocol of a stream; `None` for what is none.
fn stream_protocol(fd: c_int) -> Option<c_int> {
    let option = |name| sys::option(fd, libc::SOL_SOCKET, name).ok();
    option(libc::SO_TYPE).filter(|kind| *kind == libc::SOCK_STREAM)?;
    option(libc::SO_PROTOCOL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;

    #[test]
    fn only_streams_have_a_protocol() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(stream_protocol(tcp.as_raw_fd()), Some(libc::IPPROTO_TCP));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(stream_protocol(udp.as_raw_fd()), None);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(stream_protocol(file.as_raw_fd()), None);
    }
}
