//! Feeds: changes as they happen, usage, the log, a calendar, metrics.

use std::convert::Infallible;
use std::fmt::Write;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use jiff::tz::TimeZone;
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use longhaul_pages::metrics_page;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

use super::auth::Caller;
use super::input::Filter;
use super::problem::ProblemResponse;
use super::{Site, bookings, translate};
use crate::api::{AuditRecord, ProjectUsage, State as Stand, UsageRecord, UsageReport};
use crate::service::View;
use crate::service::config::Role;

/// Changes of bookings as they happen, as server-sent events: the event is what happened (booked,
/// held, committed, modified, extended, released, cancelled, replanned, finished, lapsed), its
/// data the booking. `reset` means that some were missed: list again. `Last-Event-ID` resumes. A
/// token may have a few watches at a time.
#[utoipa::path(get, path = "/v1/watch",
    params(("Last-Event-ID" = Option<String>, Header, description = "Only what came after this")),
    responses((status = 200, content_type = "text/event-stream", body = String)))]
pub(super) async fn watch(
    State(site): State<Site>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ProblemResponse> {
    let most = site.service.config().limits.watchers;
    let place = site.watchers.take(&caller.name, most).ok_or_else(|| {
        let detail = format!("this token has {most} watches already; end one, or share it");
        ProblemResponse::too_many(detail, std::time::Duration::from_secs(1))
    })?;
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let last = resumed.and_then(|text| text.parse().ok());
    // One event waits for the watcher; the others stay where they are until it is taken.
    let (sender, receiver) = mpsc::channel(1);
    let mut changes = site.service.changes();
    let mut closing = site.closing.clone();
    let mut last: u64 = last.unwrap_or_else(|| site.service.view().latest_change());
    tokio::spawn(async move {
        let _place = place;
        loop {
            let page = page(&site.service.view(), &caller, last);
            let full = page.last < page.latest;
            last = page.last;
            for event in page.events {
                if sender.send(Ok::<_, Infallible>(event)).await.is_err() {
                    return;
                }
            }
            if full {
                continue;
            }
            let gone = sender.closed();
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = gone => return,
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()))
}

/// Some of the changes that a watcher has not seen.
struct Page {
    events: Vec<Event>,
    /// Number of the last that was looked at.
    last: u64,
    /// Number of the last there is.
    latest: u64,
}

/// The next changes after number `last` that the caller may see: so few that what waits for a slow
/// watcher is small.
fn page(view: &View, caller: &Caller, mut last: u64) -> Page {
    let latest = view.latest_change();
    let Some(changes) = view.changes_after(last) else {
        let reset = Event::default().event("reset").id(latest.to_string()).data("{}");
        return Page { events: vec![reset], last: latest, latest };
    };
    let (mut events, mut bytes) = (Vec::new(), 0);
    for change in changes.take(LOOKED_AT_MAX) {
        last = change.number;
        if caller.sees(&change.project) {
            let booking = bookings::find(view, change.id);
            let data = serde_json::to_string(&booking).unwrap_or_default();
            bytes += data.len();
            let event = Event::default().event(change.what).id(change.number.to_string());
            events.push(event.data(data));
        }
        if events.len() == PAGE_EVENTS || bytes >= PAGE_BYTES {
            break;
        }
    }
    Page { events, last, latest }
}

/// Usage of projects: the token's own, or all for an operator.
#[utoipa::path(get, path = "/v1/usage", responses((status = 200, body = UsageReport)))]
pub(super) async fn usage(State(site): State<Site>, caller: Caller) -> Json<UsageReport> {
    let view = site.service.view();
    let projects = view.totals.iter().filter(|(project, _)| caller.sees(project));
    let records = view.closed.iter().filter(|(_, closed)| caller.sees(&closed.entry.project));
    Json(UsageReport {
        currency: site.service.config().currency.clone(),
        projects: projects
            .map(|(project, totals)| ProjectUsage {
                project: project.clone(),
                bookings: totals.bookings,
                used_bytes: totals.used_bytes,
                returned_bytes: totals.returned_bytes,
                price_micros: totals.price_micros,
            })
            .collect(),
        records: records
            .map(|(id, closed)| UsageRecord {
                id: *id,
                project: closed.entry.project.clone(),
                label: closed.entry.note.label.clone(),
                ending: translate::ended(closed.ending),
                used_bytes: closed.used_bytes,
                returned_bytes: closed.returned_bytes,
                price_micros: closed.price_micros,
            })
            .collect(),
    })
}

/// Which part of the log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// After this position.
    #[serde(default)]
    after: u64,
    /// No more than so many, up to 1000.
    limit: Option<u32>,
}

/// The log of all decisions, which can be replayed exactly. For operators.
#[utoipa::path(get, path = "/v1/audit", params(Part), responses(
    (status = 200, body = [AuditRecord])))]
pub(super) async fn audit(
    State(site): State<Site>,
    caller: Caller,
    Filter(part): Filter<Part>,
) -> Result<Json<Vec<AuditRecord>>, ProblemResponse> {
    caller.must_be(Role::Operator)?;
    let limit = part.limit.unwrap_or(LOG_PAGE).min(LOG_PAGE);
    let records = site.service.records(part.after, limit).await;
    let records = records.map_err(|error| ProblemResponse::of(&site.service.view(), &error))?;
    let value = |record: crate::ledger::Record| AuditRecord {
        seq: record.seq,
        tick: record.tick,
        order: serde_json::to_value(&record.order).unwrap_or_default(),
        outcome: serde_json::to_value(&record.outcome).unwrap_or_default(),
    };
    Ok(Json(records.into_iter().map(value).collect()))
}

/// A token in the address, for calendars that can send no header.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Feed {
    /// The token. It stands in logs of proxies: give a viewer's.
    token: String,
}

/// Open bookings as an iCalendar feed (RFC 5545).
#[utoipa::path(get, path = "/v1/calendar.ics", params(Feed), responses(
    (status = 200, content_type = "text/calendar", body = String)), security(()))]
pub(super) async fn calendar(
    State(site): State<Site>,
    Filter(feed): Filter<Feed>,
) -> Result<Response, ProblemResponse> {
    let caller = site.tokens.caller(&feed.token)?;
    // Taken out first: writing it all takes longer than others should wait.
    let (view, open) = {
        let view = site.service.view();
        let seen = view.open.iter().filter(|(_, open)| caller.sees(&open.entry.project));
        let open: Vec<_> = seen.take(FEED_MAX).map(|(id, open)| (*id, open.clone())).collect();
        (view.without_bookings(), open)
    };
    let mut text =
        String::from("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//Longhaul//circuits//EN\r\n");
    for (id, open) in open {
        let booking = translate::open(&view, id, &open);
        for (number, range) in booking.ranges.iter().enumerate() {
            let rate = longhaul_units::Rate::from_bps(range.rate_bps);
            let name = if booking.label.is_empty() { &booking.project } else { &booking.label };
            let held = if booking.state == Stand::Held { "TENTATIVE" } else { "CONFIRMED" };
            line(&mut text, "BEGIN:VEVENT");
            line(&mut text, &format!("UID:booking-{id}-{number}@longhaul"));
            line(&mut text, &format!("DTSTAMP:{}", stamp(booking.made)));
            line(&mut text, &format!("DTSTART:{}", stamp(range.start)));
            line(&mut text, &format!("DTEND:{}", stamp(whole_second(range.end))));
            line(&mut text, &format!("SUMMARY:{}", escape(&format!("{name}: {rate}"))));
            line(&mut text, &format!("LOCATION:{}", escape(&booking.links.join(", "))));
            line(&mut text, &format!("STATUS:{held}"));
            line(&mut text, "END:VEVENT");
        }
    }
    text.push_str("END:VCALENDAR\r\n");
    Ok(([(header::CONTENT_TYPE, "text/calendar; charset=utf-8")], text).into_response())
}

/// Metrics for Prometheus; need no token. A node that stands by reports only itself.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, content_type = "text/plain", body = String)), security(()))]
pub(super) async fn metrics(State(site): State<Site>) -> Response {
    let status = site.service.status();
    let registry = site.service.metrics().registry(&site.service.view(), &status);
    metrics_page(&registry).into_response()
}

/// A content line, folded so that none is longer than 75 bytes (RFC 5545, section 3.1).
fn line(out: &mut String, content: &str) {
    let mut length = 0;
    for letter in content.chars() {
        if length + letter.len_utf8() > 75 {
            out.push_str("\r\n ");
            length = 1;
        }
        out.push(letter);
        length += letter.len_utf8();
    }
    out.push_str("\r\n");
}

/// Text as a value (RFC 5545, section 3.3.11).
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | ';' | ',' => {
                out.push('\\');
                out.push(letter);
            }
            '\n' => out.push_str("\\n"),
            letter if letter.is_control() => {}
            letter => out.push(letter),
        }
    }
    out
}

/// The first full second that is not before `time`: an event ends later than it starts.
fn whole_second(time: Timestamp) -> Timestamp {
    let up = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Ceil);
    // Only beyond the last second that there is; bookings are not.
    time.round(up).unwrap_or(time)
}

/// A time in UTC, to the second.
fn stamp(time: Timestamp) -> String {
    let t = time.to_zoned(TimeZone::UTC);
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        t.year(),
        t.month(),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    );
    out
}

/// Events, and bytes of all but the last of them, that wait for a watcher.
const PAGE_EVENTS: usize = 16;
const PAGE_BYTES: usize = 64 * 1024;
/// Changes that are looked at while new decisions wait.
const LOOKED_AT_MAX: usize = 1000;
const LOG_PAGE: u32 = 1000;
/// Bookings in a calendar; nobody looks at more.
const FEED_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_lines_are_folded_and_escaped() {
        let mut out = String::new();
        line(&mut out, &"ä".repeat(50));
        assert!(out.split("\r\n").all(|line| line.len() <= 75), "{out}");
        assert_eq!(out.replace("\r\n ", "").trim_end(), "ä".repeat(50));
        assert_eq!(escape("a;b,c\\d\ne\r"), "a\\;b\\,c\\\\d\\ne");
        // What takes less than a second is an event too.
        let start = "2026-11-21T23:59:59.2Z".parse().unwrap();
        assert_eq!(stamp(start), "20261121T235959Z");
        assert_eq!(stamp(whole_second(start)), "20261122T000000Z");
        let whole = "2026-11-21T09:05:07Z".parse().unwrap();
        assert_eq!(whole_second(whole), whole);
        assert_eq!(stamp("2026-11-21T09:05:07.9Z".parse().unwrap()), "20261121T090507Z");
    }
    #[test]
    fn a_watcher_that_is_behind_reads_page_by_page_and_misses_nothing() {
        let config = crate::service::config::Config::parse("").unwrap();
        let mut view = View::empty(&config);
        let caller = Caller::of("token", "astro", Role::User);
        (0..5000)
            .for_each(|id| view.note(id, "booked", if id % 50 == 0 { "astro" } else { "bio" }));
        let (mut last, mut seen, mut pages) = (0, 0, 0);
        loop {
            let page = page(&view, &caller, last);
            assert!(page.events.len() <= PAGE_EVENTS);
            (seen, last, pages) = (seen + page.events.len(), page.last, pages + 1);
            if last == page.latest {
                break;
            }
        }
        assert_eq!((seen, pages, last), (100, 7, 5000));
        (0..10_000).for_each(|id| view.note(id, "booked", "bio"));
        let page = page(&view, &caller, last);
        assert_eq!((page.events.len(), page.last), (0, 6000), "not all at once");
        view.note(7, "booked", "bio");
        let reset = super::page(&view, &caller, last);
        assert_eq!((reset.events.len(), reset.last), (1, 15_001), "some of it is forgotten");
    }
}
