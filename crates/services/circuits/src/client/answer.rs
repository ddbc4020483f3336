//! Answers of a service: bounded, and without anything that acts on who reads it.

use std::io;

use longhaul_units::shown;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use ureq::Body;
use ureq::http::{Response, header};

use super::authorities::AuthoritiesError;
use crate::api::Problem;

/// Why there is no answer, or not the one hoped for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address is none.
    #[error("{0}: expected a URL like https://book.example or http://127.0.0.1:7430")]
    Url(String),
    /// The token would cross a network in the clear.
    #[error("{0}: the token would cross the network in the clear; https:// hides it")]
    Plain(String),
    /// Nobody could vouch for the service.
    #[error("{place}: {why}")]
    Authorities {
        /// Where authorities were looked for.
        place: String,
        /// The mistake.
        why: AuthoritiesError,
    },
    /// The service refuses, and why.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// Nobody vouches for the service: nothing was sent to it.
    #[error("{url}: not trusted: {why}")]
    Certificate {
        /// Where.
        url: String,
        /// The fault of its certificate.
        why: String,
    },
    /// The service cannot be reached, or the connection broke: whether a request was carried out
    /// is not known. With an idempotency key it can be sent again.
    #[error("{url}: {why}")]
    Connection {
        /// Where.
        url: String,
        /// The cause.
        why: String,
    },
    /// The answer is none that this client understands.
    #[error("{url}: an answer that makes no sense: {why}")]
    Answer {
        /// Where.
        url: String,
        /// The mistake.
        why: String,
    },
}

/// All of an answer.
pub(super) fn body(response: &mut Response<Body>) -> Result<Vec<u8>, ureq::Error> {
    response.body_mut().with_config().limit(MAX).read_to_vec()
}

/// An answer in JSON.
pub(super) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_value(tame(serde_json::from_slice(text)?))
}

/// The same with all its words tamed.
fn tame(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(tamed(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(tame).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, tame(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other,
    }
}

/// Words as they may be shown, and no more of them than anybody reads.
pub(super) fn tamed(text: &str) -> String {
    match text.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => shown(&text[..end]) + "...",
        None => shown(text),
    }
}

/// Why the service did not do what it was asked.
pub(super) fn problem(base: &str, mut response: Response<Body>) -> ClientError {
    let status = response.status();
    if let Some(place) = response.headers().get(header::LOCATION) {
        let place = String::from_utf8_lossy(place.as_bytes());
        return senseless(base, format!("{status} to {place}, where the token does not go"));
    }
    match body(&mut response).ok().map(|text| read(&text)) {
        Some(Ok(problem)) => ClientError::Problem(Box::new(problem)),
        _ => senseless(base, status),
    }
}

pub(super) fn broken(base: &str, why: ureq::Error) -> ClientError {
    let url = base.to_owned();
    let doubt = match &why {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => doubt(error),
        _ => None,
    };
    match doubt {
        Some(rustls::Error::InvalidCertificate(error)) => {
            ClientError::Certificate { url, why: tamed(&error.to_string()) }
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            ClientError::Connection { url, why: "what answers there does not speak TLS".into() }
        }
        _ => ClientError::Connection { url, why: tamed(&words(&why)) },
    }
}

/// Without the library's own terms.
fn words(why: &ureq::Error) -> String {
    match why {
        ureq::Error::Timeout(_) => "it did not answer in time".into(),
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// The reason of TLS for a failure to read or write.
fn doubt(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

pub(super) fn senseless(base: &str, why: impl ToString) -> ClientError {
    ClientError::Answer { url: base.to_owned(), why: tamed(&why.to_string()) }
}

/// Bytes of an answer: a thousand bookings with long vectors. Read as JSON it may take ten times that.
pub(super) const MAX: u64 = 16 << 20;
/// Characters of one text: whatever the service says by itself is shorter.
const WORDS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_there_is_no_answer_is_in_plain_words() {
        let reason = |why: ureq::Error| broken("https://book.example", why).to_string();
        let late = reason(ureq::Error::Timeout(ureq::Timeout::Global));
        assert_eq!(late, "https://book.example: it did not answer in time");
        let garbled = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(reason(garbled.into()).ends_with("does not speak TLS"));
        let closed = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(reason(ureq::Error::Io(closed)), "https://book.example: connection refused");
    }

    #[test]
    fn words_in_an_answer_act_on_nothing_and_have_an_end() {
        let long = "x".repeat(5_000);
        let text = serde_json::json!({
            "type": "urn:\u{1b}[2J", "title": "a\nb", "status": 409, "detail": long,
            "explanation": { "summary": "\u{202e}", "changes": ["c\r\nd"] }, "new": { "x": [1] },
        });
        let problem: Problem = read(text.to_string().as_bytes()).unwrap();
        assert_eq!((problem.kind.as_str(), problem.title.as_str()), ("urn:\\u{1b}[2J", "a\\nb"));
        assert_eq!(problem.detail.len(), WORDS_MAX + 3);
        let why = problem.explanation.unwrap();
        assert_eq!(
            (why.summary.as_str(), &why.changes[..]),
            ("\\u{202e}", &["c\\r\\nd".into()][..])
        );
    }
}
