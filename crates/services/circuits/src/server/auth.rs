//! Who is asking.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::{StatusCode, header, request::Parts};
use longhaul_session::Token;

use super::Site;
use super::accept::{Seat, Staying};
use super::problem::Failure;
use crate::service::config::Role;

/// What a token stands for.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The token's public name.
    pub(super) name: String,
    /// The project that it acts for.
    pub(super) project: String,
    /// What it may.
    pub(super) role: Role,
    /// Keeps its connection as long as the request goes on.
    staying: Option<Arc<Staying>>,
}

/// All tokens that are let in, by the hash of what is presented: comparing hashes tells nothing
/// about the tokens.
#[derive(Debug, Default)]
pub struct Doors(HashMap<[u8; 32], Caller>);

impl Doors {
    /// Lets a token in.
    pub fn open(&mut self, token: &Token, project: &str, role: Role) {
        let name = token.key().id().to_string();
        let caller = Caller { name, project: project.into(), role, staying: None };
        self.0.insert(hash(&token.to_string()), caller);
    }

    /// Whether nobody is let in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn caller(&self, token: &str) -> Result<Caller, Failure> {
        self.0.get(&hash(token)).cloned().ok_or_else(|| refused("this token is not known here"))
    }
}

impl Caller {
    /// Whether it may see and touch what belongs to `project`.
    pub(super) fn sees(&self, project: &str) -> bool {
        self.role == Role::Operator || self.project == project
    }

    /// Fails unless it has at least this role.
    pub(super) fn must_be(&self, role: Role) -> Result<(), Failure> {
        if self.role >= role {
            return Ok(());
        }
        let detail = format!("this takes the role {role:?}, the token has {:?}", self.role);
        let title = "This token may not do that";
        Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", title, detail.to_lowercase()))
    }
}

impl FromRequestParts<Site> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, Failure> {
        let value = parts.headers.get(header::AUTHORIZATION);
        let value = value.ok_or_else(|| refused("no token came with the request"))?;
        // The scheme has no case (RFC 9110, section 11.1).
        let bearer = value.to_str().ok().and_then(|value| value.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let (_, token) = bearer.ok_or_else(|| refused("expected Authorization: Bearer TOKEN"))?;
        let mut caller = site.doors.caller(token.trim())?;
        if let Some(seat) = parts.extensions.get::<Arc<Seat>>() {
            let staying = seat.stay().ok_or_else(Failure::crowded)?;
            caller.staying = Some(Arc::new(staying));
        }
        Ok(caller)
    }
}

fn refused(detail: &str) -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", "Who is asking?", detail)
}

fn hash(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}
