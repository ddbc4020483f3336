//! Authentication: the caller behind a token.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::{StatusCode, header, request::Parts};
use longhaul_session::Token;

use super::Site;
use super::accept::{Admitted, Staying};
use super::limited::Place;
use super::problem::ProblemResponse;
use crate::api::Recurring;
use crate::service::config::Role;

/// The holder of a token.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The token's public name.
    pub(super) name: String,
    /// The project that it acts for.
    pub(super) project: String,
    /// Its rights.
    pub(super) role: Role,
    /// Counts it holds as long as its request goes on.
    held: Vec<Held>,
}

/// Its connection, and its place among the requests of its token.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "given back when dropped")]
enum Held {
    Connection(Arc<Staying>),
    Place(Arc<Place>),
}

/// All tokens that are let in, by the hash of what is presented: comparing hashes tells nothing
/// about the tokens.
#[derive(Debug, Default)]
pub struct Tokens(HashMap<[u8; 32], Caller>);

impl Tokens {
    /// Lets a token in.
    pub fn insert(&mut self, token: &Token, project: &str, role: Role) {
        let caller = Caller::of(&token.key().id().to_string(), project, role);
        self.0.insert(hash(&token.to_string()), caller);
    }

    /// True if nobody is let in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn caller(&self, token: &str) -> Result<Caller, ProblemResponse> {
        self.0.get(&hash(token)).cloned().ok_or_else(|| refused("this token is not known here"))
    }
}

impl Caller {
    pub(super) fn of(name: &str, project: &str, role: Role) -> Self {
        Self { name: name.into(), project: project.into(), role, held: Vec::new() }
    }

    /// Counts each occurrence of a recurring request but the first, which was counted as it came.
    pub(super) fn pay(
        &self,
        site: &Site,
        recurring: Option<&Recurring>,
    ) -> Result<(), ProblemResponse> {
        let more = recurring.map_or(0, |rule| rule.count.saturating_sub(1));
        site.paced(&self.name, more)
    }

    /// Fails if its bookings may not have traffic to `destination` sorted into them.
    pub(super) fn may_name(
        &self,
        site: &Site,
        destination: Option<IpAddr>,
    ) -> Result<(), ProblemResponse> {
        let Some(destination) = destination else { return Ok(()) };
        site.service.config().traffic.may_name(&self.project, destination).map_err(|why| {
            let title = "The project may not book for this destination";
            ProblemResponse::new(
                StatusCode::FORBIDDEN,
                "destination",
                title,
                format!("destination: {why}"),
            )
        })
    }

    /// True if it may see and touch what belongs to `project`.
    pub(super) fn sees(&self, project: &str) -> bool {
        self.role == Role::Operator || self.project == project
    }

    /// Fails unless it has at least this role.
    pub(super) fn must_be(&self, role: Role) -> Result<(), ProblemResponse> {
        if self.role >= role {
            return Ok(());
        }
        let detail = format!("this takes the role {role:?}, the token has {:?}", self.role);
        let title = "This token may not do that";
        Err(ProblemResponse::new(StatusCode::FORBIDDEN, "forbidden", title, detail.to_lowercase()))
    }
}

impl FromRequestParts<Site> for Caller {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, ProblemResponse> {
        let value = parts.headers.get(header::AUTHORIZATION);
        let value = value.ok_or_else(|| refused("no token came with the request"))?;
        // The scheme has no case (RFC 9110, section 11.1).
        let bearer = value.to_str().ok().and_then(|value| value.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let (_, token) = bearer.ok_or_else(|| refused("expected Authorization: Bearer TOKEN"))?;
        let mut caller = site.tokens.caller(token.trim())?;
        if let Some(admitted) = parts.extensions.get::<Arc<Admitted>>() {
            let staying = admitted.stay().ok_or_else(ProblemResponse::crowded)?;
            caller.held.push(Held::Connection(Arc::new(staying)));
        }
        let place = site.requests.take(&caller.name, REQUESTS_AT_A_TIME).ok_or_else(|| {
            let detail = format!("this token has {REQUESTS_AT_A_TIME} requests under way already");
            ProblemResponse::too_many(detail, Duration::from_secs(1))
        })?;
        caller.held.push(Held::Place(Arc::new(place)));
        site.paced(&caller.name, 1)?;
        Ok(caller)
    }
}

impl Site {
    /// Counts so many requests of a token.
    fn paced(&self, token: &str, requests: u32) -> Result<(), ProblemResponse> {
        let pace = self.service.config().limits.pace;
        self.rates.take(token, requests, pace, self.started.elapsed()).map_err(|wait| {
            let detail = format!(
                "more than {} requests a second come with this token; nothing was booked or changed",
                pace.rate
            );
            ProblemResponse::too_many(detail, wait)
        })
    }
}

/// Requests of a token under way at a time, those who watch included.
const REQUESTS_AT_A_TIME: usize = 64;

fn refused(detail: &str) -> ProblemResponse {
    ProblemResponse::new(StatusCode::UNAUTHORIZED, "unauthorized", "Who is asking?", detail)
}

fn hash(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}
