//! A small, blocking client of the service, for commands, transfers and gateways.
//!
//! ```no_run
//! use longhaul_circuits::api::{BookRequest, FileWant};
//! use longhaul_circuits::client::Client;
//!
//! let client = Client::new("http://127.0.0.1:7430", "lh1-...")?;
//! let file = FileWant { bytes: 5_000_000_000, max_rate_bps: 20_000_000_000, ..FileWant::default() };
//! let (from, to) = (Some("gva".into()), Some("chi".into()));
//! let request = BookRequest { from, to, file: Some(file), ..BookRequest::default() };
//! let made = client.book(&request, Some("run-17"))?;
//! println!("done by {}", made.bookings[0].finish);
//! # Ok::<(), longhaul_circuits::client::ClientError>(())
//! ```

use std::io::{BufRead, BufReader};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Method, Request, Response};
use ureq::{Agent, Body};

use crate::api::{
    Availability, BookRequest, Booking, Bookings, Explanation, ExtendRequest, Health,
    ModifyRequest, Preview, Problem, TakeQuote, Topology, UsageReport,
};

/// Talks to one service. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    base: String,
    token: String,
}

/// Why there is no answer, or not the one hoped for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address is none.
    #[error("{0}: expected a URL like http://127.0.0.1:7430")]
    Url(String),
    /// The service said why not.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// The service cannot be reached, or the connection broke: whether a request was carried out
    /// is not known. With an idempotency key it can be sent again.
    #[error("{url}: {why}")]
    Connection {
        /// Where.
        url: String,
        /// What happened.
        why: String,
    },
    /// The answer is none that this client understands.
    #[error("{url}: an answer that makes no sense: {why}")]
    Answer {
        /// Where.
        url: String,
        /// What is wrong.
        why: String,
    },
}

/// A change of a booking, as it happened.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// In a word: booked, held, committed, ..., or reset when some were missed.
    pub what: String,
    /// For [`Client::watch`] to resume with.
    pub number: u64,
    /// The booking, unless this is a reset.
    pub booking: Option<Booking>,
}

impl Client {
    /// A client for the service at `url`, with a token.
    ///
    /// # Errors
    /// `url` is not `http://HOST[:PORT]`.
    pub fn new(url: &str, token: &str) -> Result<Self, ClientError> {
        let base = url.trim_end_matches('/').to_owned();
        if base.strip_prefix("http://").is_none_or(str::is_empty) {
            return Err(ClientError::Url(url.into()));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .build();
        Ok(Self { agent: config.into(), base, token: token.into() })
    }

    /// Where the service is.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// How the service is.
    pub fn health(&self) -> Result<Health, ClientError> {
        self.get("/v1/health")
    }

    /// The network.
    pub fn topology(&self) -> Result<Topology, ClientError> {
        self.get("/v1/topology")
    }

    /// What is free of a link within a day.
    pub fn availability(&self, link: &str) -> Result<Availability, ClientError> {
        self.get(&format!("/v1/links/{}/availability", encoded(link)))
    }

    /// What would come of a request.
    pub fn plan(&self, request: &BookRequest) -> Result<Preview, ClientError> {
        self.call(Method::POST, "/v1/plan", Some(request), None)
    }

    /// Books. The same `key` books once, however often it is sent.
    pub fn book(&self, request: &BookRequest, key: Option<&str>) -> Result<Bookings, ClientError> {
        self.call(Method::POST, "/v1/bookings", Some(request), key)
    }

    /// Books a quote.
    pub fn take(&self, quote: &str, key: Option<&str>) -> Result<Bookings, ClientError> {
        let body = TakeQuote { quote: quote.into() };
        self.call(Method::POST, "/v1/quotes/take", Some(&body), key)
    }

    /// Up to a thousand bookings after identifier `after`; those that ended too with `all`.
    pub fn list(&self, all: bool, after: Option<u64>) -> Result<Bookings, ClientError> {
        let after = after.map_or(String::new(), |after| format!("&after={after}"));
        self.get(&format!("/v1/bookings?limit=1000&all={all}{after}"))
    }

    /// A booking.
    pub fn show(&self, id: u64) -> Result<Booking, ClientError> {
        self.get(&format!("/v1/bookings/{id}"))
    }

    /// Why a booking does not finish sooner.
    pub fn explain(&self, id: u64) -> Result<Explanation, ClientError> {
        self.get(&format!("/v1/bookings/{id}/explain"))
    }

    /// Changes what a booking is for.
    pub fn modify(&self, id: u64, change: &ModifyRequest) -> Result<Bookings, ClientError> {
        self.call(Method::PATCH, &format!("/v1/bookings/{id}"), Some(change), None)
    }

    /// Adds bytes or time. The same `key` adds once, however often it is sent.
    pub fn extend(
        &self,
        id: u64,
        more: &ExtendRequest,
        key: Option<&str>,
    ) -> Result<Bookings, ClientError> {
        self.call(Method::POST, &format!("/v1/bookings/{id}/extend"), Some(more), key)
    }

    /// Commits a booking that is held.
    pub fn commit(&self, id: u64) -> Result<Bookings, ClientError> {
        self.call(Method::POST, &format!("/v1/bookings/{id}/commit"), NOTHING, None)
    }

    /// Ends a booking whose work is done.
    pub fn release(&self, id: u64) -> Result<Bookings, ClientError> {
        self.call(Method::POST, &format!("/v1/bookings/{id}/release"), NOTHING, None)
    }

    /// Cancels a booking.
    pub fn cancel(&self, id: u64) -> Result<Bookings, ClientError> {
        self.call(Method::DELETE, &format!("/v1/bookings/{id}"), NOTHING, None)
    }

    /// Cancels what is left of the series that a booking belongs to.
    pub fn cancel_series(&self, id: u64) -> Result<Bookings, ClientError> {
        self.call(Method::DELETE, &format!("/v1/series/{id}"), NOTHING, None)
    }

    /// What projects have used.
    pub fn usage(&self) -> Result<UsageReport, ClientError> {
        self.get("/v1/usage")
    }

    /// Calls `news` for each change of a booking after number `after`, or from now on, until it
    /// returns false or the connection ends.
    pub fn watch(
        &self,
        after: Option<u64>,
        mut news: impl FnMut(News) -> bool,
    ) -> Result<(), ClientError> {
        let mut request = self.request(Method::GET, "/v1/watch");
        if let Some(after) = after {
            request = request.header("last-event-id", after.to_string());
        }
        let request = request.body(()).map_err(|error| self.senseless(error))?;
        let mut response = self.agent.run(request).map_err(|error| self.broken(error))?;
        if !response.status().is_success() {
            return Err(self.problem(&mut response));
        }
        let mut what = String::new();
        let mut number = 0;
        let mut data = String::new();
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.map_err(|error| self.broken(error))?;
            match line.split_once(": ").unwrap_or((&line, "")) {
                ("event", value) => what = value.into(),
                ("id", value) => number = value.parse().unwrap_or(number),
                ("data", value) => data = value.into(),
                ("", _) if !what.is_empty() => {
                    let booking = serde_json::from_str(&data).ok();
                    if !news(News { what: std::mem::take(&mut what), number, booking }) {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, NOTHING, None)
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        key: Option<&str>,
    ) -> Result<T, ClientError> {
        let has_no_body = matches!(method, Method::GET | Method::DELETE);
        let mut request = self.request(method, path);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let text = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| self.senseless(error))?,
            None => Vec::new(),
        };
        let request = request.header("content-type", "application/json");
        // An order without a body says that its length is 0. As `()` it would be sent in chunks, and
        // the service, which answers without waiting for the last, would then close the connection
        // under the next request (RFC 9112, section 9.6).
        let sent = match has_no_body {
            true => self.agent.run(request.body(()).map_err(|error| self.senseless(error))?),
            false => self.agent.run(request.body(text).map_err(|error| self.senseless(error))?),
        };
        let mut response = sent.map_err(|error| self.broken(error))?;
        let understood = response.status().is_success() || path == "/v1/health";
        if !understood {
            return Err(self.problem(&mut response));
        }
        let text = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec();
        let text = text.map_err(|error| self.broken(error))?;
        serde_json::from_slice(&text).map_err(|error| self.senseless(error))
    }

    fn request(&self, method: Method, path: &str) -> ureq::http::request::Builder {
        let url = format!("{}{path}", self.base);
        let bearer = format!("Bearer {}", self.token);
        Request::builder().method(method).uri(url).header("authorization", bearer)
    }

    fn problem(&self, response: &mut Response<Body>) -> ClientError {
        let status = response.status();
        match response.body_mut().read_to_vec().ok().map(|text| serde_json::from_slice(&text)) {
            Some(Ok(problem)) => ClientError::Problem(Box::new(problem)),
            _ => self.senseless(status),
        }
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Connection { url: self.base.clone(), why: why.to_string() }
    }

    fn senseless(&self, why: impl ToString) -> ClientError {
        ClientError::Answer { url: self.base.clone(), why: why.to_string() }
    }
}

/// A name as a segment of a URL.
fn encoded(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

const NOTHING: Option<&()> = None;
/// The service answers within milliseconds, or is in trouble.
const PATIENCE: Duration = Duration::from_secs(30);
/// A thousand bookings with long vectors.
const ANSWER_MAX: u64 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn an_order_without_a_body_says_so_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let lines = BufReader::new(&stream).lines().map(|line| line.unwrap().to_lowercase());
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
            head
        });
        let _ = Client::new(&url, "lh1-").unwrap().commit(3);
        let head = service.join().unwrap();
        assert!(head.iter().any(|line| line == "content-length: 0"), "{head:?}");
        assert!(!head.iter().any(|line| line.starts_with("transfer-encoding")), "{head:?}");
    }
}
