//! The client's way to a server.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use longhaul_relay::{Host, Place};
use longhaul_session::{
    ClientConfig, ClientHandshake, ClientProgress, HandshakeError, Session, SessionSecret, Token,
};
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
    let connected = remote.connect(config.timeout.min(CONNECT_TIMEOUT), stop)?;
    let server = connected.server;
    let until = Until { deadline: clock::now() + config.timeout, stop };
    let local = connected.stream.local_addr().map_err(ConnectError::System)?.ip();
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
    // Behind gateways the kernel knows the first segment only; TLS has been to the end and back.
    let rtt = if remote.via.is_some() { clock::now().since(begun) } else { kernel_rtt };
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
    let control = Control::start(pipe, &[], received, idle_timeout, remote.via.is_none())
        .map_err(ConnectError::System)?;
    let session = Arc::new(session);
    Ok(Dialed { session, control, server, identity, local, rtt })
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

/// Time for an address to answer at all: three lost SYNs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
