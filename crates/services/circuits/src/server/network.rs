//! Links, and the state of the service.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use longhaul_calendar::LinkId;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::Caller;
use super::input::{Body, Filter, Named, key};
use super::problem::ProblemResponse;
use super::{Site, bookings, planning, translate};
use crate::api::{Availability, Health, Link, LinkRequest, Topology};
use crate::ledger::{Command, LinkSpec, Order};
use crate::service::View;
use crate::service::config::{Role, link_can_be_named, link_is_sound};

/// State of the service; needs no token.
#[utoipa::path(get, path = "/v1/health", responses(
    (status = 200, body = Health), (status = 503, description = "It takes no bookings", body = Health)),
    security(()))]
pub(super) async fn health(State(site): State<Site>) -> (StatusCode, Json<Health>) {
    let status = site.service.status();
    let view = site.service.view();
    let health = Health {
        ready: status.ready,
        standby: status.standby,
        leader: status.leader,
        status: status.text,
        seq: view.seq,
        now: view.timestamp(view.now()),
        clock_ahead_seconds: view.clock.ahead_of_wall() as f64 / 1e9,
        bookings: view.open.len(),
    };
    let code = if status.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(health))
}

/// The network.
#[utoipa::path(get, path = "/v1/topology", responses((status = 200, body = Topology)))]
pub(super) async fn topology(State(site): State<Site>, caller: Caller) -> Json<Topology> {
    let view = site.service.view();
    let mut nodes: Vec<String> =
        view.links.iter().flat_map(|link| [link.from.clone(), link.to.clone()]).collect();
    nodes.sort();
    nodes.dedup();
    let quota = view.projects.get(&caller.project);
    let limit = quota.map(|quota| quota.max_rate).filter(|most| *most < u32::MAX);
    Json(Topology {
        max_rate_bps: limit.map(|most| view.bps(most)),
        nodes,
        links: view.links.iter().map(|link| shown(&view, link)).collect(),
        tick_nanos: view.rules.tick_nanos,
        channel_bps: view.rules.channel_bps,
        guard_ticks: view.rules.guard,
        currency: site.service.config().currency.clone(),
    })
}

fn shown(view: &View, spec: &LinkSpec) -> Link {
    Link {
        name: spec.name.clone(),
        from: spec.from.clone(),
        to: spec.to.clone(),
        capacity_bps: view.bps(spec.capacity),
        price_micros_per_tb: spec.price_micros,
    }
}

/// Adds a link. For operators.
///
/// Its name and those of its nodes have up to 64 letters, digits and - _ . : >, and
/// the first is a letter or digit. Its capacity is kept in whole steps of rate.
#[utoipa::path(post, path = "/v1/links", request_body = LinkRequest, responses(
    (status = 201, body = Link),
    (status = 200, description = "The key came before", body = Link)))]
pub(super) async fn add_link(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
    Body { value, fingerprint }: Body<LinkRequest>,
) -> Result<(StatusCode, Json<Link>), ProblemResponse> {
    caller.must_be(Role::Operator)?;
    let key = key(&headers, &fingerprint)?;
    let LinkRequest { name, from, to, .. } = &value;
    link_is_sound(name, from, to).map_err(ProblemResponse::invalid)?;
    link_can_be_named(name, from, to).map_err(ProblemResponse::invalid)?;
    let capacity = translate::capacity(&site.service.view(), value.capacity_bps)?;
    let LinkRequest { name, from, to, price_micros_per_tb: price_micros, .. } = value;
    let spec = LinkSpec { name, from, to, capacity, price_micros };
    let order = Order {
        actor: caller.name,
        project: caller.project,
        operator: true,
        key,
        command: Command::AddLink(spec.clone()),
    };
    let decided = site.service.decide(order).await;
    let view = site.service.view();
    let decided = decided.map_err(|error| ProblemResponse::of(&view, &error))?;
    Ok((bookings::created(decided.repeated), Json(shown(&view, &spec))))
}

/// Of which time to show what is free.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Window {
    /// From then; now without it.
    from: Option<Timestamp>,
    /// Until then; a day later without it.
    to: Option<Timestamp>,
}

/// Free capacity of a link.
#[utoipa::path(get, path = "/v1/links/{name}/availability",
    params(("name" = String, Path,), Window), responses((status = 200, body = Availability)))]
pub(super) async fn availability(
    State(site): State<Site>,
    _: Caller,
    Named(name): Named,
    Filter(window): Filter<Window>,
) -> Result<Json<Availability>, ProblemResponse> {
    let view = site.service.view().without_bookings();
    let link = LinkId(translate::link(&view, &name)?);
    let tick = |time: Option<Timestamp>, name| -> Result<Option<u64>, ProblemResponse> {
        let instant = time.map(|time| translate::instant(name, time)).transpose()?;
        Ok(instant.map(|instant| view.grid.tick_by(instant)))
    };
    let from = tick(window.from, "from")?.unwrap_or_else(|| view.now()).max(view.now());
    let day = view.grid.ticks(std::time::Duration::from_secs(86_400));
    let to = tick(window.to, "to")?.unwrap_or_else(|| from.saturating_add(day));
    if to <= from {
        return Err(ProblemResponse::invalid("to: it lies before from, or has passed"));
    }
    let free = planning::availability(&view, link, from, to);
    let gone = || ProblemResponse::not_found("unknown-link", format!("there is no link {name:?}"));
    free.map(Json).ok_or_else(gone)
}
