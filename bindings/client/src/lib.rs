//! A client of session gateways (docs/relay.md) for programs in other languages: what the C library
//! and the preload have in common.
//!
//! - [`Gateways`]: those on a route, and the token that proves this host to the first.
//! - [`Attempt`]: one set-up on a connection that the caller has made: header, answer, outcome.
//! - [`SessionError`]: why there is no session, in words and as a number of `errno`.
//! - [`Settings`]: what `longhaul gateway run` hands over to the preload, as environment variables.
//!
//! The crate opens no socket and resolves no name: the caller sends and receives. It reads a token
//! file, this host's clock and random numbers.
//!
//! ```
//! use longhaul_relay_client::{Gateways, Step};
//! use longhaul_session::Token;
//!
//! let token = Token::from_random([7; 16]); // read_token(FILE), in earnest
//! let gateways = Gateways::new("near@192.0.2.1,far.example", token.key())?;
//! let mut attempt = gateways.dial("server:80".parse()?, "192.0.2.1:7421".parse()?)?;
//! assert!(attempt.unsent().starts_with(b"LHGW"));
//! let step = attempt.advance(
//!     |header| Ok(header.len()),                         // send
//!     |_| Err(std::io::ErrorKind::WouldBlock.into()),    // receive
//! );
//! assert_eq!(step, Step::Waiting);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod attempt;
mod gateways;
mod session_error;
mod settings;

pub use attempt::{Attempt, Step};
pub use gateways::{DialError, Gateways, TokenError, read_token};
pub use session_error::SessionError;
pub use settings::{ParseSettingsError, Settings, VARIABLES};
