//! Making, changing and ending bookings.

use std::ops::Bound;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::Caller;
use super::input::{Body, Filter, Which, key};
use super::ownership::{own, unknown};
use super::problem::ProblemResponse;
use super::{Site, quotes, reasons, translate};
use crate::api::{self, BookRequest, Bookings, ExtendRequest, ModifyRequest, TakeQuote};
use crate::ledger::{Command, Id, Order, Refusal};
use crate::service::config::Role;
use crate::service::{ServiceError, View};

type Answer<T> = Result<T, ProblemResponse>;

/// Books; a recurring request gives several bookings, all or none.
#[utoipa::path(post, path = "/v1/bookings", request_body = BookRequest, responses(
    (status = 201, body = Bookings),
    (status = 200, description = "The key came before", body = Bookings)))]
pub(super) async fn book(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Body { value, fingerprint }: Body<BookRequest>,
) -> Answer<(StatusCode, Json<Bookings>)> {
    caller.must_be(Role::User)?;
    caller.pay(&site, value.recurring.as_ref())?;
    caller.may_name(&site, value.destination)?;
    let key = key(&headers, &fingerprint)?;
    let (asked, command) = match wanted(&site, &value) {
        Ok(wanted) => wanted,
        Err(problem) => {
            return Ok((StatusCode::OK, before(&site, &caller, key, problem).await?));
        }
    };
    match site.service.decide(order(&caller, key, command)).await {
        Ok(decided) => Ok((created(decided.repeated), Json(made(&site, &decided.ids)))),
        Err(error) => {
            let view = site.service.view().without_bookings();
            let why = reasons::of_request(&view, &error, &caller.project, &asked);
            Err(ProblemResponse::of(&view, &error).explained(why))
        }
    }
}

/// The request, and the command that books it.
fn wanted(site: &Site, value: &BookRequest) -> Answer<(translate::Asked, Command)> {
    let view = site.service.view();
    let asked = translate::request(&view, value)?;
    let held_until = match value.hold_for_seconds {
        None => None,
        Some(seconds) if (1..=HOLD_MAX).contains(&seconds) => {
            let ticks = view.grid.ticks(std::time::Duration::from_secs(seconds.into()));
            Some(view.now().saturating_add(ticks))
        }
        Some(_) => {
            return Err(ProblemResponse::invalid(format!(
                "hold_for_seconds: expected 1 to {HOLD_MAX}"
            )));
        }
    };
    let translate::Asked { requests, paths, note } = asked.clone();
    Ok((asked, Command::Book { requests, paths, held_until, note }))
}

/// Books a plan as it was quoted; of a recurring request, all of its times or none.
#[utoipa::path(post, path = "/v1/quotes/take", request_body = TakeQuote, responses(
    (status = 201, body = Bookings),
    (status = 200, description = "The key came before", body = Bookings)))]
pub(super) async fn take(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Body { value, fingerprint }: Body<TakeQuote>,
) -> Answer<(StatusCode, Json<Bookings>)> {
    caller.must_be(Role::User)?;
    let key = key(&headers, &fingerprint)?;
    let taking =
        quotes::take(&site, &caller, &value.quote, |command| order(&caller, key.clone(), command));
    let decided = match taking {
        Ok(taking) => taking.await.unwrap_or(Err(ServiceError::Stopping)),
        Err(problem) => {
            return Ok((StatusCode::OK, before(&site, &caller, key, problem).await?));
        }
    };
    let decided = decided.map_err(|error| match &error {
        // It was good when it was given: the time to take it has passed.
        ServiceError::Refused(Refusal::Past { .. }) => quotes::stale(),
        _ => ProblemResponse::of(&site.service.view(), &error),
    })?;
    Ok((created(decided.repeated), Json(made(&site, &decided.ids))))
}

/// Which bookings to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListFilter {
    /// Only of this project.
    project: Option<String>,
    /// Only over this link.
    link: Option<String>,
    /// Only those that hold anything after this.
    from: Option<Timestamp>,
    /// Only those that hold anything before this.
    to: Option<Timestamp>,
    /// Include those that ended.
    #[serde(default)]
    all: bool,
    /// Only of higher identifiers.
    after: Option<u64>,
    /// No more than so many, up to 1000.
    limit: Option<usize>,
}

/// Lists bookings: those of the token's project, or everybody's for an operator.
#[utoipa::path(get, path = "/v1/bookings", params(ListFilter), responses(
    (status = 200, body = Bookings)))]
pub(super) async fn list(
    State(site): State<Site>,
    caller: Caller,
    Filter(filter): Filter<ListFilter>,
) -> Answer<Json<Bookings>> {
    let view = site.service.view();
    let link = filter.link.as_ref().map(|name| translate::link(&view, name)).transpose()?;
    let tick = |time: Option<Timestamp>, name| -> Answer<Option<u64>> {
        let instant = time.map(|time| translate::instant(name, time)).transpose()?;
        Ok(instant.map(|instant| view.grid.tick_by(instant)))
    };
    let (from, to) = (tick(filter.from, "from")?, tick(filter.to, "to")?);
    let limit = filter.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let after = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
    let wanted = |project: &str, links: &[u32], start: u64, finish: u64| {
        caller.sees(project)
            && filter.project.as_ref().is_none_or(|only| only == project)
            && link.is_none_or(|link| links.contains(&link))
            && from.is_none_or(|from| finish > from)
            && to.is_none_or(|to| start < to)
    };
    let open = view.open.range((after, Bound::Unbounded)).filter(|(_, open)| {
        let booking = &open.booking;
        let links: Vec<u32> = booking.path.links().iter().map(|link| link.0).collect();
        let start = booking.vector.start().unwrap_or(0);
        wanted(&open.entry.project, &links, start, booking.finish())
    });
    let mut found: Vec<api::Booking> =
        open.take(limit + 1).map(|(id, open)| translate::open(&view, *id, open)).collect();
    if filter.all {
        let closed = view.closed.range((after, Bound::Unbounded)).filter(|(_, closed)| {
            let start = closed.ranges.0.first().map_or(0, |range| range.0);
            let finish = closed.ranges.0.last().map_or(0, |range| range.1);
            wanted(&closed.entry.project, &closed.path.0, start, finish)
        });
        let closed = closed.take(limit + 1);
        found.extend(closed.map(|(id, closed)| translate::closed(&view, *id, closed)));
        found.sort_by_key(|booking| booking.id);
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let more_after = found.last().map(|booking| booking.id).filter(|_| more);
    Ok(Json(Bookings { bookings: found, more_after }))
}

/// Shows a booking.
#[utoipa::path(get, path = "/v1/bookings/{id}", params(("id" = u64, Path,)), responses(
    (status = 200, body = api::Booking)))]
pub(super) async fn show(
    State(site): State<Site>,
    caller: Caller,
    Which(id): Which,
) -> Answer<Json<api::Booking>> {
    let view = site.service.view();
    let booking = find(&view, id).filter(|booking| caller.sees(&booking.project));
    booking.map(Json).ok_or_else(|| unknown(&view, id))
}

/// Changes what a booking is for. What is ahead of it is planned again, or nothing changes.
#[utoipa::path(patch, path = "/v1/bookings/{id}", params(("id" = u64, Path,)),
    request_body = ModifyRequest, responses((status = 200, body = Bookings)))]
pub(super) async fn modify(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Which(id): Which,
    Body { value, fingerprint }: Body<ModifyRequest>,
) -> Answer<Json<Bookings>> {
    caller.must_be(Role::User)?;
    if value == ModifyRequest::default() {
        return Err(ProblemResponse::invalid("nothing to change"));
    }
    let key = key(&headers, &fingerprint)?;
    let command = || {
        let view = site.service.view();
        let open = own(&view, &caller, id)?;
        let (request, bytes) = translate::modified(&view, open, &value)?;
        let paths = vec![crate::ledger::Route::of(&open.booking.path)];
        Ok(Command::Modify { id, request, paths, bytes })
    };
    match command() {
        Ok(command) => change(&site, order(&caller, key, command)).await,
        Err(problem) => before(&site, &caller, key, problem).await,
    }
}

/// Adds bytes to a file, or time to a hold.
#[utoipa::path(post, path = "/v1/bookings/{id}/extend", params(("id" = u64, Path,)),
    request_body = ExtendRequest, responses((status = 200, body = Bookings)))]
pub(super) async fn extend(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Which(id): Which,
    Body { value, fingerprint }: Body<ExtendRequest>,
) -> Answer<Json<Bookings>> {
    caller.must_be(Role::User)?;
    let key = key(&headers, &fingerprint)?;
    let command = || {
        let view = site.service.view();
        let open = own(&view, &caller, id)?;
        let by = match (open.booking.request, value.bytes, value.duration_ms) {
            (longhaul_calendar::Request::File(_), Some(bytes), None) => {
                translate::volume(&view, "bytes", bytes, open.entry.note.margin_ppm)?
            }
            (longhaul_calendar::Request::Hold(_), None, Some(time)) => {
                translate::ticks(&view, "duration_ms", time)?
            }
            _ => {
                let detail = "a file is extended by bytes, a hold by duration_ms";
                return Err(ProblemResponse::invalid(detail));
            }
        };
        Ok(Command::Extend { id, by, bytes: value.bytes })
    };
    match command() {
        Ok(command) => change(&site, order(&caller, key, command)).await,
        Err(problem) => before(&site, &caller, key, problem).await,
    }
}

/// Commits a booking that is held.
#[utoipa::path(post, path = "/v1/bookings/{id}/commit", params(("id" = u64, Path,)), responses(
    (status = 200, body = Bookings)))]
pub(super) async fn commit(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Which(id): Which,
) -> Answer<Json<Bookings>> {
    act(&site, &caller, &headers, Command::Commit { id }).await
}

/// Ends a booking whose work is done: what is ahead of it is free for others.
#[utoipa::path(post, path = "/v1/bookings/{id}/release", params(("id" = u64, Path,)), responses(
    (status = 200, body = Bookings)))]
pub(super) async fn release(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Which(id): Which,
) -> Answer<Json<Bookings>> {
    act(&site, &caller, &headers, Command::Release { id }).await
}

/// Cancels a booking.
#[utoipa::path(delete, path = "/v1/bookings/{id}", params(("id" = u64, Path,)), responses(
    (status = 200, body = Bookings)))]
pub(super) async fn cancel(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Which(id): Which,
) -> Answer<Json<Bookings>> {
    act(&site, &caller, &headers, Command::Cancel { id, series: false }).await
}

/// Cancels what is left of the series that a booking belongs to.
#[utoipa::path(delete, path = "/v1/series/{id}", params(("id" = u64, Path,)), responses(
    (status = 200, body = Bookings)))]
pub(super) async fn cancel_series(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Which(id): Which,
) -> Answer<Json<Bookings>> {
    caller.must_be(Role::User)?;
    let key = key(&headers, &format!("{:?}", Command::Cancel { id, series: true }))?;
    let first = first_of_series(&site.service.view(), &caller, id);
    match first {
        Ok(id) => change(&site, order(&caller, key, Command::Cancel { id, series: true })).await,
        Err(problem) => before(&site, &caller, key, problem).await,
    }
}

/// The first of the series that a booking belongs to.
fn first_of_series(view: &View, caller: &Caller, id: Id) -> Answer<Id> {
    let open = view.open.get(&id).map(|open| &open.entry);
    let entry = open.or_else(|| view.closed.get(&id).map(|closed| &closed.entry));
    let entry = entry.filter(|entry| caller.sees(&entry.project));
    let none =
        || ProblemResponse::not_found("unknown-series", format!("booking {id} is of no series"));
    entry.ok_or_else(|| unknown(view, id))?.series.ok_or_else(none)
}

/// Plans all bookings that may move again, within promises. For operators.
#[utoipa::path(post, path = "/v1/replan", responses(
    (status = 200, description = "Those that moved", body = Bookings)))]
pub(super) async fn replan(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
) -> Answer<Json<Bookings>> {
    caller.must_be(Role::Operator)?;
    act(&site, &caller, &headers, Command::Replan).await
}

async fn act(
    site: &Site,
    caller: &Caller,
    headers: &HeaderMap,
    command: Command,
) -> Answer<Json<Bookings>> {
    caller.must_be(Role::User)?;
    let fingerprint = format!("{command:?}");
    let key = key(headers, &fingerprint)?;
    change(site, order(caller, key, command)).await
}

async fn change(site: &Site, order: Order) -> Answer<Json<Bookings>> {
    let command = order.command.clone();
    match site.service.decide(order).await {
        Ok(decided) => Ok(Json(made(site, &decided.ids))),
        Err(error) => Err(unchanged(site, &error, &command)),
    }
}

/// Why nothing was changed.
fn unchanged(site: &Site, error: &ServiceError, command: &Command) -> ProblemResponse {
    let (view, open) = {
        let view = site.service.view();
        let open = match command {
            Command::Modify { id, .. } | Command::Extend { id, .. } => view.open.get(id).cloned(),
            _ => None,
        };
        (view.without_bookings(), open)
    };
    let why = open.and_then(|open| reasons::of_change(&view, error, &open, command));
    ProblemResponse::of(&view, error).explained(why)
}

/// Outcome of the same request when it came before under this key; else the failure. A request that
/// made sense then need not any more: its start has passed, its quote is old, its booking has
/// ended.
async fn before(
    site: &Site,
    caller: &Caller,
    key: Option<(String, String)>,
    problem: ProblemResponse,
) -> Answer<Json<Bookings>> {
    let Some(key) = key else { return Err(problem) };
    let ids = site.service.known(&caller.project, key).await.ok_or(problem)?;
    Ok(Json(made(site, &ids)))
}

fn order(caller: &Caller, key: Option<(String, String)>, command: Command) -> Order {
    Order {
        actor: caller.name.clone(),
        project: caller.project.clone(),
        operator: caller.role == Role::Operator,
        key,
        command,
    }
}

/// Status of a request that makes something: repeated under the same key, it makes nothing new.
pub(super) fn created(repeated: bool) -> StatusCode {
    if repeated { StatusCode::OK } else { StatusCode::CREATED }
}

/// The bookings with these identifiers as they are now.
fn made(site: &Site, ids: &[Id]) -> Bookings {
    let view = site.service.view();
    let bookings = ids.iter().filter_map(|id| find(&view, *id)).collect();
    Bookings { bookings, more_after: None }
}

/// A booking, open or ended.
pub(super) fn find(view: &View, id: Id) -> Option<api::Booking> {
    match view.open.get(&id) {
        Some(open) => Some(translate::open(view, id, open)),
        None => view.closed.get(&id).map(|closed| translate::closed(view, id, closed)),
    }
}

/// Longest time that a booking may be held: a quarter of an hour, as in OSCARS.
const HOLD_MAX: u32 = 900;
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;
