use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use longhaul_units::{Duration, Instant, shown};
use longhaul_wire::{
    Carrier, Cipher, CloseCode, ConnectionId, ControlMessage, Hello, MAX_LANES, Protect,
    ReceiveLimits, Welcome,
};

use super::{HandshakeError, TIMEOUT};
use crate::role::Role;
use crate::secret::SessionSecret;
use crate::session::Session;
use crate::token::{KeyId, Keyring, TokenKey};

/// A server's offer. The default offers everything but UDP, for which it needs a port.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Protections of object payload that it takes.
    pub protects: Vec<Protect>,
    /// Ciphers that it has; the client's preference decides.
    pub ciphers: Vec<Cipher>,
    /// Port of the UDP carrier, not zero; `None` when there is none.
    pub udp_port: Option<u16>,
    /// True if the TCP carrier is offered.
    pub tcp: bool,
    /// Most lanes of a connection, at least 1.
    pub max_lanes: u16,
    /// Name and version, for the client's log.
    pub implementation: Option<String>,
    /// Rates and buffers that this host can take in at the start.
    pub receive_limits: Option<ReceiveLimits>,
    /// Time after which the handshake is given up.
    pub timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            protects: Protect::ALL.to_vec(),
            ciphers: Cipher::ALL.to_vec(),
            udp_port: None,
            tcp: true,
            max_lanes: MAX_LANES,
            implementation: None,
            receive_limits: None,
            timeout: TIMEOUT,
        }
    }
}

/// The server's side of a handshake: HELLO is awaited.
#[derive(Debug)]
pub struct ServerHandshake {
    config: ServerConfig,
    secret: SessionSecret,
    received: Vec<u8>,
    deadline: Instant,
}

/// Stage of a [`ServerHandshake`].
#[derive(Debug)]
pub enum ServerProgress {
    /// More bytes are needed.
    NeedMore(ServerHandshake),
    /// The client is proven and can be served: accept or refuse it.
    Verified(Box<VerifiedClient>),
}

impl ServerHandshake {
    /// Begins a handshake on the connection with this secret.
    pub fn new(config: ServerConfig, secret: SessionSecret, now: Instant) -> Self {
        let deadline = now + config.timeout;
        Self { config, secret, received: Vec::new(), deadline }
    }

    /// Takes in the next bytes from the client, who has to hold a token of `keyring`.
    ///
    /// # Errors
    /// The handshake failed; send [`HandshakeError::close_message`] and end the connection.
    pub fn handle(
        mut self,
        bytes: &[u8],
        keyring: &Keyring,
    ) -> Result<ServerProgress, HandshakeError> {
        self.received.extend_from_slice(bytes);
        let Some((message, len)) = ControlMessage::parse(&self.received)? else {
            return Ok(ServerProgress::NeedMore(self));
        };
        let body = match message {
            ControlMessage::Hello(body) => body,
            ControlMessage::Close { code, reason } => {
                return Err(HandshakeError::Closed { code, reason: shown(reason) });
            }
            ControlMessage::Welcome(_) => {
                return Err(HandshakeError::Unexpected { message: "WELCOME" });
            }
            ControlMessage::Ping(_) => return Err(HandshakeError::Unexpected { message: "PING" }),
            ControlMessage::Pong(_) => return Err(HandshakeError::Unexpected { message: "PONG" }),
        };
        let hello = Hello::decode(body)?;
        // Before any other answer to the wishes, so that strangers learn nothing.
        let key = keyring
            .verify_client(KeyId(hello.key_id), &hello.proof, &self.secret)
            .ok_or(HandshakeError::Unauthorized)?
            .clone();
        let hello_body = body.to_vec();
        let cipher = self.choose(&hello)?;
        let rest = self.received.split_off(len);
        let Self { config, secret, .. } = self;
        let client = VerifiedClient { hello, hello_body, cipher, key, config, secret, rest };
        Ok(ServerProgress::Verified(Box::new(client)))
    }

    /// When [`Self::handle_timeout`] has to be called.
    pub const fn next_timeout(&self) -> Instant {
        self.deadline
    }

    /// Gives up when it is time.
    ///
    /// # Errors
    /// [`HandshakeError::TimedOut`].
    pub fn handle_timeout(&self, now: Instant) -> Result<(), HandshakeError> {
        if now >= self.deadline { Err(HandshakeError::TimedOut) } else { Ok(()) }
    }

    /// Checks the wishes; returns the cipher.
    fn choose(&self, hello: &Hello) -> Result<Cipher, HandshakeError> {
        if !self.config.protects.contains(&hello.protect) {
            return Err(HandshakeError::NoCommon { what: "protection" });
        }
        let offered = match hello.carrier {
            Carrier::Udp => self.config.udp_port.is_some(),
            Carrier::Tcp => self.config.tcp,
            Carrier::Either => self.config.udp_port.is_some() && self.config.tcp,
        };
        if !offered {
            return Err(HandshakeError::NoCommon { what: "carrier" });
        }
        let cipher = hello.ciphers.iter().find(|cipher| self.config.ciphers.contains(cipher));
        cipher.copied().ok_or(HandshakeError::NoCommon { what: "cipher" })
    }
}

/// A client that holds a token and whose wishes can be fulfilled.
#[derive(Debug)]
pub struct VerifiedClient {
    hello: Hello,
    hello_body: Vec<u8>,
    cipher: Cipher,
    key: TokenKey,
    config: ServerConfig,
    secret: SessionSecret,
    rest: Vec<u8>,
}

impl VerifiedClient {
    /// The client's wishes.
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Which token it holds.
    pub const fn key_id(&self) -> KeyId {
        self.key.id()
    }

    /// Serves the client as connection number `connection`; also returns the bytes to send.
    pub fn accept(self, connection: NonZeroU32) -> (Session, Vec<u8>) {
        let udp_port = match self.hello.carrier {
            Carrier::Udp | Carrier::Either => self.config.udp_port,
            Carrier::Tcp => None,
        };
        let welcome = Welcome {
            proof: self.key.proof(Role::Server, &self.secret, &self.hello_body),
            protect: self.hello.protect,
            cipher: self.cipher,
            carrier: self.hello.carrier,
            lanes: self.hello.lanes.min(self.config.max_lanes).max(1),
            connection: ConnectionId(connection.get()),
            udp_port,
            implementation: self.config.implementation,
            receive_limits: self.config.receive_limits,
        };
        let mut out = Vec::new();
        // The body of a WELCOME is far below the limit, so this cannot fail.
        let _ = ControlMessage::Welcome(&welcome.encode()).encode(&mut out);
        let session = Session {
            role: Role::Server,
            key_id: self.key.id(),
            connection: welcome.connection,
            protect: welcome.protect,
            cipher: welcome.cipher,
            carrier: welcome.carrier,
            lanes: welcome.lanes,
            udp_port,
            peer_implementation: self.hello.implementation.as_deref().map(shown),
            peer_limits: self.hello.receive_limits,
            profile: self.hello.profile,
            rest: self.rest,
            secret: self.secret,
        };
        (session, out)
    }

    /// Turns the client away, for example because the server is busy or stopping; returns the
    /// bytes to send.
    pub fn refuse(self, code: CloseCode, reason: &str) -> Vec<u8> {
        let mut out = Vec::new();
        // A reason is cut to what fits, so this cannot fail.
        let _ = ControlMessage::Close { code, reason }.encode(&mut out);
        out
    }
}
