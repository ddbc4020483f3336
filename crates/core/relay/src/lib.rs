//! Sessions over segments (docs/relay.md): headers, answers, credentials and frames.
//!
//! - [`Header`] and [`Answer`]: the two messages that stand before a session's payload on each
//!   segment, signed with a token's key; [`Place`], [`Hop`] and [`Route`] say where it goes.
//! - [`Dialler`]: the side that sends a header and takes the answer.
//! - [`Gatekeeper`]: judges headers at a gateway: proof, clock, replay, name.
//! - [`Rule`]: which destinations somebody means, by range and port.
//! - [`Ends`]: how the two directions of a session end at a gateway.
//! - [`proxy`]: the client's address, for servers that know of nothing (PROXY protocol).
//! - [`frame`]: payload on transports without half-close (Phoebus section 4.4).
//!
//! The crate opens no connection, resolves no name and has no clock or randomness of its own: time
//! and random bytes are arguments. Which targets a client may reach is the gateway's policy.
//!
//! Contract: no input makes it panic, take more memory than 4 KiB for each message that is being
//! read, or accept a header twice.
//!
//! ```
//! use longhaul_relay::{
//!     Addressed, Answer, Clock, Dialled, Dialler, Gatekeeper, Host, Place, Received, Route, Status,
//!     Target,
//! };
//! use longhaul_session::Token;
//!
//! let token = Token::from_random([7; 16]); // from the system's random numbers, in earnest
//! let gateway: Place = "gw.example.org:7421".parse()?;
//! let address: Place = "192.0.2.1:7421".parse()?;
//! let now = Clock::from_micros(1_800_000_000_000_000);
//!
//! let target = Target { place: "server:80".parse()?, aware: false };
//! let route = Route::new([1; 16], target);
//! let addressed = Addressed { written: gateway, dialled: address.clone() };
//! let (mut dialler, header) = Dialler::new(&route, addressed, &token.key(), now, [2; 16])?;
//!
//! let mut gatekeeper = Gatekeeper::new([&token].into_iter().collect(), None, now);
//! let Received::Header(request) = gatekeeper.receive(&header, &address, now) else { panic!() };
//! assert_eq!(request.header.target.place.host, Host::Name("server".into()));
//!
//! let answer = request.sign(&Answer::new(Status::CONNECTED, "gw"));
//! let Dialled::Connected { length, .. } = dialler.receive(&answer)? else { panic!() };
//! assert_eq!(length, answer.len()); // payload follows
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod answer;
mod dialler;
mod ends;
pub mod frame;
mod gatekeeper;
mod header;
mod offset;
mod options;
mod place;
pub mod proxy;
mod replay;
mod rule;
mod status;

pub use answer::{Answer, MAX_REASON};
pub use dialler::{ANSWER_TIMEOUT_SECS, DialError, Dialled, Dialler};
pub use ends::{Ends, Side};
pub use gatekeeper::{Gatekeeper, MAX_CLOCK_ERROR, MAX_CLOCK_LEAD, Received, Refusal, Request};
pub use header::{
    Addressed, Clock, GATEWAY_PORT, Header, Hop, MAX_HOPS, ParseHopError, ParseViaError, Route,
    RouteError, SessionId, Target, parse_via,
};
pub use offset::ClockOffset;
pub use options::MAX_MESSAGE;
pub use place::{Host, ParsePlaceError, Place};
pub use rule::{ParseRuleError, Prefix, Rule};
pub use status::Status;
