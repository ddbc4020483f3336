use alloc::vec::Vec;
use core::net::SocketAddr;

use longhaul_session::TokenKey;
use longhaul_wire::DecodeError;

use crate::answer::Answer;
use crate::header::{Addressed, Clock, Hop, Proof, Route, RouteError, Target};
use crate::options::MAX_MESSAGE;
use crate::options::{Kind, split, wanted};
use crate::place::Place;
use crate::status::Status;

/// Seconds after its header after which a client gives the answer up: gateways that live answer
/// earlier (docs/relay.md section 3).
pub const ANSWER_TIMEOUT_SECS: u64 = 30;

/// The side of a segment that dials: a client, or a gateway towards the next one.
#[derive(Debug)]
pub struct Dialler {
    key: TokenKey,
    proof: Proof,
    /// The beginning of the answer.
    received: Vec<u8>,
}

/// Progress of a [`Dialler`].
#[derive(Debug, PartialEq, Eq)]
pub enum Dialled {
    /// The answer is not there whole: all bytes were taken, more are needed.
    Incomplete,
    /// The session stands. Of the bytes that came last, the first `length` belonged to the answer;
    /// payload follows.
    Connected {
        /// Bytes that belonged to the answer.
        length: usize,
        /// The target's address, as the last gateway reached it.
        peer: Option<SocketAddr>,
    },
    /// A gateway refused, and proved that it holds the token.
    Refused(Answer),
    /// Somebody refused who proved nothing: a gateway that does not know the token, or anybody.
    Unproven(Answer),
}

/// The bytes that came are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// Not a message of this protocol.
    #[error("no gateway answers there: {0}")]
    Malformed(#[from] DecodeError),
    /// The answer says `connected` and its proof is missing or wrong.
    #[error("the gateway does not prove that it holds the token")]
    Impostor,
}

impl Dialler {
    /// The dialler of `route` at the gateway `addressed`, and the header to be sent. `nonce` is
    /// random and never used twice; `now` is this host's clock, or the gateway's after a proven
    /// `wrong-clock`.
    ///
    /// # Errors
    /// The route does not fit into a header.
    pub fn new(
        route: &Route,
        addressed: Addressed,
        key: &TokenKey,
        now: Clock,
        nonce: [u8; 16],
    ) -> Result<(Self, Vec<u8>), RouteError> {
        let (header, proof) = route.sign(&addressed, key, now, nonce)?;
        Ok((Self { key: key.clone(), proof, received: Vec::new() }, header))
    }

    /// The dialler of a client: to `target`, which knows of nothing, through the gateways `first`, at
    /// the address `gateway`, and `rest`. `random` is used once, for session id and nonce.
    ///
    /// # Errors
    /// The route does not fit into a header.
    pub fn client(
        first: &Hop,
        rest: &[Hop],
        target: Place,
        gateway: SocketAddr,
        key: &TokenKey,
        now: Clock,
        random: [u8; 32],
    ) -> Result<(Self, Vec<u8>), RouteError> {
        let (mut session, mut nonce) = ([0; 16], [0; 16]);
        session.copy_from_slice(&random[..16]);
        nonce.copy_from_slice(&random[16..]);
        let target = Target { place: target, aware: false };
        let route = Route { hops: rest.to_vec(), ..Route::new(session, target) };
        let addressed = Addressed { written: first.written(), dialled: gateway.into() };
        Self::new(&route, addressed, key, now, nonce)
    }

    /// Bytes that may be read without taking payload that follows the answer; zero once it is there.
    pub fn wanted(&self) -> usize {
        wanted(&self.received)
    }

    /// Takes bytes that came, in order.
    ///
    /// # Errors
    /// They are not an answer, or nobody proved that the session stands.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Dialled, DialError> {
        let before = self.received.len();
        let taken = bytes.len().min(MAX_MESSAGE - before);
        self.received.extend_from_slice(&bytes[..taken]);
        let Some(whole) = split(&self.received, Kind::Answer)? else {
            return Ok(Dialled::Incomplete);
        };
        let message = &self.received[..whole.len];
        let (answer, proven) = Answer::decode(message, whole.options, &self.key, &self.proof)?;
        Ok(match (answer.status, proven) {
            (Status::CONNECTED, true) => {
                Dialled::Connected { length: whole.len - before, peer: answer.peer }
            }
            (Status::CONNECTED, false) => return Err(DialError::Impostor),
            (_, true) => Dialled::Refused(answer),
            (_, false) => Dialled::Unproven(answer),
        })
    }
}
