use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use longhaul_session::{KeyId, Keyring, TokenKey};
use longhaul_wire::DecodeError;

use crate::answer::Answer;
use crate::header::{Clock, HEADER_LABEL, Header, PROOF_LEN, Proof};
use crate::options::MAX_MESSAGE;
use crate::options::{Kind, split};
use crate::place::Place;
use crate::replay::{Inserted, Nonces};
use crate::status::Status;

/// Most microseconds by which a header's time may lie behind the gateway's clock (docs/relay.md section 3).
pub const MAX_CLOCK_ERROR: u64 = 60_000_000;
/// Most microseconds by which it may lie ahead. So long a gateway lets nobody in after its start: a header
/// with a later time than that was not seen before it.
pub const MAX_CLOCK_LEAD: u64 = 1_000_000;

/// Judges the headers that come to a gateway (docs/relay.md section 3): proof, time, nonce and
/// name. It does not judge where they want to go.
#[derive(Debug)]
pub struct Gatekeeper {
    keys: Keyring,
    name: Option<String>,
    since: Clock,
    nonces: Nonces,
}

/// Outcome of [`Gatekeeper::receive`].
#[derive(Debug)]
pub enum Received {
    /// The header is not there whole.
    Incomplete,
    /// A header that is proven and new.
    Header(Box<Request>),
    /// A header that is refused; the answer is to be sent before the connection ends.
    Refused(Refusal),
}

/// A header that is proven and new.
#[derive(Debug)]
pub struct Request {
    /// The header.
    pub header: Header,
    /// Its length in bytes: payload follows.
    pub length: usize,
    /// The token that proved it.
    pub key_id: KeyId,
    key: TokenKey,
}

impl Request {
    /// `answer`, proven for this header. A time is left out: this gateway had no objection to the
    /// header's, so it would be another one's, and nobody is to believe it under this proof.
    pub fn sign(&self, answer: &Answer) -> Vec<u8> {
        let answer = Answer { time: None, ..answer.clone() };
        answer.encode(Some((&self.key, &self.header.proof)))
    }
}

/// A header that is refused.
#[derive(Debug)]
pub struct Refusal {
    /// Why, for the log.
    pub answer: Answer,
    /// The bytes of the answer.
    pub bytes: Vec<u8>,
}

impl Gatekeeper {
    /// The gatekeeper of a gateway that accepts `keys`, is called `name`, or by the address that is
    /// dialled. Headers from before `since` might have been used before it started: [`MAX_CLOCK_LEAD`]
    /// after the start.
    pub fn new(keys: Keyring, name: Option<String>, since: Clock) -> Self {
        Self { keys, name, since, nonces: Nonces::default() }
    }

    /// Accepts `keys` and no others from now on, and is called `name`. Nonces are kept.
    pub fn replace(&mut self, keys: Keyring, name: Option<String>) {
        self.keys = keys;
        self.name = name;
    }

    /// Judges what came so far on a connection that arrived at the address `local`.
    pub fn receive(&mut self, bytes: &[u8], local: &Place, now: Clock) -> Received {
        let at = self.name.clone().unwrap_or_else(|| local.to_string());
        let malformed = |error: DecodeError| {
            let status = match error {
                DecodeError::Unsupported { .. } => Status::UNSUPPORTED_VERSION,
                _ => Status::MALFORMED,
            };
            unproven(Answer { reason: error.to_string(), ..Answer::new(status, &at) })
        };
        let whole = match split(&bytes[..bytes.len().min(MAX_MESSAGE)], Kind::Header) {
            Ok(Some(whole)) => whole,
            Ok(None) => return Received::Incomplete,
            Err(error) => return malformed(error),
        };
        let header = match Header::decode(whole.options) {
            Ok(header) => header,
            Err(error) => return malformed(error),
        };
        let signed = &bytes[..whole.len - PROOF_LEN];
        let id = KeyId(header.key_id);
        let Some(key) = self.keys.verify(id, &header.proof, HEADER_LABEL, &[signed]).cloned()
        else {
            return unproven(Answer::new(Status::UNAUTHORIZED, &at));
        };
        if let Some(answer) = self.refuse(&header, local, &at, now) {
            return proven(answer, &key, &header.proof);
        }
        Received::Header(Box::new(Request { header, length: whole.len, key_id: id, key }))
    }

    fn refuse(&mut self, header: &Header, local: &Place, at: &str, now: Clock) -> Option<Answer> {
        let (addressed, remedy) = match &self.name {
            Some(name) => (
                header.addressed.written.host.to_string().eq_ignore_ascii_case(name),
                "write its name before its address: NAME@HOST:PORT",
            ),
            None => (
                header.addressed.dialled == *local,
                "it stands behind an address translation: start it with --name",
            ),
        };
        if !addressed {
            let reason = remedy.into();
            return Some(Answer { reason, ..Answer::new(Status::MISADDRESSED, at) });
        }
        if header.has_unknown_critical {
            let reason = "unknown option of the header".into();
            return Some(Answer { reason, ..Answer::new(Status::UNSUPPORTED_OPTION, at) });
        }
        let (latest, oldest) = (now.plus(MAX_CLOCK_LEAD), header.time.plus(MAX_CLOCK_ERROR));
        if header.time > latest || oldest < now || header.time < self.since {
            if header.time > latest {
                // Its time comes, and nobody is to use it then.
                self.nonces.refuse(header.nonce, oldest, now);
            }
            return Some(Answer { time: Some(now), ..Answer::new(Status::WRONG_CLOCK, at) });
        }
        match self.nonces.insert(header.nonce, now) {
            Inserted::New => None,
            Inserted::Repeated => Some(Answer::new(Status::REPLAYED, at)),
            Inserted::Full => Some(Answer::new(Status::BUSY, at)),
        }
    }
}

fn unproven(answer: Answer) -> Received {
    Received::Refused(Refusal { bytes: answer.encode(None), answer })
}

fn proven(answer: Answer, key: &TokenKey, header: &Proof) -> Received {
    Received::Refused(Refusal { bytes: answer.encode(Some((key, header))), answer })
}
