//! The client's way to a server.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use longhaul_relay::{Host, Place};
use longhaul_session::{
    ClientConfig, ClientHandshake, ClientProgress, HandshakeError, Session, SessionSecret, Token,
};
use longhaul_sys::route;
use longhaul_sys::stop::Stop;
use longhaul_sys::tcp::{SEGMENT_LEAST, TcpOptions};
use longhaul_sys::{clock, tcp};
use longhaul_wire::{CloseCode, DecodeError};
use socket2::Socket;

use super::error::ConnectError;
use super::live::Control;
use super::resolve::{Connected, connect_with, resolve};
use super::tls::{self, Purpose, ServerIdentity};
use super::tls_stream::{TlsStream, TlsStreamError, Until};
use super::tunnel::Tunnel;
use super::via::Via;

/// A server that has proven that it holds the token, and let us in.
#[derive(Debug)]
pub struct Dialed {
    /// The session that was agreed.
    pub session: Arc<Session>,
    /// The connection, kept alive.
    pub control: Control,
    /// The address that answered, with the TCP port.
    pub server: SocketAddr,
    /// Identity that the server's connections of the TCP carrier have to show.
    pub identity: ServerIdentity,
    /// Our address towards it.
    pub local: IpAddr,
    /// Round-trip time of the TCP handshake.
    pub rtt: Duration,
    /// No TCP connection came through to the server, and this one goes in here. The address of the server is
    /// one that may be, or none.
    pub tunnel: Option<Arc<Tunnel>>,
}

/// A server, and how it is reached.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    /// Its name or address.
    pub host: &'a str,
    /// More of them: the first that answers is taken.
    pub others: &'a [String],
    /// Its TCP port.
    pub port: u16,
    /// Gateways on the path to it, which then resolve its name.
    pub via: Option<&'a Via>,
    /// Where it can be reached besides.
    pub tunnel: Option<&'a Arc<Tunnel>>,
    /// Nowhere else.
    pub only_tunnel: bool,
}

impl Remote<'_> {
    fn connect(&self, timeout: Duration, stop: &Stop) -> Result<Connected, ConnectError> {
        let Some(via) = self.via else {
            // What it carries is small, and is to pass wherever anything passes.
            let mut small = TcpOptions::default();
            small.segment_max = Some(SEGMENT_LEAST);
            let prepare = |socket: &Socket| small.apply(socket);
            let addresses = self.addresses(stop)?;
            return connect_with(&addresses, timeout, stop, &prepare);
        };
        let host = Host::parse(self.host).ok_or_else(|| ConnectError::Unresolvable {
            host: self.host.to_owned(),
            source: io::Error::other("it is no name of a host"),
        })?;
        via.connect(&Place { host, port: self.port }, timeout, stop)
    }

    /// Those of the host, then those of the others that are known.
    fn addresses(&self, stop: &Stop) -> Result<Vec<SocketAddr>, ConnectError> {
        let first = resolve(self.host, self.port, stop);
        let others = self.others.iter().map(|host| resolve(host, self.port, stop));
        let mut all: Vec<SocketAddr> = Vec::new();
        let mut unknown = None;
        for found in std::iter::once(first).chain(others) {
            match found {
                Ok(found) => all.extend(found),
                Err(ConnectError::Stopped) => return Err(ConnectError::Stopped),
                Err(error) => unknown = unknown.or(Some(error)),
            }
        }
        let mut seen = BTreeSet::new();
        all.retain(|address| seen.insert(*address));
        match unknown {
            Some(error) if all.is_empty() => Err(error),
            _ => Ok(all),
        }
    }
}

/// Connects to the server `remote` and proves both ends to each other. Blocks until that is done,
/// has failed, or `stop` is asked for; no step is waited for longer than `config.timeout`.
/// Without a sign of the peer for `idle_timeout` the connection ends.
///
/// # Errors
/// Each says for people what failed and where.
pub fn dial(
    remote: &Remote<'_>,
    token: &Token,
    config: &ClientConfig,
    idle_timeout: Duration,
    stop: &Stop,
) -> Result<Dialed, ConnectError> {
    let timeout = config.timeout.min(CONNECT_TIMEOUT);
    let Some(tunnel) = remote.tunnel.filter(|_| remote.via.is_none()) else {
        let connected = remote.connect(timeout, stop)?;
        return prove((connected, remote.via.is_some(), None), token, config, idle_timeout, stop);
    };
    let soon = ClientConfig { timeout: config.timeout.min(HANDSHAKE), ..config.clone() };
    let direct = || {
        let connected = remote.connect(timeout.min(HEAD_START), stop)?;
        prove((connected, false, None), token, &soon, idle_timeout, stop)
    };
    let error = match (!remote.only_tunnel).then(direct) {
        Some(Err(error)) if may_be_elsewhere(&error) => Some(error),
        Some(result) => return result,
        None => None,
    };
    let begun = clock::now();
    let server = remote.addresses(stop).ok().and_then(|all| all.first().copied());
    let server = server.unwrap_or((Ipv4Addr::UNSPECIFIED, remote.port).into());
    let stream = match (tunnel.connect(), error) {
        (Ok(stream), _) => stream,
        (Err(_), Some(error)) => return Err(error),
        (Err(error), None) => {
            return Err(ConnectError::Lost { server, reason: error.to_string() });
        }
    };
    let connected = Connected { stream, server, rtt: clock::now() - begun };
    prove((connected, false, Some(tunnel.clone())), token, config, idle_timeout, stop)
}

/// Nobody answered there, or not the server that was meant: a host of that name and another network may, or
/// a box on the path that accepts every connection.
const fn may_be_elsewhere(error: &ConnectError) -> bool {
    !matches!(
        error,
        ConnectError::Version { .. }
            | ConnectError::Refused { .. }
            | ConnectError::Handshake { .. }
            | ConnectError::System(_)
            | ConnectError::Stopped
    )
}

/// Proves both ends of a connection to each other, which leads there through gateways or a tunnel or neither.
fn prove(
    (connected, through_gateways, tunnel): (Connected, bool, Option<Arc<Tunnel>>),
    token: &Token,
    config: &ClientConfig,
    idle_timeout: Duration,
    stop: &Stop,
) -> Result<Dialed, ConnectError> {
    let server = connected.server;
    let until = Until { deadline: clock::now() + config.timeout, stop };
    let local = match &tunnel {
        None => connected.stream.local_addr().map_err(ConnectError::System)?.ip(),
        // Where no route leads there the address is that of no host.
        Some(_) => route::source_towards(server).unwrap_or(route::unspecified(server.ip())),
    };
    let fewer = ClientConfig { lanes: config.lanes.min(TUNNEL_LANES), ..config.clone() };
    let config = if tunnel.is_some() { &fewer } else { config };
    let is_end_to_end = !through_gateways && tunnel.is_none();
    // The kernel's sample of the TCP handshake has no scheduling in it.
    let kernel_rtt = match tcp::info(&connected.stream) {
        Ok(info) if info.rtt > Duration::ZERO => info.rtt,
        _ => connected.rtt,
    };

    let tls = tls::client(server.ip(), Purpose::Control, None)
        .map_err(|error| ConnectError::System(io::Error::other(error)))?;
    let mut pipe = TlsStream::new(tls, connected.stream).map_err(ConnectError::System)?;
    let begun = clock::now();
    let secret = establish(&mut pipe, until).map_err(|error| match error {
        TlsStreamError::Stopped => ConnectError::Stopped,
        TlsStreamError::Io(error) => ConnectError::Lost { server, reason: error.to_string() },
        TlsStreamError::TimedOut => ConnectError::TimedOut { server },
        TlsStreamError::Ended => ConnectError::HungUp { server },
        error => ConnectError::NotLonghaul { server, reason: error.to_string() },
    })?;
    // Elsewhere the kernel knows the first segment only; TLS has been to the end and back.
    let rtt = if is_end_to_end { kernel_rtt } else { clock::now().since(begun) };
    let identity = ServerIdentity::of(&pipe.tls).ok_or_else(|| {
        let reason = "it shows no certificate".into();
        ConnectError::NotLonghaul { server, reason }
    })?;
    let mut session = match shake_hands(&mut pipe, token, config, secret, until) {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => {
            pipe.finish(&error.close_message());
            return Err(judge(server, error));
        }
        Err(TlsStreamError::Stopped) => return Err(ConnectError::Stopped),
        Err(TlsStreamError::TimedOut) => return Err(ConnectError::TimedOut { server }),
        Err(error) => return Err(ConnectError::Lost { server, reason: error.to_string() }),
    };
    let received = std::mem::take(&mut session.rest);
    let control = Control::start(pipe, &[], received, idle_timeout, is_end_to_end)
        .map_err(ConnectError::System)?;
    let session = Arc::new(session);
    Ok(Dialed { session, control, server, identity, local, rtt, tunnel })
}

/// Establishes TLS for the control connection.
fn establish(pipe: &mut TlsStream, until: Until<'_>) -> Result<SessionSecret, TlsStreamError> {
    pipe.handshake(until)?;
    if Purpose::of(&pipe.tls) != Some(Purpose::Control) {
        return Err(rustls::Error::NoApplicationProtocol.into());
    }
    Ok(tls::session_secret(&pipe.tls)?)
}

/// The Longhaul handshake. The outer error is of the connection, the inner of its ends.
pub(super) fn shake_hands(
    pipe: &mut TlsStream,
    token: &Token,
    config: &ClientConfig,
    secret: SessionSecret,
    until: Until<'_>,
) -> Result<Result<Session, HandshakeError>, TlsStreamError> {
    let (mut handshake, hello) = ClientHandshake::new(config, &token.key(), secret, clock::now());
    pipe.write_all(&hello, until)?;
    let mut chunk = [0; 4096];
    loop {
        let len = pipe.read(&mut chunk, until)?;
        match handshake.handle(&chunk[..len]) {
            Ok(ClientProgress::NeedMore(more)) => handshake = more,
            Ok(ClientProgress::Done(session)) => return Ok(Ok(session)),
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Meaning of a failed handshake for the client.
fn judge(server: SocketAddr, error: HandshakeError) -> ConnectError {
    match error {
        HandshakeError::Unauthorized => ConnectError::Impostor { server },
        HandshakeError::Incompatible(DecodeError::UnsupportedVersion) => {
            ConnectError::Version { server }
        }
        HandshakeError::Closed { code, reason } => match code {
            CloseCode::UNAUTHORIZED => ConnectError::Unauthorized { server },
            CloseCode::UNSUPPORTED_VERSION => ConnectError::Version { server },
            _ => ConnectError::Refused { server, code, reason },
        },
        error => ConnectError::Handshake { server, error },
    }
}

/// Lanes of a connection through a tunnel, by [10-8] of the protocol.
const TUNNEL_LANES: u16 = 4;
/// Time for a connection by the network where there is another way: a lost SYN is one too many. And for what
/// follows on it.
const HANDSHAKE: Duration = Duration::from_secs(3);
const HEAD_START: Duration = Duration::from_secs(1);
/// Time for an address to answer at all: three lost SYNs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
