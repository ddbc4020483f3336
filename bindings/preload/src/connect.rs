//! From a program's `connect` to the first gateway.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libc::{sockaddr, socklen_t};
use longhaul_relay::Clock;
use longhaul_relay_client::{Attempt, Gateways, SessionError};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::address::{self, Raw};
use crate::early::Early;
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

/// Begins a set-up on the same socket, by the clock that the gateway has proven, and sends what the
/// program had sent. Without a failure of its own where the gateway cannot be reached any more.
pub(crate) fn again(
    fd: c_int,
    target: SocketAddr,
    clock: Clock,
    early: &Early,
) -> Result<Attempt, Option<SessionError>> {
    let loaded = loaded().ok_or(None)?;
    let gateways = loaded.gateways().ok_or(None)?;
    // One that is not believed is not used: the gateway refuses what is known then, too.
    gateways.believe(clock);
    sys::disconnect(fd);
    let gateway = reach(fd, loaded, gateways).map_err(|_| None)?;
    let attempt = begin(fd, target, gateway, gateways).map_err(Some)?;
    match send_early(fd, early, attempt.until()) {
        Err(libc::ETIMEDOUT) => {
            Err(Some(SessionError::lost(libc::ETIMEDOUT, "it takes no payload")))
        }
        // Where the connection broke already, the answer says why.
        _ => Ok(attempt),
    }
}

/// Connects past gateways of which one cannot be reached, where that is allowed.
pub(crate) fn directly(
    fd: c_int,
    target: SocketAddr,
    failure: &SessionError,
    early: &Early,
) -> Option<Result<(), c_int>> {
    loaded().filter(|loaded| loaded.settings.direct)?;
    sys::write_words(&format!("{}; connecting directly", failure.words));
    sys::disconnect(fd);
    let connected = Raw::new(target, domain(fd))?.connect(fd);
    let until = Instant::now() + SILENCE_KEPT;
    Some(match connected {
        0 => send_early(fd, early, until),
        _ if sys::errno() == libc::EINPROGRESS && early.is_empty() => Ok(()),
        _ if sys::errno() == libc::EINPROGRESS => {
            await_connection(fd).and_then(|()| send_early(fd, early, until))
        }
        _ => Err(sys::errno()),
    })
}

/// Sends what the program had sent on a connection that is no more.
fn send_early(fd: c_int, early: &Early, until: Instant) -> Result<(), c_int> {
    send(fd, early.bytes(), until)?;
    if early.ended {
        sys::shut_down(fd);
    }
    Ok(())
}

/// Waits for a connection that is being made.
fn await_connection(fd: c_int) -> Result<(), c_int> {
    if !sys::wait_for(fd, libc::POLLOUT, PATIENCE) {
        return Err(libc::ETIMEDOUT);
    }
    match sys::option(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
        Ok(0) => Ok(()),
        Ok(errno) => Err(errno),
        Err(_) => Err(sys::errno()),
    }
}

/// Why the first gateway was not reached.
enum Unreached {
    /// The socket cannot be connected, to no matter where.
    Own(c_int),
    /// It does not answer.
    Gateway(String),
    /// It did not answer a moment ago, and the program may do without: that stood in a message then.
    Silent,
}

/// When the first gateway did not answer last.
static SILENT: Mutex<Option<Instant>> = Mutex::new(None);

/// The first gateway does not answer: sessions that may do without are not led to it for a while.
pub(crate) fn note_silence() {
    let mut last = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    *last = Some(Instant::now());
}

/// Connects the socket to the first gateway, and waits for that also where it does not block.
fn reach(fd: c_int, loaded: &Loaded, gateways: &Gateways) -> Result<SocketAddr, Unreached> {
    let last = *SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    let recently = last.is_some_and(|at| at.elapsed() < SILENCE_KEPT);
    if recently && loaded.settings.direct {
        return Err(Unreached::Silent);
    }
    let blocks = !sys::is_nonblocking(fd);
    if blocks {
        sys::set_nonblocking(fd, true);
    }
    let reached = reach_one_of(fd, &loaded.settings.addresses, gateways);
    if blocks {
        sys::set_nonblocking(fd, false);
    }
    if let Err(Unreached::Gateway(_)) = reached {
        note_silence();
    }
    reached
}

fn reach_one_of(
    fd: c_int,
    addresses: &[SocketAddr],
    gateways: &Gateways,
) -> Result<SocketAddr, Unreached> {
    let family = domain(fd);
    if family == libc::AF_INET6 {
        // It reaches a gateway's IPv4 address too; that the kernel refuses shows in `connect`.
        let _ = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &0);
    }
    let mut last = "it has no address of this socket's family".to_owned();
    let usable = |address: &&SocketAddr| Raw::new(**address, family).is_some();
    for address in addresses.iter().filter(usable).take(MAX_ADDRESSES) {
        let Some(raw) = Raw::new(*address, family) else { continue };
        let errno = match raw.connect(fd) {
            0 => return Ok(*address),
            _ => sys::errno(),
        };
        let errno = match errno {
            libc::EINPROGRESS => match await_connection(fd) {
                Ok(()) => {
                    // The kernel takes note, and tells the next who asks that it is connected.
                    raw.connect(fd);
                    return Ok(*address);
                }
                Err(errno) => errno,
            },
            errno => errno,
        };
        if !OF_NETWORK.contains(&errno) {
            return Err(Unreached::Own(errno));
        }
        last = io::Error::from_raw_os_error(errno).to_string();
        sys::disconnect(fd);
    }
    let words = last.split(" (os error").next().unwrap_or_default().to_lowercase();
    Err(Unreached::Gateway(format!("gateway {} does not answer: {words}", gateways.first())))
}

/// Sends the header on a connection to `gateway`.
fn begin(
    fd: c_int,
    target: SocketAddr,
    gateway: SocketAddr,
    gateways: &Gateways,
) -> Result<Attempt, SessionError> {
    let mut attempt = gateways
        .dial(target.into(), gateway)
        .map_err(|error| SessionError::lost(libc::ENETUNREACH, error))?;
    let header = attempt.unsent();
    let len = header.len();
    send(fd, header, Instant::now() + PATIENCE).map_err(|errno| match errno {
        libc::ETIMEDOUT => SessionError::lost(errno, "it takes no header"),
        errno => SessionError::lost(errno, io::Error::from_raw_os_error(errno)),
    })?;
    attempt.sent(len);
    Ok(attempt)
}

/// Sends all of `bytes`. A new connection takes a header at once, and payload at the latest when the
/// session stands.
fn send(fd: c_int, mut bytes: &[u8], until: Instant) -> Result<(), c_int> {
    while !bytes.is_empty() {
        match sys::send(fd, bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = until.saturating_duration_since(Instant::now());
                if !sys::wait_for(fd, libc::POLLOUT, left) {
                    return Err(libc::ETIMEDOUT);
                }
            }
            Err(error) => return Err(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
    Ok(())
}

fn new_mark(peer: SocketAddr) -> Option<Mark> {
    let mut id = [0; 8];
    let drawn = getrandom(&mut id, GetRandomFlags::empty()).ok()?;
    (drawn == id.len()).then(|| Mark { id: u64::from_ne_bytes(id), peer, answered: false })
}

/// `AF_INET` or `AF_INET6`, for sockets of the internet.
pub(crate) fn domain(fd: c_int) -> c_int {
    sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).unwrap_or(libc::AF_UNSPEC)
}

/// The protocol of a stream; `None` for what is none.
fn stream_protocol(fd: c_int) -> Option<c_int> {
    let option = |name| sys::option(fd, libc::SOL_SOCKET, name).ok();
    option(libc::SO_TYPE).filter(|kind| *kind == libc::SOCK_STREAM)?;
    option(libc::SO_PROTOCOL)
}

/// How long an address of the first gateway may take: it is near.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most addresses of it that are tried.
const MAX_ADDRESSES: usize = 3;
/// A gateway that did not answer is not asked again for so long by who may do without it.
const SILENCE_KEPT: Duration = Duration::from_secs(30);
/// Errors that are of the network or of the gateway's host, not of the socket.
const OF_NETWORK: [c_int; 8] = [
    libc::ECONNREFUSED,
    libc::ECONNRESET,
    libc::ETIMEDOUT,
    libc::EHOSTUNREACH,
    libc::ENETUNREACH,
    libc::EHOSTDOWN,
    libc::ENETDOWN,
    libc::EACCES,
];

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
