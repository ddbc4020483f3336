//! Bookings that a caller may touch.

use std::sync::Arc;

use super::auth::Caller;
use super::problem::ProblemResponse;
use crate::ledger::{Id, Refusal};
use crate::service::{Open, View};

/// An open booking that the caller may touch.
pub(super) fn own<'a>(
    view: &'a View,
    caller: &Caller,
    id: Id,
) -> Result<&'a Arc<Open>, ProblemResponse> {
    if let Some(open) = view.open.get(&id).filter(|open| caller.sees(&open.entry.project)) {
        return Ok(open);
    }
    let closed = view.closed.get(&id).filter(|closed| caller.sees(&closed.entry.project));
    Err(match closed {
        Some(closed) => {
            let state = closed.ending.name().into();
            ProblemResponse::refused(view, &Refusal::Closed { id, state })
        }
        None => unknown(view, id),
    })
}

pub(super) fn unknown(view: &View, id: Id) -> ProblemResponse {
    ProblemResponse::refused(view, &Refusal::UnknownBooking { id })
}
