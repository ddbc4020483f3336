//! Previews and explanations: made on a snapshot, so that no booking waits for them.

use axum::Json;
use axum::extract::State;
use longhaul_calendar::{FileRequest, LinkId, LinkSet, Path, PlanError, Policy, Request};

use super::auth::Caller;
use super::input::{Body, Which};
use super::ownership::own;
use super::problem::ProblemResponse;
use super::quotes::{self, Quoted};
use super::{Site, reasons, translate};
use crate::api::{self, Availability, BookRequest, Explanation, Occurrence, Preview, Quote};
use crate::ledger::{Ask, Chosen, Refusal, Route};
use crate::service::View;

/// The outcome that a request would have: plan, quote, explanation, alternatives, free capacity; of
/// a recurring one, each of its times, and one quote for all.
#[utoipa::path(post, path = "/v1/plan", request_body = BookRequest, responses(
    (status = 200, body = Preview)))]
pub(super) async fn plan(
    State(site): State<Site>,
    caller: Caller,
    Body { value, .. }: Body<BookRequest>,
) -> Result<Json<Preview>, ProblemResponse> {
    caller.pay(&site, value.recurring.as_ref())?;
    caller.may_name(&site, value.destination)?;
    // The snapshot is cheap; nobody waits for what follows.
    let mut view = site.service.view().without_bookings();
    let asked = translate::request(&view, &value)?;
    // A quote must not begin before it can be taken.
    let good = view.grid.ticks(site.service.config().quote);
    let until = view.now().saturating_add(good).min(view.capacity.horizon().saturating_sub(1));
    let later: Vec<Ask> = asked.requests.iter().map(|ask| ask.not_before(until)).collect();
    let (asks, paths) = allowed(&view, &caller.project, &later, &asked.paths)?;
    let mut occurrences = Vec::with_capacity(asks.len());
    let mut chosen = Vec::with_capacity(asks.len());
    // The first that is refused, or else the first, with the capacity that it found.
    let mut shown = None;
    for (index, (ask, wanted)) in asks.iter().zip(&asked.requests).enumerate() {
        let request = Request::from(*ask);
        let best = match view.capacity.plan(&request, &paths) {
            Ok(plan) => Some(plan),
            Err(PlanError::NoRoom) => None,
            Err(error) => {
                return Err(ProblemResponse::refused(&view, &Refusal::of_plan(error, index)));
            }
        };
        occurrences.push(occurrence(&view, wanted, best.as_ref()));
        if index == 0 || (best.is_none() && chosen.len() == index) {
            shown = Some((request, view.capacity.clone(), best.clone()));
        }
        // Each is planned beside those before it, as they would be booked.
        if let Some(plan) = best {
            let (path, ranges) = (Route::of(&plan.path), translate::recorded(&plan.vector));
            chosen.push(Chosen { request: *ask, path, ranges });
            view.capacity = view.capacity.beside(&plan).unwrap_or(view.capacity);
        }
    }
    let Some((request, capacity, best)) = shown else {
        return Err(ProblemResponse::invalid("recurring: it never comes"));
    };
    view.capacity = capacity;
    let mut preview = preview(&view, &request, &paths, best.as_ref())?;
    if chosen.len() == asks.len() {
        let quoted = Quoted { project: caller.project, until, plans: chosen, note: asked.note };
        let id = quotes::remember(&site, &view, quoted)?;
        preview.quote = Some(Quote { id, valid_until: view.timestamp(until) });
    }
    if value.recurring.is_some() {
        preview.occurrences = occurrences;
    }
    Ok(Json(preview))
}

/// One time of a recurring request, as it was asked for.
fn occurrence(view: &View, ask: &Ask, plan: Option<&longhaul_calendar::Plan>) -> Occurrence {
    let deadline = match *ask {
        Ask::File { deadline, .. } => deadline,
        Ask::Hold { .. } => None,
    };
    Occurrence {
        start: view.timestamp(Request::from(*ask).earliest()),
        deadline: deadline.map(|by| view.timestamp(by)),
        plan: plan.map(|plan| shown_plan(view, plan)),
    }
}

/// Requests and paths within what a project may book, as they would be decided.
fn allowed(
    view: &View,
    project: &str,
    asks: &[Ask],
    routes: &[Route],
) -> Result<(Vec<Ask>, Vec<Path>), ProblemResponse> {
    let refused = |refusal: Refusal| ProblemResponse::refused(view, &refusal);
    let allowance = view.allowance(project).map_err(refused)?;
    let asks: Result<Vec<Ask>, _> = asks.iter().map(|ask| allowance.within(*ask)).collect();
    let asks = asks.map_err(refused)?;
    let paths = allowance.affordable(routes, &asks, |_| 0).map_err(refused)?;
    Ok((asks, paths))
}

/// All of a preview but its quote; `best` is what was planned.
fn preview(
    view: &View,
    request: &Request,
    paths: &[Path],
    best: Option<&longhaul_calendar::Plan>,
) -> Result<Preview, ProblemResponse> {
    let explanation = explanation(view, &view.capacity, request, paths)
        .map_err(|error| ProblemResponse::refused(view, &Refusal::of_plan(error, 0)))?;
    let shown = best.map_or(paths.first(), |plan| Some(&plan.path));
    let from = request.earliest();
    let until = best.map_or(from, |plan| plan.finish()).max(from + 1);
    let links = shown.iter().flat_map(|path| path.links());
    Ok(Preview {
        plan: best.map(|plan| shown_plan(view, plan)),
        quote: None,
        explanation,
        alternatives: alternatives(view, request, paths, best),
        availability: links.filter_map(|link| availability(view, *link, from, until)).collect(),
        occurrences: Vec::new(),
    })
}

fn shown_plan(view: &View, plan: &longhaul_calendar::Plan) -> api::Plan {
    translate::plan(view, &Route::of(&plan.path), &plan.vector)
}

/// Explains why a booking does not finish sooner.
#[utoipa::path(get, path = "/v1/bookings/{id}/explain", params(("id" = u64, Path,)), responses(
    (status = 200, body = Explanation)))]
pub(super) async fn explain(
    State(site): State<Site>,
    caller: Caller,
    Which(id): Which,
) -> Result<Json<Explanation>, ProblemResponse> {
    let (view, open) = {
        let view = site.service.view();
        let open = own(&view, &caller, id)?.clone();
        (view.without_bookings(), open)
    };
    let booking = &open.booking;
    // The capacity and the booking are of one moment.
    let capacity = view.capacity.without(&booking.path, &booking.vector);
    let capacity = capacity.unwrap_or_else(|| view.capacity.clone());
    let ask = reasons::rest(booking, view.now());
    let paths = [booking.path.clone()];
    let mut found = explanation(&view, &capacity, &ask.into(), &paths)
        .map_err(|error| ProblemResponse::refused(&view, &Refusal::of_plan(error, 0)))?;
    let finish = view.timestamp(booking.finish());
    found.summary = format!("Booking {id} finishes at {finish}. Planned now: {}", found.summary);
    found.finish = Some(finish);
    Ok(Json(found))
}

/// An explanation, with times and names.
fn explanation(
    view: &View,
    capacity: &LinkSet,
    request: &Request,
    paths: &[Path],
) -> Result<Explanation, PlanError> {
    Ok(reasons::in_sentences(view, capacity.explain(request, paths)?))
}

/// Other plans for a request, by finish.
fn alternatives(
    view: &View,
    request: &Request,
    paths: &[Path],
    best: Option<&longhaul_calendar::Plan>,
) -> Vec<api::Alternative> {
    let mut candidates: Vec<(String, Request, &[Path])> = Vec::new();
    for path in paths.iter().filter(|path| best.is_none_or(|best| best.path != **path)) {
        let names = translate::names(view, &Route::of(path)).join(", ");
        candidates.push((format!("over {names}"), *request, std::slice::from_ref(path)));
    }
    if let Request::File(file) = *request {
        let with = |policy| Request::File(FileRequest { policy, ..file });
        if file.policy != Policy::Fixed {
            candidates.push(("at the maximum rate throughout".into(), with(Policy::Fixed), paths));
        }
        if file.policy != Policy::Earliest {
            candidates.push(("as early as possible".into(), with(Policy::Earliest), paths));
        }
        if file.deadline.is_some() {
            candidates.push(("as late as possible".into(), with(Policy::Latest), paths));
            candidates.push(("with the lowest peak".into(), with(Policy::LeastPeak), paths));
        }
        if file.max_rate > 1 {
            let half = FileRequest { max_rate: file.max_rate.div_ceil(2), ..file };
            let rate = view.grid.rate(half.max_rate);
            candidates.push((format!("at no more than {rate}"), Request::File(half), paths));
        }
    }
    if let (None, Ok(found)) = (best, view.capacity.explain(request, paths)) {
        for change in found.alternatives {
            candidates.push((
                format!("with {}", reasons::in_words(view, change)),
                change.apply(request),
                paths,
            ));
        }
    }
    let mut found: Vec<(u64, api::Alternative)> = Vec::new();
    for (what, request, paths) in candidates {
        let Ok(plan) = view.capacity.plan(&request, paths) else { continue };
        if best.is_none_or(|best| *best != plan) {
            let shown = shown_plan(view, &plan);
            found.push((plan.finish(), api::Alternative { what, plan: shown }));
        }
    }
    found.sort_by_key(|(finish, _)| *finish);
    found.into_iter().map(|(_, alternative)| alternative).take(ALTERNATIVES_MAX).collect()
}

/// Free capacity of a link in `[from, to)`.
pub(super) fn availability(view: &View, link: LinkId, from: u64, to: u64) -> Option<Availability> {
    let profile = view.capacity.profile(link)?;
    let spec = view.links.get(link.0 as usize)?;
    let mut free: Vec<api::Range> = Vec::new();
    let mut truncated = false;
    for segment in profile.segments(from, to) {
        if free.len() == SEGMENTS_MAX {
            truncated = true;
            break;
        }
        free.push(api::Range {
            start: view.timestamp(segment.start),
            end: view.timestamp(segment.end),
            rate_bps: view.bps(segment.free),
        });
    }
    let capacity_bps = view.bps(spec.capacity);
    Some(Availability { link: spec.name.clone(), capacity_bps, free, truncated })
}

const ALTERNATIVES_MAX: usize = 8;
const SEGMENTS_MAX: usize = 10_000;
