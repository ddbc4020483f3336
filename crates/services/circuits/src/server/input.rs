//! Bodies, queries and keys of requests.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::{HeaderMap, StatusCode, request::Parts};
use serde::de::DeserializeOwned;

use super::Site;
use super::problem::ProblemResponse;
use crate::api::Object;
use crate::ledger::Id;

/// A JSON body, and its fingerprint.
pub(super) struct Body<T> {
    pub(super) value: T,
    pub(super) fingerprint: String,
}

impl<T: DeserializeOwned> FromRequest<Site> for Body<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, site: &Site) -> Result<Self, ProblemResponse> {
        let path = request.uri().path().to_owned();
        let patience = site.service.config().limits.body;
        let read = tokio::time::timeout(patience, Bytes::from_request(request, site)).await;
        let read = read.map_err(|_| {
            let detail = format!("the body: not all of it came within {patience:?}");
            let title = "The request came too slowly";
            ProblemResponse::new(StatusCode::REQUEST_TIMEOUT, "too-slow", title, detail)
        })?;
        let bytes = read.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let detail = format!("the body: more than {BODY_MAX} bytes");
                ProblemResponse::new(
                    error.status(),
                    "too-large",
                    "The request is too large",
                    detail,
                )
            }
            _ => ProblemResponse::malformed(error.body_text()),
        })?;
        // A body that is not there asks for nothing in particular.
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let mut reader = serde_json::Deserializer::from_slice(text);
        let Object(value) = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| ProblemResponse::malformed(format!("the body: {error}")))?;
        reader.end().map_err(|error| ProblemResponse::malformed(format!("the body: {error}")))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(path.as_bytes()).update(&[0]).update(&bytes);
        let fingerprint = hasher.finalize().to_hex()[..32].to_owned();
        Ok(Self { value, fingerprint })
    }
}

/// The identifier in the path.
pub(super) struct Which(pub(super) Id);

impl FromRequestParts<Site> for Which {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, ProblemResponse> {
        segment(parts, site).await.map(Self)
    }
}

/// The name in the path.
pub(super) struct Named(pub(super) String);

impl FromRequestParts<Site> for Named {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, ProblemResponse> {
        segment(parts, site).await.map(Self)
    }
}

/// The part of the path that varies.
async fn segment<T: DeserializeOwned + Send>(
    parts: &mut Parts,
    site: &Site,
) -> Result<T, ProblemResponse> {
    let found = Path::<T>::from_request_parts(parts, site).await;
    found.map(|Path(value)| value).map_err(|error| ProblemResponse::malformed(error.body_text()))
}

/// The query: the text behind the question mark.
pub(super) struct Filter<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Site> for Filter<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, ProblemResponse> {
        let Query(value) = Query::<T>::from_request_parts(parts, site)
            .await
            .map_err(|error| ProblemResponse::malformed(error.body_text()))?;
        Ok(Self(value))
    }
}

/// The idempotency key of a request, with the fingerprint of its body.
pub(super) fn key(
    headers: &HeaderMap,
    fingerprint: &str,
) -> Result<Option<(String, String)>, ProblemResponse> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=KEY_MAX).contains(&text.len()));
    match text {
        Some(text) => Ok(Some((text.to_owned(), fingerprint.to_owned()))),
        None => Err(ProblemResponse::malformed(format!(
            "Idempotency-Key: expected 1 to {KEY_MAX} letters"
        ))),
    }
}

/// The largest request is a path of sixteen links with names.
pub(super) const BODY_MAX: usize = 64 * 1024;
/// Longest idempotency key.
pub(super) const KEY_MAX: usize = 200;
