//! The socket of a lane: a client's own from the start, a server's once it knows the client.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use longhaul_sys::udp::{Route, UdpOptions, UdpSocket};
use longhaul_sys::wait::{self, Interest, Waker};
use longhaul_units::Instant;

/// Bytes of receive buffer that hold what 60 Gb/s bring while a thread sleeps deaf.
const ROOMY: usize = 4_000_000;

/// Where a lane sends and receives.
#[derive(Debug)]
pub(crate) enum LaneSocket {
    /// Its own, connected to this peer: the kernel sorts its datagrams out.
    Own(UdpSocket, SocketAddr),
    /// The server's, which passes on what comes for the lane, and the address of this host that the
    /// client knows: only what leaves from there reaches it. Used until the client's address is
    /// proven.
    Shared(Arc<UdpSocket>, SocketAddr),
}

impl LaneSocket {
    /// The socket to send with, and the route to `to`.
    pub fn route(&self, to: SocketAddr) -> (&UdpSocket, Route) {
        match self {
            Self::Own(socket, peer) if *peer == to => (socket, Route::CONNECTED),
            Self::Own(socket, _) => (socket, Route::to(to)),
            Self::Shared(socket, local) => (socket, Route::to(to).from(Some(local.ip()))),
        }
    }

    /// The socket to receive from, if it is the lane's own.
    pub fn own(&self) -> Option<&UdpSocket> {
        match self {
            Self::Own(socket, _) => Some(socket),
            Self::Shared(..) => None,
        }
    }

    /// The peer is at `remote`, proven: from now on its datagrams come here.
    ///
    /// # Errors
    /// Those of `bind` and `connect`; the socket stays as it was.
    pub fn follow(&mut self, remote: SocketAddr) -> io::Result<()> {
        match self {
            Self::Own(_, peer) if *peer == remote => {}
            Self::Own(socket, peer) => {
                socket.connect(remote)?;
                *peer = remote;
            }
            Self::Shared(_, local) => {
                // A connected socket takes precedence over the server's on the same port.
                let mut options = UdpOptions::default();
                options.reuse_port = true;
                let socket = UdpSocket::bind(*local, &options)?;
                socket.connect(remote)?;
                *self = Self::Own(socket, remote);
            }
        }
        Ok(())
    }

    /// Whether datagrams may be left in the socket's buffer for a moment without loss.
    pub fn is_roomy(&self) -> bool {
        self.own().is_some_and(|socket| socket.receive_buffer().obtained >= ROOMY)
    }

    /// Sleeps until a datagram, unless `deaf`, or `waker` or `deadline`.
    pub fn wait(&self, waker: &Waker, deadline: Instant, deaf: bool) -> io::Result<()> {
        match self {
            Self::Own(socket, _) if !deaf => {
                socket.wait_readable(Some(waker), Some(deadline)).map(drop)
            }
            _ => wait::wait(&[(waker.as_fd(), Interest::Readable)], Some(deadline)).map(drop),
        }
    }
}
