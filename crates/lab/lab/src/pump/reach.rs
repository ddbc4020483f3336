use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_units::Instant;

use super::TURN;
use crate::testbed::Host;

/// The addresses and sockets by which connections of a pump reach the receiving host.
pub struct Reach<'a> {
    port: u16,
    dial: &'a Dial<'a>,
}

/// Connects, at the sending host, to what leads to that address, within a time.
type Dial<'a> = dyn Fn(SocketAddr, Duration) -> io::Result<TcpStream> + Sync + 'a;

impl Reach<'static> {
    /// Straight to whatever port is free.
    pub fn direct() -> Self {
        Self { port: 0, dial: &|target, within| TcpStream::connect_timeout(&target, within) }
    }
}

impl<'a> Reach<'a> {
    /// Through programs at nodes between: `dial` connects, at the sending host and within a time, to
    /// what leads to the address that it is given, which is the receiving host's at `port`.
    pub fn through(port: u16, dial: &'a Dial<'a>) -> Self {
        Self { port, dial }
    }

    pub(super) fn listen(&self, to: &Host) -> io::Result<TcpListener> {
        to.run(|| TcpListener::bind((to.ipv4(), self.port)))?
    }

    /// Connects; called at the sending host.
    pub(super) fn dial(&self, target: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
        let left = deadline.since(clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        (self.dial)(target, left)
    }
}

/// The connection that comes, until the deadline passes or `going` ends: what leads here may fail
/// after it has answered.
pub(super) fn accept(
    listener: &TcpListener,
    deadline: Instant,
    going: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if clock::now() >= deadline || !going() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(TURN);
    }
}
