//! Connections to the first gateway, and past it where that is allowed.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_relay::Clock;
use longhaul_relay_client::{Attempt, Gateways, SessionError};

use crate::address::Raw;
use crate::early::Early;
use crate::settings::{Loaded, loaded};
use crate::sys;

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
pub(crate) enum Unreached {
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
pub(crate) fn reach(
    fd: c_int,
    loaded: &Loaded,
    gateways: &Gateways,
) -> Result<SocketAddr, Unreached> {
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
pub(crate) fn begin(
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

/// `AF_INET` or `AF_INET6`, for sockets of the internet.
pub(crate) fn domain(fd: c_int) -> c_int {
    sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).unwrap_or(libc::AF_UNSPEC)
}

/// How long an address of the first gateway may take: it is near.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
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
