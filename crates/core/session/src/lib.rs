//! Authentication of the two ends, and their keys (docs/protocol.md sections 2 and 4.2).
//!
//! - [`Token`]: what people hand to each other; [`Keyring`]: the tokens that a server accepts.
//! - [`ClientHandshake`] and [`ServerHandshake`]: pure machines over the bytes of the control
//!   connection. They prove the token in both directions, bound to the [`SessionSecret`] that the
//!   two ends share, and agree on version, protection, cipher, carrier and lanes.
//! - [`Session`]: what was agreed; [`LaneKeys`]: the keys of a lane and direction, by epoch;
//!   [`RecordKeys`]: those of a TCP connection under `clear`.
//! - [`Origin`]: addresses that limits count as one, before anybody has proven anything;
//!   [`OriginTable`] and [`KnownOrigins`] count by them.
//!
//! The crate opens no connection, runs no TLS, seals no packet and has no randomness of its own;
//! what a session means after the handshake is not its concern.
//!
//! Contract: a handshake is consumed by [`ClientHandshake::handle`] and
//! [`ServerHandshake::handle`] and comes back as long as bytes are missing. Behind an error the
//! caller sends [`HandshakeError::close_message`] and ends the connection. A [`Session`] exists
//! only when the peer has proven that it holds the token.
//!
//! ```
//! use std::num::NonZeroU32;
//!
//! use longhaul_session::{
//!     ClientConfig, ClientHandshake, ClientProgress, Keyring, ServerConfig, ServerHandshake,
//!     ServerProgress, SessionSecret, Token,
//! };
//! use longhaul_units::Instant;
//!
//! let token = Token::from_random([7; 16]); // from the system's random numbers, in earnest
//! let keyring: Keyring = [&token].into_iter().collect();
//! let exported = [9; 32]; // what TLS exports at both ends
//! let now = Instant::ZERO;
//!
//! let secret = SessionSecret::new(exported);
//! let config = ClientConfig::default();
//! let (client, hello) = ClientHandshake::new(&config, &token.key(), secret, now);
//!
//! let config = ServerConfig { udp_port: Some(7420), ..ServerConfig::default() };
//! let server = ServerHandshake::new(config, SessionSecret::new(exported), now);
//! let ServerProgress::Verified(verified) = server.handle(&hello, &keyring)? else { panic!() };
//! let (at_server, welcome) = verified.accept(NonZeroU32::MIN);
//!
//! let ClientProgress::Done(at_client) = client.handle(&welcome)? else { panic!() };
//! assert_eq!(at_client.lanes, at_server.lanes);
//! # Ok::<(), longhaul_session::HandshakeError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod handshake;
mod keys;
mod origin;
mod role;
mod secret;
mod session;
mod token;

pub use handshake::{
    ClientConfig, ClientHandshake, ClientProgress, HandshakeError, ServerConfig, ServerHandshake,
    ServerProgress, VerifiedClient,
};
pub use keys::{Direction, EpochKeys, LaneKeys, RecordKeys};
pub use origin::{KnownOrigins, Origin, OriginTable, Ticket};
pub use role::Role;
pub use secret::SessionSecret;
pub use session::Session;
pub use token::{
    KeyId, Keyring, ParseTokenError, Token, TokenFileError, TokenKey, parse_token_file,
};
