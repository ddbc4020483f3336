//! Reading a lane's socket.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use longhaul_connection::ReadBatch;
use longhaul_sys::clock::{self, WallOffset};
use longhaul_sys::udp::{UdpSocket, Wait};
use longhaul_units::{Duration, Instant};

use super::HostDrops;

pub(super) struct Reading {
    /// One super-packet, warm in the cache.
    buffer: Vec<u8>,
    wall: WallOffset,
    wall_due: Instant,
    /// The socket's count of what it dropped.
    overflow: u32,
    /// Drops of other kinds that are in that count.
    drops: Option<Arc<HostDrops>>,
}

impl Reading {
    pub fn new(now: Instant, drops: Option<Arc<HostDrops>>) -> Self {
        let (wall, wall_due) = (WallOffset::sample(), now + WALL_INTERVAL);
        Self { buffer: vec![0; BUFFER], wall, wall_due, overflow: 0, drops }
    }

    /// The next super-packet, if one is there.
    pub fn read(&mut self, socket: &UdpSocket) -> io::Result<Option<(ReadBatch, &mut [u8])>> {
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        let Some(got) = socket.recv(&mut slices, Wait::No)? else { return Ok(None) };
        let now = clock::now();
        if now >= self.wall_due {
            self.wall = WallOffset::sample();
            self.wall_due = now + WALL_INTERVAL;
        }
        let dropped =
            got.overflow.wrapping_sub(std::mem::replace(&mut self.overflow, got.overflow));
        let batch = ReadBatch {
            from: got.from,
            // A stamp from before a step of the wall clock may lie in the future.
            at: got.kernel_time.map_or(now, |stamp| self.wall.to_instant(stamp).min(now)),
            segment: usize::from(got.segment).max(1),
            ecn: got.ecn(),
            overflowed: self.overflowed(now, dropped.into()),
        };
        let len = if got.truncated { 0 } else { got.len };
        Ok(Some((batch, &mut self.buffer[..len])))
    }

    /// True if any of the datagrams that the socket `dropped` had found it full: those with a wrong
    /// checksum are in its count, too.
    fn overflowed(&self, now: Instant, dropped: u64) -> bool {
        let damaged = |drops: &Arc<HostDrops>| drops.damaged(now, dropped);
        dropped > 0 && dropped > self.drops.as_ref().map_or(0, damaged)
    }
}

const BUFFER: usize = 65_536;
/// Interval of comparisons of the clocks.
const WALL_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::net::{IpAddr, SocketAddr};

    use longhaul_needs::needs;
    use longhaul_sys::netns::Namespace;
    use longhaul_sys::udp::{Route, UdpOptions};
    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    /// Sends a datagram that no kernel has given its checksum.
    fn send_damaged(raw: &Socket, from: SocketAddr, to: SocketAddr) {
        let len = 8 + PAYLOAD as u16;
        let mut datagram = [from.port(), to.port(), len, 1].map(u16::to_be_bytes).concat();
        // Short ones are looked at before a socket is looked for, and count nowhere else.
        datagram.resize(usize::from(len), 0x5a);
        let to = SocketAddr::new(to.ip(), 0);
        assert_eq!(raw.send_to(&datagram, &to.into()).unwrap(), datagram.len());
    }

    fn damaged_datagrams_are_the_networks(local: IpAddr) {
        let make = || {
            let bind = |receive_buffer| {
                let mut options = UdpOptions::default();
                options.receive_buffer = receive_buffer;
                UdpSocket::bind((local, 0).into(), &options).unwrap()
            };
            let domain = if local.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
            let raw = Socket::new(domain, Type::RAW, Some(Protocol::UDP)).unwrap();
            (bind(1 << 20), bind(16 << 10), raw, HostDrops::since_now())
        };
        let (sender, receiver, raw, drops) = Namespace::new().unwrap().run(make).unwrap();
        let mut reading = Reading::new(clock::now(), Some(Arc::new(drops)));
        let (from, to) = (sender.local_addr(), receiver.local_addr());
        let send = || {
            let sent = sender.send(&Route::to(to), &[IoSlice::new(&[0; PAYLOAD])], None, Wait::No);
            assert_eq!(sent.unwrap(), PAYLOAD);
        };
        // The kernel may hand one over later than the calls return.
        let mut overflowed = || {
            loop {
                if let Some((batch, _)) = reading.read(&receiver).unwrap() {
                    return batch.overflowed;
                }
            }
        };
        send();
        assert!(!overflowed());
        send_damaged(&raw, from, to);
        send();
        assert!(!overflowed());
        // The kernel has found out when it was to be read.
        assert_eq!(receiver.memory().unwrap().drops, 1, "the socket counts it");
        send();
        assert!(!overflowed(), "the network damaged it");
        // One more is damaged, and others find the socket full.
        send_damaged(&raw, from, to);
        (0..100).for_each(|_| send());
        let later = (0..100).any(|_| {
            send();
            overflowed()
        });
        assert!(later, "it was full");
    }

    #[needs(namespaces)]
    #[test]
    fn a_socket_is_not_blamed_for_what_the_network_damaged() {
        damaged_datagrams_are_the_networks(IpAddr::from([127, 0, 0, 1]));
    }

    #[needs(namespaces, ipv6)]
    #[test]
    fn a_socket_is_not_blamed_for_what_the_network_damaged_of_ipv6() {
        damaged_datagrams_are_the_networks("::1".parse().unwrap());
    }

    const PAYLOAD: usize = 1_000;
}
