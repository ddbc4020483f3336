//! Errors as RFC 9457 problems.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::{Explanation, Problem};
use crate::ledger::Refusal;
use crate::service::{ServiceError, Status, View};
use crate::store::StoreError;

/// A request that is not done.
#[derive(Clone, Debug)]
pub(crate) struct ProblemResponse {
    pub(super) problem: Box<Problem>,
    /// Seconds after which it makes sense to try again, where the status is one of these.
    retry_after: u64,
}

impl ProblemResponse {
    pub(super) fn new(
        status: StatusCode,
        kind: &str,
        title: &str,
        detail: impl Into<String>,
    ) -> Self {
        let problem = Box::new(Problem {
            kind: format!("urn:longhaul:circuits:{kind}"),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into(),
            explanation: None,
            leader: None,
        });
        Self { problem, retry_after: 1 }
    }

    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        let title = "The request cannot be read";
        Self::new(StatusCode::BAD_REQUEST, "malformed", title, detail)
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        let title = "The request makes no sense";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", title, detail)
    }

    pub(super) fn not_found(kind: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, kind, "There is no such thing", detail)
    }

    /// The connection has to make room for others: the answer may not arrive.
    pub(super) fn crowded() -> Self {
        let detail = "too many connections are open; nothing was booked or changed";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Too much to do", detail)
    }

    /// This token asks for more than it may; after `wait` it may ask again.
    pub(super) fn too_many(detail: impl Into<String>, wait: Duration) -> Self {
        let title = "Too much of one token";
        let status = StatusCode::TOO_MANY_REQUESTS;
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { retry_after: seconds.max(1), ..Self::new(status, "too-many", title, detail) }
    }

    pub(super) fn explained(mut self, explanation: Option<Explanation>) -> Self {
        self.problem.explanation = explanation;
        self
    }

    /// A refusal for the client, with times for ticks.
    pub(super) fn refused(view: &View, refusal: &Refusal) -> Self {
        let time = |tick| view.timestamp(tick);
        let link =
            |number: u32| view.links.get(number as usize).map_or("?", |link| link.name.as_str());
        let detail = match refusal {
            Refusal::RateQuota { max_rate } => {
                format!("{refusal}: at most {}", view.grid.rate(*max_rate))
            }
            Refusal::HorizonQuota { until } | Refusal::BeyondHorizon { until } => {
                format!("{refusal}: bookings are taken up to {}", time(*until))
            }
            Refusal::ShareQuota { link: number, held, limit } => format!(
                "{refusal}: its open bookings hold {} of {} on {}",
                view.grid.bytes(*held),
                view.grid.bytes(*limit),
                link(*number)
            ),
            Refusal::Taken { link: number, start, end } => format!(
                "{refusal}: {} between {} and {}; ask for a new quote",
                link(*number),
                time(*start),
                time(*end)
            ),
            Refusal::NoRoom { occurrence } if *occurrence > 0 => {
                format!("{refusal}, for occurrence {}; none was booked", occurrence + 1)
            }
            other => other.to_string(),
        };
        let (status, kind, title) = match refusal {
            Refusal::UnknownBooking { .. } => {
                (StatusCode::NOT_FOUND, "unknown-booking", "There is no such thing")
            }
            Refusal::Closed { .. } => (StatusCode::CONFLICT, "ended", "The booking has ended"),
            Refusal::NotHeld { .. } => (StatusCode::CONFLICT, "not-held", "It is not held"),
            Refusal::UnknownProject | Refusal::NotAllowed => {
                (StatusCode::FORBIDDEN, "forbidden", "This token may not do that")
            }
            Refusal::LinkExists { .. } => (StatusCode::CONFLICT, "exists", "It exists already"),
            Refusal::KeyReused => {
                (StatusCode::UNPROCESSABLE_ENTITY, "key-reused", "The key was used before")
            }
            Refusal::RateQuota { .. }
            | Refusal::HorizonQuota { .. }
            | Refusal::ShareQuota { .. } => {
                (StatusCode::FORBIDDEN, "quota", "The project may not book this much")
            }
            Refusal::Taken { .. } => (StatusCode::CONFLICT, "stale-quote", "The quote is stale"),
            Refusal::NoRoom { .. } => (StatusCode::CONFLICT, "no-room", "There is no room"),
            Refusal::BeyondHorizon { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, "horizon", "Too far ahead")
            }
            _ => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "The request makes no sense"),
        };
        Self::new(status, kind, title, detail)
    }

    /// Another node leads.
    pub(super) fn standby(status: &Status) -> Self {
        let detail = format!("{}; nothing was booked or changed", status.text);
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let mut response = Self::new(unavailable, "not-leader", "Another node leads", detail);
        response.problem.leader.clone_from(&status.leader);
        response
    }

    pub(super) fn of(view: &View, error: &ServiceError) -> Self {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let nothing = "nothing was booked or changed";
        match error {
            ServiceError::Refused(refusal) => Self::refused(view, refusal),
            ServiceError::Busy => {
                Self::new(unavailable, "busy", "Too much to do", error.to_string())
            }
            ServiceError::Unavailable(StoreError::Full) => {
                let detail = format!("the service's store is full; {nothing}");
                let title = "The store is full";
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "store-full", title, detail)
            }
            ServiceError::Unavailable(StoreError::ReadOnly) => {
                let detail = format!("the service's store is read-only; {nothing}");
                Self::new(unavailable, "store-read-only", "The store is read-only", detail)
            }
            // The connection may have broken after the database kept the group.
            ServiceError::Unavailable(_) => {
                let detail = format!(
                    "{error}; whether it was booked is not known: send it again with the same \
                     idempotency key"
                );
                Self::new(unavailable, "store-fails", "The store fails", detail)
            }
            ServiceError::Stopping => {
                Self::new(unavailable, "stopping", "The service stops", error.to_string())
            }
        }
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
