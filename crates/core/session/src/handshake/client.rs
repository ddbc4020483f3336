use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use longhaul_units::{Duration, Instant, Rate, shown};
use longhaul_wire::{
    Carrier, Cipher, ControlMessage, Hello, PROTOCOL_VERSION, Protect, ReceiveLimits, Welcome,
};

use super::{HandshakeError, TIMEOUT};
use crate::role::Role;
use crate::secret::SessionSecret;
use crate::session::Session;
use crate::token::TokenKey;

/// A client's wishes. The default wishes one UDP lane, encrypted.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Protection of object payload.
    pub protect: Protect,
    /// Ciphers in order of preference; must not be empty.
    pub ciphers: Vec<Cipher>,
    /// The carrier of streams and objects.
    pub carrier: Carrier,
    /// Number of lanes wished, 1 to [`longhaul_wire::MAX_LANES`].
    pub lanes: u16,
    /// Name and version, for the server's log.
    pub implementation: Option<String>,
    /// Rates and buffers that this host can take in at the start.
    pub receive_limits: Option<ReceiveLimits>,
    /// Profile, for the server's sending and its log.
    pub profile: Option<String>,
    /// Most that the server may send, at the IP layer; not zero.
    pub rate: Option<Rate>,
    /// Parameters of the profile, see [`longhaul_wire::Hello::parameters`].
    pub parameters: Option<String>,
    /// Time after which the handshake is given up.
    pub timeout: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            protect: Protect::Aead,
            ciphers: Cipher::ALL.to_vec(),
            carrier: Carrier::Udp,
            lanes: 1,
            implementation: None,
            receive_limits: None,
            profile: None,
            rate: None,
            parameters: None,
            timeout: TIMEOUT,
        }
    }
}

/// The client's side of a handshake: HELLO is sent, WELCOME awaited.
#[derive(Debug)]
pub struct ClientHandshake {
    hello: Hello,
    hello_body: Vec<u8>,
    key: TokenKey,
    secret: SessionSecret,
    received: Vec<u8>,
    deadline: Instant,
}

/// Stage of a [`ClientHandshake`].
#[derive(Debug)]
pub enum ClientProgress {
    /// More bytes are needed.
    NeedMore(ClientHandshake),
    /// The server is proven and has chosen.
    Done(Session),
}

impl ClientHandshake {
    /// Begins a handshake on the connection with this secret; also returns the bytes to send.
    pub fn new(
        config: &ClientConfig,
        key: &TokenKey,
        secret: SessionSecret,
        now: Instant,
    ) -> (Self, Vec<u8>) {
        let hello = Hello {
            versions: vec![PROTOCOL_VERSION],
            key_id: key.id().0,
            proof: key.proof(Role::Client, &secret, &[]),
            protect: config.protect,
            ciphers: config.ciphers.clone(),
            carrier: config.carrier,
            lanes: config.lanes,
            implementation: config.implementation.clone(),
            receive_limits: config.receive_limits,
            profile: config.profile.clone(),
            rate: config.rate,
            parameters: config.parameters.clone(),
        };
        let hello_body = hello.encode();
        let mut out = Vec::new();
        // The body of a HELLO is far below the limit, so this cannot fail.
        let _ = ControlMessage::Hello(&hello_body).encode(&mut out);
        let handshake = Self {
            hello,
            hello_body,
            key: key.clone(),
            secret,
            received: Vec::new(),
            deadline: now + config.timeout,
        };
        (handshake, out)
    }

    /// Takes in the next bytes from the server.
    ///
    /// # Errors
    /// The handshake failed; send [`HandshakeError::close_message`] and end the connection.
    pub fn handle(mut self, bytes: &[u8]) -> Result<ClientProgress, HandshakeError> {
        self.received.extend_from_slice(bytes);
        let Some((message, len)) = ControlMessage::parse(&self.received)? else {
            return Ok(ClientProgress::NeedMore(self));
        };
        let welcome = match message {
            ControlMessage::Welcome(body) => Welcome::decode(body)?,
            ControlMessage::Close { code, reason } => {
                return Err(HandshakeError::Closed { code, reason: shown(reason) });
            }
            ControlMessage::Hello(_) => {
                return Err(HandshakeError::Unexpected { message: "HELLO" });
            }
            ControlMessage::Ping(_) => return Err(HandshakeError::Unexpected { message: "PING" }),
            ControlMessage::Pong(_) => return Err(HandshakeError::Unexpected { message: "PONG" }),
        };
        if !self.key.verify(&welcome.proof, Role::Server, &self.secret, &self.hello_body) {
            return Err(HandshakeError::Unauthorized);
        }
        self.check_choices(&welcome)?;
        Ok(ClientProgress::Done(Session {
            role: Role::Client,
            key_id: self.key.id(),
            connection: welcome.connection,
            protect: welcome.protect,
            cipher: welcome.cipher,
            carrier: welcome.carrier,
            lanes: welcome.lanes,
            udp_port: welcome.udp_port,
            peer_implementation: welcome.implementation.as_deref().map(shown),
            peer_limits: welcome.receive_limits,
            profile: None,
            rest: self.received.split_off(len),
            secret: self.secret,
        }))
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

    fn check_choices(&self, welcome: &Welcome) -> Result<(), HandshakeError> {
        let what = if welcome.protect != self.hello.protect {
            "protection"
        } else if !self.hello.ciphers.contains(&welcome.cipher) {
            "cipher"
        } else if welcome.carrier != self.hello.carrier {
            "carrier"
        } else if welcome.lanes > self.hello.lanes {
            "number of lanes"
        } else {
            return Ok(());
        };
        Err(HandshakeError::NotOffered { what })
    }
}
