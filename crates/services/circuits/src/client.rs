//! A small, blocking client of the service, for commands, transfers and gateways.
//!
//! ```no_run
//! use longhaul_circuits::api::{BookRequest, FileWant};
//! use longhaul_circuits::client::{Access, Client};
//!
//! let client = Client::new("http://127.0.0.1:7430", "lh1-...", &Access::default())?;
//! let file = FileWant { bytes: 5_000_000_000, max_rate_bps: 20_000_000_000, ..FileWant::default() };
//! let (from, to) = (Some("gva".into()), Some("chi".into()));
//! let request = BookRequest { from, to, file: Some(file), ..BookRequest::default() };
//! let made = client.book(&request, Some("run-17"))?;
//! println!("done by {}", made.bookings[0].finish);
//! # Ok::<(), longhaul_circuits::client::ClientError>(())
//! ```

mod answer;
mod authorities;
mod names;
mod reach;

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::Agent;
use ureq::http::{Method, Request};

pub use self::answer::ClientError;
pub use self::authorities::AuthoritiesError;
pub use self::reach::Access;
use crate::api::{
    Availability, BookRequest, Booking, Bookings, Explanation, ExtendRequest, Health,
    ModifyRequest, Preview, TakeQuote, Topology, UsageReport,
};

/// Talks to one service, which it does not trust: each answer has [`Client::PATIENCE`] in all and is
/// bounded, fields that it does not know are left out, whatever acts on a terminal is written as
/// [`longhaul_units::shown`] writes it, and no redirection is followed. Clones share connections.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    base: String,
    token: String,
    /// Its requests end by then.
    deadline: Option<Instant>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
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
    /// Longest time of an answer, from the look-up of the service's name to its last byte: the
    /// service answers within milliseconds, or is in trouble.
    pub const PATIENCE: Duration = Duration::from_secs(30);

    /// A client for the service at `url`, `https://HOST[:PORT]`, with a token.
    ///
    /// # Errors
    /// `url` is none, or the token would cross a network in the clear and `access` does not allow that.
    pub fn new(url: &str, token: &str, access: &Access) -> Result<Self, ClientError> {
        let (base, agent) = reach::agent(url, access)?;
        Ok(Self { agent, base, token: token.into(), deadline: None })
    }

    /// The same, for several requests that all end within [`Self::PATIENCE`] from now.
    #[must_use]
    pub fn for_one_answer(&self) -> Self {
        Self { deadline: Some(Instant::now() + Self::PATIENCE), ..self.clone() }
    }

    /// Where the service is.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Asks for the state of the service.
    pub fn health(&self) -> Result<Health, ClientError> {
        self.get("/v1/health")
    }

    /// The network.
    pub fn topology(&self) -> Result<Topology, ClientError> {
        self.get("/v1/topology")
    }

    /// Asks for the free capacity of a link within a day.
    pub fn availability(&self, link: &str) -> Result<Availability, ClientError> {
        self.get(&format!("/v1/links/{}/availability", encoded(link)))
    }

    /// Asks for the outcome a request would have.
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
    ///
    /// # Errors
    /// Among others that there is to be more, and nothing came after `after`: to ask for what comes
    /// after the last one comes to an end.
    pub fn list(&self, all: bool, after: Option<u64>) -> Result<Bookings, ClientError> {
        let from = after.map_or(String::new(), |after| format!("&after={after}"));
        let page: Bookings = self.get(&format!("/v1/bookings?limit=1000&all={all}{from}"))?;
        let ids = after.into_iter().chain(page.bookings.iter().map(|booking| booking.id));
        let leads_on = !page.bookings.is_empty() && ids.is_sorted_by(|id, next| id < next);
        match leads_on || page.more_after.is_none() {
            true => Ok(page),
            false => Err(self.senseless("bookings that lead nowhere")),
        }
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

    /// Asks for the usage of projects.
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
        let request = reach::watching(&self.agent, request);
        let response = self.agent.run(request).map_err(|error| self.broken(error))?;
        if !response.status().is_success() {
            return Err(answer::problem(&self.base, response));
        }
        let mut what = String::new();
        let mut number = 0;
        let mut data = String::new();
        let mut stream = BufReader::new(response.into_body().into_reader());
        loop {
            let mut line = String::new();
            let read = stream.by_ref().take(answer::MAX).read_line(&mut line);
            if read.map_err(|error| self.broken(error))? == 0 {
                return Ok(());
            }
            let line = line.trim_end_matches(['\r', '\n']);
            match line.split_once(": ").unwrap_or((line, "")) {
                ("event", value) => what = answer::tamed(value),
                ("id", value) => number = value.parse().unwrap_or(number),
                ("data", value) => data = value.into(),
                ("", _) if !what.is_empty() => {
                    let booking = answer::read(data.as_bytes()).ok();
                    if !news(News { what: std::mem::take(&mut what), number, booking }) {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
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
        let patience = match self.deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => Self::PATIENCE,
        };
        // An order without a body says that its length is 0. As `()` it would be sent in chunks, and
        // the service, which answers without waiting for the last, would then close the connection
        // under the next request (RFC 9112, section 9.6).
        let sent = match has_no_body {
            true => {
                let request = request.body(()).map_err(|error| self.senseless(error))?;
                self.agent.run(reach::within(&self.agent, request, patience))
            }
            false => {
                let request = request.body(text).map_err(|error| self.senseless(error))?;
                self.agent.run(reach::within(&self.agent, request, patience))
            }
        };
        let mut response = sent.map_err(|error| self.broken(error))?;
        let understood = response.status().is_success() || path == "/v1/health";
        if !understood {
            return Err(answer::problem(&self.base, response));
        }
        let text = answer::body(&mut response).map_err(|error| self.broken(error))?;
        answer::read(&text).map_err(|error| self.senseless(error))
    }

    fn request(&self, method: Method, path: &str) -> ureq::http::request::Builder {
        let url = format!("{}{path}", self.base);
        let bearer = format!("Bearer {}", self.token);
        Request::builder().method(method).uri(url).header("authorization", bearer)
    }

    fn broken(&self, why: impl Into<ureq::Error>) -> ClientError {
        answer::broken(&self.base, why.into())
    }

    fn senseless(&self, why: impl ToString) -> ClientError {
        answer::senseless(&self.base, why)
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
        let _ = Client::new(&url, "lh1-", &Access::default()).unwrap().commit(3);
        let head = service.join().unwrap();
        assert!(head.iter().any(|line| line == "content-length: 0"), "{head:?}");
        assert!(!head.iter().any(|line| line.starts_with("transfer-encoding")), "{head:?}");
    }
}
