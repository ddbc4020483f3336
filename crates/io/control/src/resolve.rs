//! From a host name to a TCP connection: all its addresses, IPv6 and IPv4 (RFC 8305).

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::threads;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::Instant;
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use super::error::ConnectError;
use super::tls_stream::STOP_LATENCY;

/// The addresses of `host`, in the order in which they are to be tried.
pub fn resolve(host: &str, port: u16, stop: &Stop) -> Result<Vec<SocketAddr>, ConnectError> {
    let unresolved = |source| ConnectError::Unresolvable { host: host.to_owned(), source };
    // The resolver may take half a minute and cannot be interrupted: a thread waits for it, which
    // outlives this call when a stop is asked for, and ends by itself.
    let (answer, answered) = mpsc::channel();
    let name = host.to_owned();
    threads::spawn("longhaul-resolve", move || {
        let addresses = (name.as_str(), port).to_socket_addrs();
        // Nobody listens any more after a stop.
        let _ = answer.send(addresses.map(Iterator::collect::<Vec<_>>));
    })
    .map_err(ConnectError::System)?;
    loop {
        match answered.recv_timeout(STOP_LATENCY) {
            Ok(Ok(addresses)) if addresses.is_empty() => {
                return Err(unresolved(io::Error::other("the name has no address")));
            }
            Ok(Ok(mut addresses)) => {
                addresses.truncate(ADDRESSES_MAX);
                return Ok(addresses);
            }
            Ok(Err(error)) => return Err(unresolved(error)),
            Err(RecvTimeoutError::Timeout) if stop.is_requested() => {
                return Err(ConnectError::Stopped);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(unresolved(io::Error::other("the resolver failed")));
            }
        }
    }
}

/// A TCP connection and how it came about.
#[derive(Debug)]
pub struct Connected {
    /// The connection.
    pub stream: TcpStream,
    /// The address that answered.
    pub server: SocketAddr,
    /// Time from the first packet to the answer.
    pub rtt: Duration,
}

/// Connects to the first of `addresses` that answers. The next one is tried when one fails or has
/// not answered for a moment, while the earlier ones go on, each for up to `timeout`.
pub fn connect(
    addresses: &[SocketAddr],
    timeout: Duration,
    stop: &Stop,
) -> Result<Connected, ConnectError> {
    connect_with(addresses, timeout, stop, &|_| Ok(()))
}

/// The same by sockets that `prepare` has seen before they connect.
pub fn connect_with(
    addresses: &[SocketAddr],
    timeout: Duration,
    stop: &Stop,
    prepare: &dyn Fn(&Socket) -> io::Result<()>,
) -> Result<Connected, ConnectError> {
    let mut untried = addresses.iter().copied();
    let mut pending: Vec<Attempt> = Vec::new();
    let mut failed = Vec::new();
    let mut next_at = Instant::ZERO;
    loop {
        let now = clock::now();
        if stop.is_requested() {
            return Err(ConnectError::Stopped);
        }
        if pending.is_empty() || now >= next_at {
            if let Some(server) = untried.next() {
                match Attempt::start(server, now, prepare) {
                    Ok(attempt) => pending.push(attempt),
                    Err(error) => failed.push((server, error)),
                }
                next_at = now + STAGGER;
                continue;
            }
            if pending.is_empty() {
                return Err(ConnectError::Unreachable { attempts: failed });
            }
            next_at = Instant::FAR_FUTURE;
        }
        let sources: Vec<_> =
            pending.iter().map(|attempt| (attempt.socket.as_fd(), Interest::Writable)).collect();
        let first_timeout = pending.iter().map(|attempt| attempt.started + timeout).min();
        let until = (now + STOP_LATENCY).min(next_at).min(first_timeout.unwrap_or(next_at));
        let ready = wait(&sources, Some(until)).map_err(ConnectError::System)?;
        let now = clock::now();
        let mut waiting = Vec::new();
        for (i, attempt) in pending.into_iter().enumerate() {
            let outcome = match attempt.socket.take_error() {
                Ok(None) if ready & 1 << i != 0 => {
                    let rtt = now.since(attempt.started);
                    let stream = TcpStream::from(attempt.socket);
                    return Ok(Connected { stream, server: attempt.server, rtt });
                }
                Ok(None) if now >= attempt.started + timeout => io::ErrorKind::TimedOut.into(),
                Ok(None) => {
                    waiting.push(attempt);
                    continue;
                }
                Ok(Some(error)) | Err(error) => error,
            };
            failed.push((attempt.server, outcome));
            next_at = now;
        }
        pending = waiting;
    }
}

struct Attempt {
    socket: Socket,
    server: SocketAddr,
    started: Instant,
}

impl Attempt {
    fn start(
        server: SocketAddr,
        started: Instant,
        prepare: &dyn Fn(&Socket) -> io::Result<()>,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        prepare(&socket)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&server.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                Err(error)
            }
            _ => Ok(Self { socket, server, started }),
        }
    }
}

/// "Connection Attempt Delay" of RFC 8305.
const STAGGER: Duration = Duration::from_millis(250);

/// More addresses than any real server has, and no more than can be waited for.
const ADDRESSES_MAX: usize = 8;
