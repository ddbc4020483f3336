//! The messages of the control connection (docs/protocol.md sections 2.2 and 2.4).

mod options;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use longhaul_units::{Bytes, LaneId, Rate};

use crate::close::{CloseCode, MAX_REASON, cut_reason};
use crate::error::{DecodeError, Full};
use crate::header::ConnectionId;
use crate::options::{By, Options, put};
use crate::reader::Reader;
use crate::writer::Writer;

/// The version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION: u16 = 1;
/// Longest body of HELLO and WELCOME, in bytes.
pub const MAX_HANDSHAKE_BODY: usize = 16_384;
/// Most lanes of a connection.
pub const MAX_LANES: u16 = 64;
/// The lane on which hosts say what they take, behind all others (docs/protocol.md 4.7).
pub const MONITOR_LANE: LaneId = LaneId(MAX_LANES);
/// Bytes in front of the body of a control message.
pub const CONTROL_HEADER_LEN: usize = 4;

/// A message of the control connection. HELLO and WELCOME stand as their bodies, because the
/// server's proof covers the body of HELLO as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlMessage<'a> {
    /// The client's wishes: a body that [`Hello::decode`] reads.
    Hello(&'a [u8]),
    /// The server's choices: a body that [`Welcome::decode`] reads.
    Welcome(&'a [u8]),
    /// The connection ends.
    Close {
        /// Why, for programs.
        code: CloseCode,
        /// Why, for people. Written up to [`MAX_REASON`].
        reason: &'a str,
    },
    /// To be answered by PONG.
    Ping([u8; 8]),
    /// The bytes of a PING.
    Pong([u8; 8]),
}

impl<'a> ControlMessage<'a> {
    /// Reads the message at the start of `bytes`, and how many of them it takes; `None` when more
    /// are needed.
    ///
    /// # Errors
    /// Not a message of this protocol. Unknown types and excessive lengths are errors as soon as
    /// they can be seen.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some(&kind) = bytes.first() else {
            return Ok(None);
        };
        let (what, least, most) = match kind {
            HELLO => ("HELLO", 0, MAX_HANDSHAKE_BODY),
            WELCOME => ("WELCOME", 0, MAX_HANDSHAKE_BODY),
            CLOSE => ("CLOSE", 2, 2 + MAX_REASON),
            PING => ("PING", 8, 8),
            PONG => ("PONG", 8, 8),
            _ => return Err(DecodeError::Invalid { what: "type of a control message" }),
        };
        let Some(&[_, a, b, c]) = bytes.first_chunk::<CONTROL_HEADER_LEN>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        if len < least || len > most {
            return Err(DecodeError::Invalid { what });
        }
        let end = CONTROL_HEADER_LEN + len;
        let Some(body) = bytes.get(CONTROL_HEADER_LEN..end) else {
            return Ok(None);
        };
        let mut r = Reader::new(body, what);
        let message = match kind {
            HELLO => Self::Hello(r.rest()),
            WELCOME => Self::Welcome(r.rest()),
            CLOSE => Self::Close { code: CloseCode(r.u16()?), reason: r.text(MAX_REASON)? },
            PING => Self::Ping(r.array()?),
            _ => Self::Pong(r.array()?),
        };
        r.finish()?;
        Ok(Some((message, end)))
    }

    /// Appends the message to `out`.
    ///
    /// # Errors
    /// A body is longer than [`MAX_HANDSHAKE_BODY`]; nothing is written.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        let close;
        let (kind, body): (u8, &[u8]) = match self {
            Self::Hello(body) => (HELLO, body),
            Self::Welcome(body) => (WELCOME, body),
            Self::Close { code, reason } => {
                close = [&code.0.to_be_bytes(), cut_reason(reason).as_bytes()].concat();
                (CLOSE, &close)
            }
            Self::Ping(bytes) => (PING, bytes),
            Self::Pong(bytes) => (PONG, bytes),
        };
        if body.len() > MAX_HANDSHAKE_BODY {
            return Err(Full);
        }
        let mut w = Writer::append(out);
        w.u8(kind)?;
        w.u24(body.len() as u32)?;
        w.bytes(body)
    }
}

macro_rules! choices {
    ($(
        $(#[$doc:meta])* $choice:ident, $what:literal {
            $($(#[$value_doc:meta])* $code:literal $value:ident $name:literal)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $choice {
                $($(#[$value_doc])* $value = $code,)*
            }

            impl $choice {
                /// Every choice.
                pub const ALL: &'static [Self] = &[$(Self::$value),*];

                /// The name, for people and for options of the command line.
                pub const fn name(self) -> &'static str {
                    match self {
                        $(Self::$value => $name,)*
                    }
                }

                const fn from_code(code: u8) -> Option<Self> {
                    match code {
                        $($code => Some(Self::$value),)*
                        _ => None,
                    }
                }

                /// The one choice in the value of an option.
                fn decode(value: [u8; 1]) -> Result<Self, DecodeError> {
                    Self::from_code(value[0]).ok_or(DecodeError::Unsupported { what: $what })
                }
            }

            impl fmt::Display for $choice {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.pad(self.name())
                }
            }
        )*
    };
}

choices! {
    /// Protection of the payload of objects (docs/protocol.md section 4.3).
    Protect, "protection" {
        /// Encrypted and authenticated.
        1 Aead "aead"
        /// Authenticated.
        2 Integrity "integrity"
        /// Neither; the hashes of objects still hold end to end.
        3 Clear "clear"
    }

    /// Cipher that seals packets.
    Cipher, "cipher" {
        /// AES-128-GCM.
        1 Aes128Gcm "aes-128-gcm"
        /// ChaCha20-Poly1305.
        2 ChaCha20Poly1305 "chacha20-poly1305"
    }

    /// Carrier of streams and objects.
    Carrier, "carrier" {
        /// UDP lanes (docs/protocol.md section 4).
        1 Udp "udp"
        /// TCP connections (docs/protocol.md section 8).
        2 Tcp "tcp"
        /// UDP lanes, and TCP connections in their place where UDP does not pass.
        3 Either "udp or tcp"
    }
}

impl Cipher {
    /// Bytes of the key.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::ChaCha20Poly1305 => 32,
        }
    }
}

/// Limits of a host for receiving when the connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveLimits {
    /// Size of the socket buffer.
    pub socket_buffer: Bytes,
    /// Object bytes that may be sent before any credit is given.
    pub credit: Bytes,
}

/// HELLO: who the client is and what it wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Versions offered.
    pub versions: Vec<u16>,
    /// Which token the client holds.
    pub key_id: [u8; 8],
    /// That it holds it.
    pub proof: [u8; 32],
    /// Protection wished.
    pub protect: Protect,
    /// Ciphers in order of preference, at least one; those that this crate does not know are left
    /// out.
    pub ciphers: Vec<Cipher>,
    /// Carrier wished.
    pub carrier: Carrier,
    /// Lanes wished, 1 to [`MAX_LANES`].
    pub lanes: u16,
    /// The client's name and version, for logs. Written up to [`MAX_IMPLEMENTATION`] bytes.
    pub implementation: Option<String>,
    /// Limits of the client for receiving.
    pub receive_limits: Option<ReceiveLimits>,
    /// Profile of the connection. Written up to [`MAX_PROFILE`] bytes.
    pub profile: Option<String>,
    /// Most that the server may send, at the IP layer; not zero. The rate of a profile that needs
    /// one.
    pub rate: Option<Rate>,
    /// Parameters of the profile that are not the default, `name=value` and a space between two.
    /// Written up to [`MAX_PARAMETERS`] bytes.
    pub parameters: Option<String>,
}

impl Hello {
    /// The body of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let versions: Vec<u8> = self.versions.iter().flat_map(|it| it.to_be_bytes()).collect();
        put(&mut body, options::VERSION, &versions);
        put(&mut body, options::KEY_ID, &self.key_id);
        put(&mut body, options::PROOF, &self.proof);
        put(&mut body, options::PROTECT, &[self.protect as u8]);
        let ciphers: Vec<u8> = self.ciphers.iter().map(|cipher| *cipher as u8).collect();
        put(&mut body, options::CIPHER, &ciphers);
        put(&mut body, options::CARRIER, &[self.carrier as u8]);
        put(&mut body, options::LANES, &self.lanes.to_be_bytes());
        put_common(&mut body, self.implementation.as_deref(), self.receive_limits);
        if let Some(profile) = &self.profile {
            put(&mut body, options::PROFILE, cut(profile, MAX_PROFILE).as_bytes());
        }
        if let Some(rate) = self.rate {
            put(&mut body, options::RATE, &rate.as_bps().to_be_bytes());
        }
        if let Some(parameters) = &self.parameters {
            put(&mut body, options::PARAMETERS, cut(parameters, MAX_PARAMETERS).as_bytes());
        }
        body
    }

    /// Reads the body of the message.
    ///
    /// # Errors
    /// The peer broke the protocol, offers no version that this crate speaks (looked at first),
    /// or uses a critical option or a choice that it does not know.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let options = Options::read(body, By::Client, options::KINDS, None)?;
        let versions = options.numbers(options::VERSION)?;
        if !versions.contains(&PROTOCOL_VERSION) {
            return Err(DecodeError::UnsupportedVersion);
        }
        options.no_unknown_critical()?;
        let offered = options.get(options::CIPHER)?;
        let ciphers: Vec<Cipher> = offered.iter().copied().filter_map(Cipher::from_code).collect();
        if ciphers.is_empty() {
            return Err(DecodeError::Unsupported { what: "cipher" });
        }
        Ok(Self {
            versions,
            key_id: options.array(options::KEY_ID)?,
            proof: options.array(options::PROOF)?,
            protect: Protect::decode(options.array(options::PROTECT)?)?,
            ciphers,
            carrier: Carrier::decode(options.array(options::CARRIER)?)?,
            lanes: lanes(&options)?,
            implementation: options.text(options::IMPLEMENTATION, MAX_IMPLEMENTATION)?,
            receive_limits: receive_limits(&options)?,
            profile: options.text(options::PROFILE, MAX_PROFILE)?,
            rate: rate(&options)?,
            parameters: options.text(options::PARAMETERS, MAX_PARAMETERS)?,
        })
    }
}

/// WELCOME: what the server chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// That the server holds the token, and which HELLO it received.
    pub proof: [u8; 32],
    /// Protection: the client's wish.
    pub protect: Protect,
    /// The cipher.
    pub cipher: Cipher,
    /// The carrier: the client's wish.
    pub carrier: Carrier,
    /// Lanes granted, 1 to [`MAX_LANES`].
    pub lanes: u16,
    /// The connection.
    pub connection: ConnectionId,
    /// The server's UDP port; there if and only if the carrier is UDP, and not zero.
    pub udp_port: Option<u16>,
    /// The server's name and version, for logs. Written up to [`MAX_IMPLEMENTATION`] bytes.
    pub implementation: Option<String>,
    /// Limits of the server for receiving.
    pub receive_limits: Option<ReceiveLimits>,
}

impl Welcome {
    /// The body of the message, for [`PROTOCOL_VERSION`].
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, options::VERSION, &PROTOCOL_VERSION.to_be_bytes());
        put(&mut body, options::PROOF, &self.proof);
        put(&mut body, options::PROTECT, &[self.protect as u8]);
        put(&mut body, options::CIPHER, &[self.cipher as u8]);
        put(&mut body, options::CARRIER, &[self.carrier as u8]);
        put(&mut body, options::LANES, &self.lanes.to_be_bytes());
        put(&mut body, options::CONNECTION_ID, &self.connection.0.to_be_bytes());
        if let Some(port) = self.udp_port {
            put(&mut body, options::UDP_PORT, &port.to_be_bytes());
        }
        put_common(&mut body, self.implementation.as_deref(), self.receive_limits);
        body
    }

    /// Reads the body of the message.
    ///
    /// # Errors
    /// As [`Hello::decode`].
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let options = Options::read(body, By::Server, options::KINDS, None)?;
        if u16::from_be_bytes(options.array(options::VERSION)?) != PROTOCOL_VERSION {
            return Err(DecodeError::UnsupportedVersion);
        }
        options.no_unknown_critical()?;
        let carrier = Carrier::decode(options.array(options::CARRIER)?)?;
        let udp_port = match options.find(options::UDP_PORT) {
            None => None,
            Some(_) => Some(u16::from_be_bytes(options.array(options::UDP_PORT)?)),
        };
        if udp_port.is_some() != (carrier != Carrier::Tcp) || udp_port == Some(0) {
            return Err(DecodeError::Invalid { what: "UDP port option" });
        }
        let connection = u32::from_be_bytes(options.array(options::CONNECTION_ID)?);
        if connection == 0 {
            return Err(DecodeError::Invalid { what: "connection id option" });
        }
        Ok(Self {
            proof: options.array(options::PROOF)?,
            protect: Protect::decode(options.array(options::PROTECT)?)?,
            cipher: Cipher::decode(options.array(options::CIPHER)?)?,
            carrier,
            lanes: lanes(&options)?,
            connection: ConnectionId(connection),
            udp_port,
            implementation: options.text(options::IMPLEMENTATION, MAX_IMPLEMENTATION)?,
            receive_limits: receive_limits(&options)?,
        })
    }
}

fn put_common(body: &mut Vec<u8>, implementation: Option<&str>, limits: Option<ReceiveLimits>) {
    if let Some(name) = implementation {
        put(body, options::IMPLEMENTATION, cut(name, MAX_IMPLEMENTATION).as_bytes());
    }
    if let Some(limits) = limits {
        let mut value = [0; 16];
        let (socket_buffer, credit) = value.split_at_mut(8);
        socket_buffer.copy_from_slice(&limits.socket_buffer.get().to_be_bytes());
        credit.copy_from_slice(&limits.credit.get().to_be_bytes());
        put(body, options::RECEIVE_LIMITS, &value);
    }
}

fn lanes(options: &Options<'_>) -> Result<u16, DecodeError> {
    match u16::from_be_bytes(options.array(options::LANES)?) {
        lanes @ 1..=MAX_LANES => Ok(lanes),
        _ => Err(DecodeError::Invalid { what: "lanes option" }),
    }
}

fn receive_limits(options: &Options<'_>) -> Result<Option<ReceiveLimits>, DecodeError> {
    let Some(value) = options.find(options::RECEIVE_LIMITS) else {
        return Ok(None);
    };
    let mut r = Reader::new(value, "receive limits option");
    let limits =
        ReceiveLimits { socket_buffer: Bytes::new(r.u64()?), credit: Bytes::new(r.u64()?) };
    r.finish()?;
    Ok(Some(limits))
}

fn rate(options: &Options<'_>) -> Result<Option<Rate>, DecodeError> {
    if options.find(options::RATE).is_none() {
        return Ok(None);
    }
    match u64::from_be_bytes(options.array(options::RATE)?) {
        0 => Err(DecodeError::Invalid { what: "rate option" }),
        rate => Ok(Some(Rate::from_bps(rate))),
    }
}

fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Longest name of an implementation, in bytes.
pub const MAX_IMPLEMENTATION: usize = 64;
/// Longest name of a profile, in bytes.
pub const MAX_PROFILE: usize = 32;
/// Longest parameters of a profile, in bytes.
pub const MAX_PARAMETERS: usize = 1_024;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const CLOSE: u8 = 3;
const PING: u8 = 4;
const PONG: u8 = 5;

#[cfg(test)]
mod tests;
