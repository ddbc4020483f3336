//! A server of the suite's own, to which the program comes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_wire::Protect;

use crate::carrier::{Carrier, Tcp, Udp};
use crate::keys::{TOKEN_KEY, join, proof};
use crate::peer::{Peer, control_message, option, options, read_control};
use crate::tls::{Identity, Link};

/// A server; the program's clients come to it.
pub struct Host {
    tcp: TcpListener,
    udp: UdpSocket,
    identity: Identity,
    pub address: SocketAddr,
}

impl Host {
    pub fn new() -> Self {
        let (tcp, udp) = std::iter::repeat_with(|| {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let udp = UdpSocket::bind(tcp.local_addr().unwrap()).ok()?;
            Some((tcp, udp))
        })
        .flatten()
        .next()
        .unwrap();
        let address = tcp.local_addr().unwrap();
        Self { tcp, udp, identity: Identity::new(), address }
    }

    /// The next client that holds the token.
    pub fn accept(&self) -> io::Result<Peer> {
        let mut control = self.accept_tls()?;
        let secret = control.secret();
        let (kind, hello) = read_control(&mut control)?;
        assert_eq!(kind, 1);
        let proven = proof(&TOKEN_KEY, "client", &secret, &[]);
        assert_eq!(option(&hello, 3)?, proven, "the program proves its token");
        let carried = option(&hello, 6)?;
        let tcp = carried == [2];
        let protect = option(&hello, 4)?;
        let port = self.address.port().to_be_bytes();
        let proof = proof(&TOKEN_KEY, "server", &secret, &hello);
        let mut welcome = options(&[
            (1, &[0, 1]),
            (3, &proof),
            (4, &protect),
            (5, &[1]),
            (6, &carried),
            (7, &[0, 1]),
            (8, &CONNECTION.to_be_bytes()),
        ]);
        if !tcp {
            welcome.extend(options(&[(9, &port)]));
        }
        control.write_all(&control_message(2, &welcome))?;
        let protect = Protect::ALL[usize::from(protect[0]) - 1];
        let carrier = if tcp {
            Carrier::Tcp(self.accept_data(&secret, protect)?)
        } else {
            let udp = self.udp.try_clone()?;
            Carrier::Udp(Udp::new(udp, None, &secret, CONNECTION, protect))
        };
        Ok(Peer::new(control, carrier, false))
    }

    /// The connection that takes the place of UDP lanes of `peer`, under TLS.
    pub fn accept_join(&self, peer: &Peer) -> io::Result<Tcp> {
        self.accept_data(&peer.secret(), Protect::Aead)
    }

    fn accept_data(&self, secret: &[u8; 32], protect: Protect) -> io::Result<Tcp> {
        let data = self.accept_tcp()?;
        let mut link = match protect {
            Protect::Clear => Link::Bare(data),
            _ => Link::server(data, &self.identity)?,
        };
        let mut joined = [0; 44];
        link.read_exact(&mut joined)?;
        assert_eq!(joined[..], join(secret, CONNECTION, 0), "the program proves its join");
        Ok(Tcp::new(link, secret, true))
    }

    /// True where nobody connects for so long.
    pub fn is_left_alone(&self, time: Duration) -> bool {
        thread::sleep(time);
        self.tcp.set_nonblocking(true).unwrap();
        self.tcp.accept().is_err()
    }

    /// The next connection, its TLS handshake done.
    pub fn accept_tls(&self) -> io::Result<Link> {
        Link::server(self.accept_tcp()?, &self.identity)
    }

    /// The next connection, of which nothing is known.
    pub fn accept_tcp(&self) -> io::Result<TcpStream> {
        self.tcp.set_nonblocking(true)?;
        let begun = Instant::now();
        loop {
            match self.tcp.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
const CONNECTION: u32 = 0x5eed_0001;
