use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use longhaul_session::TokenKey;
use longhaul_units::shown;
use longhaul_wire::{DecodeError, Reader, option_fields};

use crate::header::{Clock, PROOF_LEN, Proof, once};
use crate::options::{Kind, begin, finish, put};
use crate::place::{Place, cut};
use crate::status::Status;

/// Most bytes of a reason.
pub const MAX_REASON: usize = 512;

/// The outcome of a set-up (docs/relay.md section 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The outcome.
    pub status: Status,
    /// The gateway that speaks, at most 255 bytes.
    pub at: String,
    /// The host and port that it could not reach, at most 255 bytes; else empty.
    pub to: String,
    /// For people, at most [`MAX_REASON`] bytes.
    pub reason: String,
    /// The gateway's clock, with `wrong-clock`.
    pub time: Option<Clock>,
    /// The target, as the last gateway reached it.
    pub peer: Option<SocketAddr>,
}

impl Answer {
    /// An answer of the gateway `at` with nothing but a status.
    pub fn new(status: Status, at: &str) -> Self {
        Self {
            status,
            at: at.into(),
            to: String::new(),
            reason: String::new(),
            time: None,
            peer: None,
        }
    }

    /// The answer to the header with this proof; without a key, nothing proves it.
    pub(crate) fn encode(&self, signer: Option<(&TokenKey, &Proof)>) -> Vec<u8> {
        let mut message = begin(Kind::Answer);
        put(&mut message, true, STATUS, |out| out.extend_from_slice(&self.status.0.to_be_bytes()));
        for (number, text, limit) in
            [(AT, &self.at, 255), (TO, &self.to, 255), (REASON, &self.reason, MAX_REASON)]
        {
            if !text.is_empty() {
                let text = cut(text, limit).as_bytes();
                put(&mut message, false, number, |out| out.extend_from_slice(text));
            }
        }
        if let Some(time) = self.time {
            let time = time.as_micros().to_be_bytes();
            put(&mut message, false, TIME, |out| out.extend_from_slice(&time));
        }
        if let Some(peer) = self.peer {
            put(&mut message, false, PEER, |out| Place::from(peer).write(out));
        }
        let Some((key, header)) = signer else {
            finish(&mut message, 0);
            return message;
        };
        let empty = [0; PROOF_LEN];
        put(&mut message, true, PROOF, |out| out.extend_from_slice(&empty));
        finish(&mut message, 0);
        message.truncate(message.len() - empty.len());
        let proof = key.prove(ANSWER_LABEL, &[header, &message]);
        message.extend_from_slice(&proof);
        message
    }

    /// Reads a whole message with these options; the second value says that it is proven.
    pub(crate) fn decode(
        message: &[u8],
        options: &[u8],
        key: &TokenKey,
        header: &Proof,
    ) -> Result<(Self, bool), DecodeError> {
        let mut found = Found::default();
        for field in option_fields(options) {
            let (critical, number, value) = field?;
            if found.proof.is_some() {
                return Err(DecodeError::Trailing { what: "answer" });
            }
            found.take(critical, number, value)?;
        }
        if found.unknown_critical {
            return Err(DecodeError::Unsupported { what: "option of the answer" });
        }
        let proven = found.proof.is_some_and(|proof| {
            let unproven = &message[..message.len() - proof.len()];
            key.check(&proof, ANSWER_LABEL, &[header, unproven])
        });
        let answer = Self {
            status: found.status.ok_or(DecodeError::Truncated { what: "answer" })?,
            at: found.at.unwrap_or_default(),
            to: found.to.unwrap_or_default(),
            reason: found.reason.unwrap_or_default(),
            time: found.time,
            peer: found.peer,
        };
        Ok((answer, proven))
    }
}

impl fmt::Display for Answer {
    /// A refusal in words, without what acts on terminals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gateway {}: ", shown(&self.at))?;
        if !self.to.is_empty() {
            write!(f, "could not reach {}: ", shown(&self.to))?;
        }
        let meaning = self.status.meaning();
        match meaning {
            Some(meaning) => f.write_str(meaning)?,
            None => self.status.fmt(f)?,
        }
        match &*self.reason {
            "" => Ok(()),
            reason if meaning.is_some_and(|meaning| reason.eq_ignore_ascii_case(meaning)) => Ok(()),
            reason => write!(f, " ({})", shown(reason)),
        }
    }
}

#[derive(Default)]
struct Found {
    status: Option<Status>,
    at: Option<String>,
    to: Option<String>,
    reason: Option<String>,
    time: Option<Clock>,
    peer: Option<SocketAddr>,
    proof: Option<Proof>,
    unknown_critical: bool,
}

impl Found {
    fn take(&mut self, critical: bool, number: u16, value: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(value, "option of the answer");
        match number {
            STATUS => once(&mut self.status, Status(r.u16()?))?,
            AT => once(&mut self.at, r.text(255)?.into())?,
            TO => once(&mut self.to, r.text(255)?.into())?,
            REASON => once(&mut self.reason, r.text(MAX_REASON)?.into())?,
            TIME => once(&mut self.time, Clock::from_micros(r.u64()?))?,
            PEER => {
                let peer = Place::read(&mut r)?.address().ok_or(r.invalid())?;
                once(&mut self.peer, peer)?;
            }
            PROOF => once(&mut self.proof, r.array()?)?,
            _ => {
                self.unknown_critical |= critical;
                return Ok(());
            }
        }
        if critical != matches!(number, STATUS | PROOF) {
            return Err(r.invalid());
        }
        r.finish()
    }
}

const ANSWER_LABEL: &str = "longhaul/1 relay answer ";

const STATUS: u16 = 1;
const AT: u16 = 2;
const TO: u16 = 3;
const REASON: u16 = 4;
const TIME: u16 = 5;
const PEER: u16 = 6;
const PROOF: u16 = 8;
