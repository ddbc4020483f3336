//! Entries of a gateway: each turns a client's bytes into a route, and an answer into bytes that
//! this client understands. A new one is one file.

mod forward;
mod header;
mod socks;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Mutex;

use longhaul_relay::{Answer, Clock, Gatekeeper, Place, Route};
use longhaul_session::KeyId;

pub use forward::Forward;
pub use header::HeaderEntry;
pub use socks::{ParsePasswordsError, Passwords, Socks};

/// The entry of one client.
pub trait Entry: Debug + Send {
    /// Judges all that came so far and was not used.
    fn receive(&mut self, bytes: &[u8], client: &mut Arrival<'_>) -> Entered;

    /// Its clients know nothing of gateways: which ones they pass is decided here.
    fn is_led(&self) -> bool {
        true
    }

    /// The bytes by which this client learns of an answer; payload follows `connected`.
    fn answer(&self, answer: &Answer) -> Vec<u8>;
}

/// The circumstances in which a client arrived.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Its address.
    pub peer: SocketAddr,
    /// The address at which it arrived.
    pub local: Place,
    /// The time of day.
    pub clock: Clock,
    /// Random bytes, for a session id where the client brings none.
    pub random: [u8; 16],
    /// Judge of headers.
    pub gatekeeper: &'a Mutex<Gatekeeper>,
    /// Tokens of gateways, which are believed about their clients.
    pub neighbours: &'a BTreeSet<KeyId>,
}

/// Outcome of [`Entry::receive`].
#[derive(Debug)]
pub enum Entered {
    /// More is needed. The first `used` bytes are done with, and `reply` is to be sent.
    Incomplete {
        /// Bytes done with.
        used: usize,
        /// Bytes for the client, perhaps none.
        reply: Vec<u8>,
    },
    /// The client may come in and asks for this.
    Asked {
        /// Bytes done with; payload follows.
        used: usize,
        /// Where it wants to go.
        route: Box<Route>,
        /// The client's name, for limits and logs.
        client: String,
    },
    /// The client is refused; `reply` is the last it gets.
    Refused {
        /// Bytes for the client.
        reply: Vec<u8>,
        /// Why, for the log.
        why: String,
    },
}
