//! The port at which a server listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use longhaul_sys::descriptors;
use longhaul_sys::reasons::unbound;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_wire::SshTaken;

use crate::error::{Error, ErrorKind, Side};
use crate::options::ServeOptions;

/// Listens for connections and for datagrams at one port. If the system may choose the port
/// (`address` has port 0), it is asked again while it chooses one that is taken for datagrams.
pub(super) fn listen(
    address: SocketAddr,
    udp_options: &UdpOptions,
) -> Result<(TcpListener, UdpSocket), Error> {
    let mut choices = if address.port() == 0 { CHOICES } else { 1 };
    loop {
        choices -= 1;
        let listener = bind(address).map_err(|error| cannot_listen(address, "TCP", &error))?;
        match UdpSocket::bind(address_of(&listener)?, udp_options) {
            Err(error) if choices > 0 && is_taken(&error) => {}
            Err(error) => return Err(cannot_listen(address, "UDP", &error)),
            Ok(udp) => return Ok((listener, udp)),
        }
    }
}

/// Listens at the first of `ports` that is free. Where none is for datagrams, connections come to one of them;
/// where none is free at all, nothing reaches this server but what comes through the ssh that has started it.
pub(super) fn listen_within(
    options: &ServeOptions,
    (first, last): (u16, u16),
    udp_options: &UdpOptions,
) -> Result<(TcpListener, UdpSocket), Error> {
    let mut for_connections = None;
    for port in first..=last {
        let address = SocketAddr::new(options.listen.ip(), port);
        let listener = match bind(address) {
            Err(error) if is_taken(&error) => continue,
            bound => bound.map_err(|error| cannot_listen(address, "TCP", &error))?,
        };
        match UdpSocket::bind(address, udp_options) {
            Err(error) if is_taken(&error) => {
                for_connections.get_or_insert(listener);
            }
            Err(error) => return Err(cannot_listen(address, "UDP", &error)),
            Ok(udp) => return Ok((listener, udp)),
        }
    }
    let (inside, udp) = listen((Ipv4Addr::LOCALHOST, 0).into(), udp_options)?;
    let taken = if for_connections.is_some() { SshTaken::Udp } else { SshTaken::All };
    options.ssh.iter().for_each(|ssh| ssh.note_taken(taken));
    Ok((for_connections.unwrap_or(inside), udp))
}

/// A listener that is there already, and datagrams at its address.
pub(super) fn listen_too(
    listener: &TcpListener,
    udp_options: &UdpOptions,
) -> Result<(TcpListener, UdpSocket), Error> {
    let failed = |error: io::Error| {
        let message = format!("cannot listen at the socket that was passed on: {error}");
        Error::new(ErrorKind::Listen, Side::Here, message)
    };
    let listener = listener.try_clone().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let at = address_of(&listener)?;
    let udp = UdpSocket::bind(at, udp_options).map_err(|error| cannot_listen(at, "UDP", &error))?;
    Ok((listener, udp))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // std lets 128 wait; the SYNs of others would be dropped while strangers make room.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(|error| {
        Error::here(format!("cannot go on serving: {}", descriptors::explained(&error)))
    })
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn cannot_listen(address: SocketAddr, transport: &str, cause: &io::Error) -> Error {
    let message = format!("cannot listen at {address} ({transport}): {}", unbound(cause));
    let error = |message| Error::new(ErrorKind::Listen, Side::Here, message);
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            let message = format!("{message}, perhaps another longhaul serve");
            error(message).hint("choose one with --listen ADDR:PORT")
        }
        io::ErrorKind::AddrNotAvailable => {
            error(message).hint("--listen takes an address of this host")
        }
        _ => error(message),
    }
}

/// As many connections as the kernel lets wait by default.
const BACKLOG: i32 = 4096;
/// Ports that the system may choose before one is free for datagrams too.
const CHOICES: usize = 100;
