//! Connections and ports that come to a server through the ssh that has started it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use longhaul_control::tunnel::{Arrival, Tunnel};
use longhaul_sys::sync::lock;
use longhaul_wire::SshTaken;

/// Connections of the one client that come through ssh, and the ends of ssh's own connection.
pub struct SshArrivals {
    arrived: Mutex<Receiver<Arrival>>,
    sender: SyncSender<Arrival>,
    /// A connection has come.
    carries: AtomicBool,
    ends: Option<SshEnds>,
    taken: OnceLock<SshTaken>,
    /// ssh has ended, or the client has closed its streams.
    ended: AtomicBool,
}

/// The addresses between which ssh runs, as its server knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SshEnds {
    pub client: SocketAddr,
    pub server: IpAddr,
}

impl SshEnds {
    /// Those of `SSH_CONNECTION`.
    pub fn parse(connection: &str) -> Option<Self> {
        let ip = |text: &str| {
            let (ip, _zone) = text.split_once('%').unwrap_or((text, ""));
            ip.parse::<IpAddr>().ok()
        };
        let mut words = connection.split(' ');
        let client = SocketAddr::new(ip(words.next()?)?, words.next()?.parse().ok()?);
        Some(Self { client, server: ip(words.next()?)? })
    }
}

impl SshArrivals {
    pub(crate) fn new(ends: Option<SshEnds>) -> Self {
        let (sender, arrived) = sync_channel(WAITING_MAX);
        let (arrived, carries) = (Mutex::new(arrived), AtomicBool::default());
        let ended = AtomicBool::default();
        Self { arrived, sender, carries, ends, taken: OnceLock::new(), ended }
    }

    /// Takes what comes by `input`, behind whose end `ended` is called.
    pub(super) fn listen(
        &self,
        (input, output): (OwnedFd, OwnedFd),
        ended: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Tunnel> {
        let sender = self.sender.clone();
        // One that is not taken ends, as at a host that has no room for it.
        let arrived = move |arrival| drop(sender.try_send(arrival));
        Tunnel::server(input, output, arrived, ended)
    }

    /// The next, if one comes soon.
    pub(crate) fn next(&self, patience: Duration) -> Option<Arrival> {
        let arrival = lock(&self.arrived).recv_timeout(patience).ok()?;
        if matches!(arrival, Arrival::Connection(_)) {
            self.carries.store(true, Ordering::Relaxed);
        }
        Some(arrival)
    }

    /// The client comes this way: none of its connections does by the network.
    pub(crate) fn carries(&self) -> bool {
        self.carries.load(Ordering::Relaxed)
    }

    pub(super) fn note_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The streams of ssh have ended, with which the server ends.
    pub(crate) fn have_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Others have ports that this server may listen at.
    pub(crate) fn note_taken(&self, taken: SshTaken) {
        // There is one server, which listens once.
        let _ = self.taken.set(taken);
    }

    pub(super) fn taken(&self) -> Option<SshTaken> {
        self.taken.get().copied()
    }

    pub(crate) const fn ends(&self) -> Option<SshEnds> {
        self.ends
    }
}

impl fmt::Debug for SshArrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SshArrivals({:?})", self.ends)
    }
}

/// More than a client opens at once.
const WAITING_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_ssh_are_read_of_its_variable() {
        let ends = SshEnds::parse("192.0.2.1 4711 198.51.100.2 22").unwrap();
        assert_eq!(ends.client, "192.0.2.1:4711".parse().unwrap());
        assert_eq!(ends.server, "198.51.100.2".parse::<IpAddr>().unwrap());
        let zone = SshEnds::parse("fe80::1%eth0 4711 fe80::2%eth0 22").unwrap();
        assert_eq!(zone.server, "fe80::2".parse::<IpAddr>().unwrap());
        for text in ["", "UNKNOWN 65535 UNKNOWN 65535", "192.0.2.1 4711"] {
            assert_eq!(SshEnds::parse(text), None, "{text}");
        }
    }
}
