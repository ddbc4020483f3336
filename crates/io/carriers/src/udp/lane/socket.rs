//! The socket of a lane: a client's own from the start, a server's once it knows the client.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use longhaul_sys::udp::{BufferSize, Route, UdpOptions, UdpSocket};
use longhaul_sys::wait::{self, Interest, Waker};
use longhaul_units::Instant;

/// Bytes of receive buffer that hold what 60 Gb/s bring while a thread sleeps and lets datagrams wait.
const ROOMY: usize = 4_000_000;

/// Bytes of buffer for a hundred small datagrams, which the kernel charges a kilobyte each.
const FEW_MESSAGES: usize = 106_496;

/// The socket that a lane sends and receives with.
#[derive(Debug)]
pub enum LaneSocket {
    /// Its own, connected to this peer: the kernel sorts its datagrams out.
    Own(UdpSocket, SocketAddr),
    /// The server's, which passes on what comes for the lane, and the address of this host that the
    /// client knows: only what leaves from there reaches it. Used until the client's address is
    /// proven.
    Shared(Arc<UdpSocket>, SocketAddr),
}

/// Size of a socket's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketSize {
    /// The data of a round trip, or of the time in which the reader is away.
    Data,
    /// A few messages.
    Messages,
}

impl SocketSize {
    /// For a socket of that size.
    pub fn options(self) -> UdpOptions {
        let mut options = UdpOptions::default();
        if self == Self::Messages {
            options.receive_buffer = FEW_MESSAGES;
            options.send_buffer = FEW_MESSAGES;
        }
        options
    }
}

impl LaneSocket {
    /// The socket to send with, and the route to `to`, for datagrams with this traffic
    /// class byte.
    ///
    /// It changes once or twice in the life of a lane, so a socket of its own is set to it: beside each
    /// datagram it would cost the route that the kernel keeps for a connected socket.
    pub fn route(&self, to: SocketAddr, class: u8) -> (&UdpSocket, Route) {
        match self {
            Self::Own(socket, peer) => {
                // If it cannot be set the peer counts no marks, and the lane does without.
                let _ = socket.set_traffic_class(class);
                (socket, if *peer == to { Route::CONNECTED } else { Route::to(to) })
            }
            Self::Shared(socket, local) => {
                let route = Route::to(to).from(Some(local.ip()));
                (socket, route.with_traffic_class(class))
            }
        }
    }

    /// The socket to receive from, if it is the lane's own.
    pub fn own(&self) -> Option<&UdpSocket> {
        match self {
            Self::Own(socket, _) => Some(socket),
            Self::Shared(..) => None,
        }
    }

    /// The peer is at `remote`, proven: from now on its datagrams come here. True if that took another
    /// socket.
    ///
    /// # Errors
    /// Those of `bind` and `connect`; the socket stays as it was.
    pub fn follow(&mut self, remote: SocketAddr, size: SocketSize) -> io::Result<bool> {
        match self {
            Self::Own(_, peer) if *peer == remote => Ok(false),
            Self::Own(socket, peer) => {
                socket.connect(remote)?;
                *peer = remote;
                Ok(false)
            }
            Self::Shared(shared, local) => {
                // A connected socket takes precedence over the server's on the same port.
                let mut options = size.options();
                options.reuse_port = true;
                if size == SocketSize::Data {
                    options.receive_buffer = shared.receive_buffer().asked;
                    options.send_buffer = shared.send_buffer().asked;
                }
                let socket = UdpSocket::bind(*local, &options)?;
                socket.connect(remote)?;
                *self = Self::Own(socket, remote);
                Ok(true)
            }
        }
    }

    /// The peer has reached this host at `local`, by an authentic packet newer than all others: what
    /// is sent to it leaves from there, by the server's socket `common` until [`Self::follow`]. A host
    /// may have several addresses, as one for a circuit.
    pub fn answer_from(&mut self, local: IpAddr, common: &Arc<UdpSocket>) {
        match self {
            Self::Shared(_, at) => at.set_ip(local),
            Self::Own(socket, _) => {
                let mut at = socket.local_addr();
                if at.ip() != local {
                    at.set_ip(local);
                    *self = Self::Shared(common.clone(), at);
                }
            }
        }
    }

    /// The address of this host that the peer knows.
    pub fn local_ip(&self) -> IpAddr {
        match self {
            Self::Own(socket, _) => socket.local_addr().ip(),
            Self::Shared(_, local) => local.ip(),
        }
    }

    /// Goes on to `remote`, by `other` where one is given, and gives back the socket that was its own
    /// before that.
    ///
    /// # Errors
    /// Those of `connect`; the socket stays as it was.
    pub fn go_to(
        &mut self,
        remote: SocketAddr,
        other: Option<UdpSocket>,
    ) -> io::Result<Option<UdpSocket>> {
        if let Some(socket) = other {
            let left = std::mem::replace(self, Self::Own(socket, remote));
            return Ok(match left {
                Self::Own(socket, _) => Some(socket),
                Self::Shared(..) => None,
            });
        }
        if let Self::Own(socket, peer) = self {
            socket.connect(remote)?;
            *peer = remote;
        }
        Ok(None)
    }

    /// Size of the buffer in which what arrives waits.
    pub fn receive_buffer(&self) -> BufferSize {
        match self {
            Self::Own(socket, _) => socket.receive_buffer(),
            Self::Shared(socket, _) => socket.receive_buffer(),
        }
    }

    /// Bytes of UDP payload that the route and the device towards the peer take; the path may take less.
    pub fn datagram_max(&self) -> u16 {
        match self {
            Self::Own(socket, peer) => datagram_max(socket, Some(*peer)),
            Self::Shared(socket, _) => datagram_max(socket, None),
        }
    }

    /// True if datagrams may be left in the socket's buffer for a moment without loss.
    pub fn is_roomy(&self) -> bool {
        self.own().is_some_and(|socket| socket.receive_buffer().obtained >= ROOMY)
    }

    /// Sleeps until a datagram comes, here or at the `former` socket, or `waker` wakes, or `deadline`; false if
    /// that was the deadline. With `coalesce` datagrams here do not wake it: they wait in the socket.
    pub fn wait(
        &self,
        former: Option<&UdpSocket>,
        waker: &Waker,
        deadline: Instant,
        coalesce: bool,
    ) -> io::Result<bool> {
        let wake = (waker.as_fd(), Interest::Readable);
        let deadline = Some(deadline);
        match (self.own().filter(|_| !coalesce), former) {
            (Some(own), None) => wait::wait(&[(own.as_fd(), Interest::Readable), wake], deadline),
            (Some(own), Some(former)) => {
                let [own, former] =
                    [own, former].map(|socket| (socket.as_fd(), Interest::Readable));
                wait::wait(&[own, former, wake], deadline)
            }
            (None, _) => wait::wait(&[wake], deadline),
        }
        .map(|ready| ready != 0)
    }
}

/// UDP payload that the route and the device towards `remote` take; that of jumbo frames where it is not known.
fn datagram_max(socket: &UdpSocket, remote: Option<SocketAddr>) -> u16 {
    let headers = if remote.is_some_and(|remote| remote.is_ipv6()) { 48 } else { 28 };
    let mtu = socket.route_mtu().unwrap_or(JUMBO_MTU);
    u16::try_from(mtu).unwrap_or(u16::MAX).saturating_sub(headers)
}

/// Size up to which packets are tried on an unknown device: that of jumbo frames.
const JUMBO_MTU: u32 = 9000;

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};

    use longhaul_sys::udp::Wait;
    use longhaul_units::{Dscp, Ecn};

    use super::*;

    #[test]
    fn datagrams_carry_the_codepoints_of_their_batch_from_own_and_shared_sockets() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let bind = || UdpSocket::bind(local.parse().unwrap(), &UdpOptions::default()).unwrap();
            let peer = bind();
            let to = peer.local_addr();
            let (own, shared) = (bind(), Arc::new(bind()));
            own.connect(to).unwrap();
            let from = shared.local_addr();
            for socket in [LaneSocket::Own(own, to), LaneSocket::Shared(shared, from)] {
                let codepoints = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect0, Ecn::NotEct];
                let behind = Dscp::LowerEffort;
                let classes = codepoints.map(|ecn| behind.traffic_class(ecn));
                for class in classes.into_iter().chain(codepoints.map(Ecn::bits)) {
                    let (sender, route) = socket.route(to, class);
                    sender.send(&route, &[IoSlice::new(b"x")], None, Wait::UntilReady).unwrap();
                    let mut bytes = [0; 8];
                    let mut slices = [IoSliceMut::new(&mut bytes)];
                    let got = peer.recv(&mut slices, Wait::UntilReady).unwrap().unwrap();
                    assert_eq!((got.len, got.traffic_class), (1, class), "{local}");
                }
            }
        }
    }
}
