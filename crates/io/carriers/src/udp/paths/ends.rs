//! The ends of a path, and sockets between them.

use std::net::{IpAddr, SocketAddr};

use longhaul_sys::udp::{UdpOptions, UdpSocket};

use super::super::on_link_of;
use super::Peer;

/// The addresses of a path, as its client knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// This host's address.
    pub local: IpAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

/// A socket for a lane that goes from `left` to `ends`, if its own cannot be used there.
pub(super) fn socket(left: Peer, ends: Ends) -> std::io::Result<Option<UdpSocket>> {
    if let Peer::Server(left) = left
        && left.local == ends.local
        && left.remote.is_ipv4() == ends.remote.is_ipv4()
    {
        return Ok(None);
    }
    ends.socket().map(Some)
}

impl Ends {
    /// A socket for a lane.
    pub fn socket(&self) -> std::io::Result<UdpSocket> {
        self.socket_with(&UdpOptions::default())
    }

    /// A socket between them.
    ///
    /// # Errors
    /// The system gives none.
    pub fn socket_with(&self, options: &UdpOptions) -> std::io::Result<UdpSocket> {
        let here = on_link_of(self.local, self.remote);
        let socket = UdpSocket::bind(here, options)?;
        socket.connect(self.remote)?;
        Ok(socket)
    }
}
