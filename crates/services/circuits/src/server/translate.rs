//! Translation between what travels (names, times, bits per second) and what the ledger knows
//! (ticks, channels, numbers).

mod amounts;
mod answers;
mod asked;

use jiff::Timestamp;
use longhaul_units::Instant;

pub(super) use self::amounts::{capacity, ticks, volume};
pub(super) use self::answers::{closed, ended, open, plan, recorded};
pub(super) use self::asked::{Asked, modified, request};
use super::problem::ProblemResponse;
use crate::ledger::Route;
use crate::service::View;

/// The number of a link.
pub(super) fn link(view: &View, name: &str) -> Result<u32, ProblemResponse> {
    let found = view.links.iter().position(|link| link.name == name);
    let number = found.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| {
        ProblemResponse::not_found("unknown-link", format!("there is no link {name:?}"))
    })
}

/// Names of the links of a route.
pub(super) fn names(view: &View, route: &Route) -> Vec<String> {
    let name = |link: &u32| view.links.get(*link as usize).map(|link| link.name.clone());
    route.0.iter().filter_map(name).collect()
}

pub(super) fn instant(name: &str, time: Timestamp) -> Result<Instant, ProblemResponse> {
    let nanos = u64::try_from(time.as_nanosecond());
    nanos
        .map(Instant::from_nanos)
        .map_err(|_| invalid(format!("{name}: {time} is not a time this service knows")))
}

pub(super) fn invalid(detail: impl Into<String>) -> ProblemResponse {
    ProblemResponse::invalid(detail)
}
