//! The server's side: from a TCP connection that anybody may have opened to a proven client.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::time::Duration;

use longhaul_relay::proxy;
use longhaul_session::{
    HandshakeError, Keyring, ServerConfig, ServerHandshake, ServerProgress, Session, VerifiedClient,
};
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::wait::Interest;
use longhaul_wire::{CloseCode, DecodeError, JOIN_LEN, Join};
use rustls::Connection;

use super::live::Control;
use super::tls::{self, Purpose, ServerTls};
use super::tls_stream::{TlsStream, TlsStreamError, Until, is_transient};

/// Lets in who holds a token. Shared by reference among threads.
///
/// It keeps nothing between connections; the memory of one that is being accepted is bounded by
/// the longest HELLO and the buffers of TLS, whatever the peer sends. The server limits how many
/// are accepted at a time.
#[derive(Debug)]
pub struct Acceptor {
    tls: ServerTls,
    config: ServerConfig,
    stop: Stop,
}

impl Acceptor {
    /// Accepts holders of tokens, under a certificate made now.
    ///
    /// # Errors
    /// The certificate could not be made.
    pub fn new(config: ServerConfig, stop: Stop) -> io::Result<Self> {
        Ok(Self { tls: ServerTls::new()?, config, stop })
    }

    /// The client for whom a proxy opened `stream`, by its PROXY header; for itself where it says so.
    ///
    /// # Errors
    /// It sends none.
    pub fn behind_proxy(&self, stream: &TcpStream) -> Result<Option<SocketAddr>, AcceptError> {
        let until = Until { deadline: clock::now() + self.config.timeout, stop: &self.stop };
        stream.set_nonblocking(true)?;
        let mut header = Vec::new();
        loop {
            // One by one, so that nothing behind it is taken.
            let mut byte = [0];
            read_bare(stream, &mut byte, until)?;
            header.push(byte[0]);
            let read = proxy::decode(&header).map_err(|error| {
                AcceptError::NotLonghaul(format!(
                    "it sends no PROXY header, as a trusted proxy has to: {error}"
                ))
            })?;
            if let Some(header) = read {
                return Ok(header.client);
            }
        }
    }

    /// Finds out who of the `keyring` opened `stream` from the address `from`, and tells `reached` how far that is. Blocks for at most the
    /// configured timeout (and a second for a farewell), or until a stop is asked for.
    ///
    /// # Errors
    /// Nobody to be let in; the connection is closed, and a Longhaul client knows why.
    pub fn accept(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        keyring: &Keyring,
        reached: impl Fn(Stage),
    ) -> Result<Accepted, AcceptError> {
        let until = Until { deadline: clock::now() + self.config.timeout, stop: &self.stop };
        stream.set_nonblocking(true)?;
        let first = first_byte(&stream, until)?;
        if first == proxy::SIGNATURE[0] {
            let why = "it sends a PROXY header, and its address is not among --trust-proxy";
            return Err(AcceptError::NotLonghaul(why.into()));
        }
        if first == Join::FIRST_BYTE {
            stream.set_nodelay(true)?;
            let join = Join::parse(&read_join(|into| read_bare(&stream, into, until))?)?;
            let joining = PendingJoin { join, from, tls: None, stream };
            return Ok(Accepted::Data(Box::new(joining)));
        }
        let tls = self.tls.connection().map_err(TlsStreamError::from)?;
        let mut pipe = TlsStream::new(tls, stream)?;
        pipe.handshake_telling(until, || reached(Stage::Greeted))?;
        reached(Stage::Secured);
        match Purpose::of(&pipe.tls) {
            Some(Purpose::Control) => self.shake_hands(pipe, from, keyring, until),
            Some(Purpose::Data) => {
                let join = Join::parse(&read_join(|into| pipe.read(into, until))?)?;
                let TlsStream { tls, stream } = pipe;
                let joining = PendingJoin { join, from, tls: Some(tls), stream };
                Ok(Accepted::Data(Box::new(joining)))
            }
            None => {
                pipe.finish(&[]);
                Err(AcceptError::NotLonghaul("it named no protocol (ALPN)".into()))
            }
        }
    }

    fn shake_hands(
        &self,
        mut pipe: TlsStream,
        from: SocketAddr,
        keyring: &Keyring,
        until: Until<'_>,
    ) -> Result<Accepted, AcceptError> {
        let secret = tls::session_secret(&pipe.tls).map_err(TlsStreamError::from)?;
        let mut handshake = ServerHandshake::new(self.config.clone(), secret, clock::now());
        let mut chunk = [0; 4096];
        let error = loop {
            let len = match pipe.read(&mut chunk, until) {
                Ok(len) => len,
                Err(TlsStreamError::TimedOut) => break HandshakeError::TimedOut,
                Err(error) => return Err(error.into()),
            };
            match handshake.handle(&chunk[..len], keyring) {
                Ok(ServerProgress::NeedMore(more)) => handshake = more,
                Ok(ServerProgress::Verified(client)) => {
                    let pending = PendingClient { client: *client, from, pipe };
                    return Ok(Accepted::Client(Box::new(pending)));
                }
                Err(error) => break error,
            }
        };
        pipe.finish(&error.close_message());
        Err(error.into())
    }
}

/// Stage of a connection whose client is not known yet. Each stage takes more of its
/// peer than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It is open.
    Silent,
    /// A whole ClientHello has come: somebody begins to shake hands.
    Greeted,
    /// A whole Finished has come: they have shaken hands, so the address is its own.
    Secured,
}

/// Client or carrier that opened a connection.
#[derive(Debug)]
pub enum Accepted {
    /// A client that holds a token.
    Client(Box<PendingClient>),
    /// A connection of the TCP carrier, with a proof yet to be verified by its session.
    Data(Box<PendingJoin>),
}

/// A client that is proven and waits to be served or turned away.
#[derive(Debug)]
pub struct PendingClient {
    client: VerifiedClient,
    from: SocketAddr,
    pipe: TlsStream,
}

impl PendingClient {
    /// Wishes of the client, and the token that it holds.
    pub const fn client(&self) -> &VerifiedClient {
        &self.client
    }

    /// Its address.
    pub const fn address(&self) -> SocketAddr {
        self.from
    }

    /// Serves it as connection number `connection`. Without a sign of it for `idle_timeout` the
    /// connection ends.
    ///
    /// # Errors
    /// This host has no thread or descriptor left; the connection is dropped.
    pub fn welcome(
        self,
        connection: NonZeroU32,
        idle_timeout: Duration,
    ) -> io::Result<(Session, Control)> {
        let (mut session, welcome) = self.client.accept(connection);
        let received = std::mem::take(&mut session.rest);
        let control = Control::start(self.pipe, &welcome, received, idle_timeout, false)?;
        Ok((session, control))
    }

    /// Turns it away, and waits up to a second until it knows.
    pub fn refuse(self, code: CloseCode, reason: &str) {
        self.pipe.finish(&self.client.refuse(code, reason));
    }
}

/// A connection that asks to join the carrier of a session.
#[derive(Debug)]
pub struct PendingJoin {
    join: Join,
    from: SocketAddr,
    /// TLS above it, where the session protects data so.
    pub tls: Option<Connection>,
    /// The TCP connection.
    pub stream: TcpStream,
}

impl PendingJoin {
    /// Which session and lane, and the proof for [`Session::verify_join`].
    pub const fn join(&self) -> &Join {
        &self.join
    }

    /// Where it comes from.
    pub const fn address(&self) -> SocketAddr {
        self.from
    }

    /// True inside TLS.
    pub const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }
}

/// Why a connection was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The peer speaks another protocol.
    #[error("not a Longhaul client: {0}")]
    NotLonghaul(String),
    /// A Longhaul client that was not let in.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The peer closed the connection before it had shown who it is.
    #[error("the peer closed the connection before it authenticated")]
    Ended,
    /// The peer did not say in time who it is.
    #[error("the peer did not say in time who it is")]
    TimedOut,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// A stop was asked for.
    #[error("stopped")]
    Stopped,
}

impl AcceptError {
    /// True where the peer went and had not shown who it is.
    pub fn is_parting(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
            _ => false,
        }
    }
}

impl From<TlsStreamError> for AcceptError {
    fn from(error: TlsStreamError) -> Self {
        match error {
            TlsStreamError::Io(error) => Self::Io(error),
            TlsStreamError::Tls(error) => Self::NotLonghaul(error.to_string()),
            TlsStreamError::Ended => Self::Ended,
            TlsStreamError::TimedOut => Self::TimedOut,
            TlsStreamError::Stopped => Self::Stopped,
        }
    }
}

impl From<DecodeError> for AcceptError {
    fn from(error: DecodeError) -> Self {
        Self::NotLonghaul(error.to_string())
    }
}

/// Waits for the first byte and leaves it there.
fn first_byte(stream: &TcpStream, until: Until<'_>) -> Result<u8, TlsStreamError> {
    let mut byte = [0];
    loop {
        until.wait(stream.as_fd(), Interest::Readable)?;
        match stream.peek(&mut byte) {
            Ok(0) => return Err(TlsStreamError::Ended),
            Ok(_) => return Ok(byte[0]),
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn read_bare(
    mut stream: &TcpStream,
    into: &mut [u8],
    until: Until<'_>,
) -> Result<usize, TlsStreamError> {
    loop {
        until.wait(stream.as_fd(), Interest::Readable)?;
        match stream.read(into) {
            Ok(0) => return Err(TlsStreamError::Ended),
            Ok(len) => return Ok(len),
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads a join and nothing behind it.
fn read_join(
    mut read: impl FnMut(&mut [u8]) -> Result<usize, TlsStreamError>,
) -> Result<[u8; JOIN_LEN], TlsStreamError> {
    let mut join = [0; JOIN_LEN];
    let mut len = 0;
    while len < JOIN_LEN {
        len += read(&mut join[len..])?;
    }
    Ok(join)
}
