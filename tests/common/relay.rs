//! A path between client and server that a test can disturb: another loopback address whose TCP
//! connections and datagrams are passed on.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// Turns a datagram into those that are passed on.
pub type Tap = Box<dyn FnMut(Way, &[u8]) -> Vec<Vec<u8>> + Send>;

/// Turns bytes of one direction of a TCP connection into those that are passed on; `None` ends the
/// connection.
pub type StreamTap = Box<dyn FnMut(&[u8]) -> Option<Vec<u8>> + Send>;

/// Makes the taps of the TCP connections, which are counted from 0: the first is a client's control
/// connection.
pub type StreamTaps = Box<dyn Fn(usize, Way) -> StreamTap + Send + Sync>;

/// Passes on what comes to `address`.
pub struct Relay {
    pub address: SocketAddr,
    switches: Arc<Switches>,
    thread: Vec<JoinHandle<()>>,
}

struct Switches {
    /// No datagram passes.
    no_udp: AtomicBool,
    /// Nothing passes, and neither end gets an error.
    silent: AtomicBool,
    over: AtomicBool,
    /// Bits per second towards each side; none is as fast as it goes.
    pace: AtomicU64,
    tap: Mutex<Tap>,
    streams: StreamTaps,
}

impl Relay {
    pub fn start(server: SocketAddr) -> Self {
        Self::with(server, 0, Box::new(|_, datagram| vec![datagram.to_vec()]), untouched())
    }

    /// A path of this rate.
    pub fn paced(server: SocketAddr, bits_per_second: u64) -> Self {
        let tap = Box::new(|_, datagram: &[u8]| vec![datagram.to_vec()]);
        Self::with(server, bits_per_second, tap, untouched())
    }

    /// A path that does this to datagrams.
    pub fn tapped(server: SocketAddr, tap: Tap) -> Self {
        Self::with(server, 0, tap, untouched())
    }

    /// A path that does these to datagrams and to TCP connections.
    pub fn altering(server: SocketAddr, tap: Tap, streams: StreamTaps) -> Self {
        Self::with(server, 0, tap, streams)
    }

    fn with(server: SocketAddr, pace: u64, tap: Tap, streams: StreamTaps) -> Self {
        // The port is the server's, for the server tells clients that of its datagrams.
        let (listener, datagrams) = (2..=250)
            .find_map(|last| {
                let at = (IpAddr::V4(Ipv4Addr::new(127, 77, 0, last)), server.port());
                Some((TcpListener::bind(at).ok()?, UdpSocket::bind(at).ok()?))
            })
            .unwrap();
        let address = listener.local_addr().unwrap();
        let switches = Arc::new(Switches {
            no_udp: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            over: AtomicBool::new(false),
            pace: AtomicU64::new(pace),
            tap: Mutex::new(tap),
            streams,
        });
        let (tcp, udp) = (switches.clone(), switches.clone());
        let thread = vec![
            thread::spawn(move || pass_connections(&listener, server, &tcp)),
            thread::spawn(move || pass_datagrams(datagrams, server, &udp)),
        ];
        Self { address, switches, thread }
    }

    /// From now on datagrams are swallowed.
    pub fn block_udp(&self) {
        self.switches.no_udp.store(true, Ordering::Relaxed);
    }

    /// From now on datagrams are passed on again.
    pub fn pass_udp(&self) {
        self.switches.no_udp.store(false, Ordering::Relaxed);
    }

    /// From now on the path is as fast as it goes.
    pub fn hurry(&self) {
        self.switches.pace.store(0, Ordering::Relaxed);
    }

    /// From now on everything is swallowed, as when a cable is cut.
    pub fn cut(&self) {
        self.switches.silent.store(true, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.switches.over.store(true, Ordering::Relaxed);
        for thread in self.thread.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Switches {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    fn pass_datagram(&self, way: Way, datagram: &[u8], to: &UdpSocket, at: SocketAddr) {
        if self.is_silent() || self.no_udp.load(Ordering::Relaxed) {
            return;
        }
        let passed = (self.tap.lock().unwrap())(way, datagram);
        for datagram in passed {
            self.take_time(datagram.len());
            // A receiver that is gone is what some tests are about.
            let _ = to.send_to(&datagram, at);
        }
    }

    fn take_time(&self, len: usize) {
        if let Some(time) =
            (len as u64 * 8_000_000_000).checked_div(self.pace.load(Ordering::Relaxed))
        {
            thread::sleep(Duration::from_nanos(time));
        }
    }
}

fn pass_connections(listener: &TcpListener, server: SocketAddr, switches: &Arc<Switches>) {
    listener.set_nonblocking(true).unwrap();
    let mut threads = Vec::new();
    let mut count = 0;
    while !switches.is_over() {
        match listener.accept() {
            Ok((client, _)) => {
                client.set_nonblocking(false).unwrap();
                let Ok(server) = TcpStream::connect(server) else { continue };
                for (way, from, to) in
                    [(Way::ToServer, &client, &server), (Way::ToClient, &server, &client)]
                {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let switches = switches.clone();
                    let tap = (switches.streams)(count, way);
                    threads.push(thread::spawn(move || pass_bytes(from, to, tap, &switches)));
                }
                count += 1;
            }
            Err(_) => thread::sleep(TICK),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn pass_bytes(mut from: TcpStream, mut to: TcpStream, mut tap: StreamTap, switches: &Switches) {
    from.set_read_timeout(Some(TICK)).unwrap();
    let mut bytes = vec![0; 16 << 10];
    while !switches.is_over() {
        if switches.is_silent() {
            thread::sleep(TICK);
            continue;
        }
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(_) if switches.is_silent() => {}
            Ok(len) => {
                switches.take_time(len);
                let Some(passed) = tap(&bytes[..len]) else { break };
                if to.write_all(&passed).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    while switches.is_silent() && !switches.is_over() {
        thread::sleep(TICK);
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

fn pass_datagrams(outside: UdpSocket, server: SocketAddr, switches: &Arc<Switches>) {
    outside.set_read_timeout(Some(TICK)).unwrap();
    let outside = Arc::new(outside);
    let mut clients: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
    let mut threads = Vec::new();
    let mut bytes = vec![0; 65_536];
    while !switches.is_over() {
        let Ok((len, client)) = outside.recv_from(&mut bytes) else { continue };
        let inside = clients.entry(client).or_insert_with(|| {
            let inside = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            inside.set_read_timeout(Some(TICK)).unwrap();
            let inside = Arc::new(inside);
            let (from, to, switches) = (inside.clone(), outside.clone(), switches.clone());
            threads.push(thread::spawn(move || {
                let mut bytes = vec![0; 65_536];
                while !switches.is_over() {
                    let Ok(len) = from.recv(&mut bytes) else { continue };
                    switches.pass_datagram(Way::ToClient, &bytes[..len], &to, client);
                }
            }));
            inside
        });
        switches.pass_datagram(Way::ToServer, &bytes[..len], inside, server);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// All TCP connections pass as they are.
fn untouched() -> StreamTaps {
    Box::new(|_, _| Box::new(|bytes| Some(bytes.to_vec())))
}

const TICK: Duration = Duration::from_millis(20);
