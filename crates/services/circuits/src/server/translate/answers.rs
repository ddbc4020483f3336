//! Bookings and plans as the service sends them.

use longhaul_calendar::{Allocation, Request, TrcVector};

use super::names;
use crate::api;
use crate::ledger::{Closed, Ending, Id, Ranges, Route};
use crate::service::{Open, View};

/// A vector as it travels.
fn ranges(view: &View, vector: &TrcVector) -> Vec<api::Range> {
    let range = |r: Allocation| api::Range {
        start: view.timestamp(r.start),
        end: view.timestamp(r.end),
        rate_bps: view.bps(r.rate),
    };
    vector.merged().map(range).collect()
}

/// An open booking as it travels.
pub(in crate::server) fn open(view: &View, id: Id, open: &Open) -> api::Booking {
    let vector = &open.booking.vector;
    let begun = vector.start().is_some_and(|start| start <= view.now());
    let state = match open.entry.held_until {
        Some(_) => api::State::Held,
        None if begun => api::State::Active,
        None => api::State::Scheduled,
    };
    let booked_bytes = view.grid.bytes(vector.area()).get();
    let path = Route::of(&open.booking.path);
    let note = &open.entry.note;
    api::Booking {
        id,
        project: open.entry.project.clone(),
        state,
        label: note.label.clone(),
        links: names(view, &path),
        ranges: ranges(view, vector),
        start: view.timestamp(vector.start().unwrap_or(0)),
        finish: view.timestamp(open.booking.finish()),
        promise: view.timestamp(open.booking.promise),
        bytes: note.bytes,
        booked_bytes,
        series: open.entry.series,
        held_until: open.entry.held_until.map(|until| view.timestamp(until)),
        made: view.timestamp(open.entry.made),
        price_micros: crate::ledger::price(&view.links, &path, booked_bytes),
        destination: note.destination,
    }
}

/// The state of a booking after its ending, as it travels.
pub(in crate::server) fn ended(ending: Ending) -> api::State {
    match ending {
        Ending::Finished => api::State::Finished,
        Ending::Released => api::State::Released,
        Ending::Cancelled => api::State::Cancelled,
        Ending::Lapsed => api::State::Lapsed,
    }
}

/// A booking that ended, as it travels.
pub(in crate::server) fn closed(view: &View, id: Id, closed: &Closed) -> api::Booking {
    let vector = closed.ranges.vector(view.rules.guard).unwrap_or_default();
    let asked = Request::from(closed.request).earliest();
    let start = vector.start().unwrap_or(asked);
    let finish = vector.finish().unwrap_or(start);
    api::Booking {
        id,
        project: closed.entry.project.clone(),
        state: ended(closed.ending),
        label: closed.entry.note.label.clone(),
        links: names(view, &closed.path),
        ranges: ranges(view, &vector),
        start: view.timestamp(start),
        finish: view.timestamp(finish),
        promise: view.timestamp(finish),
        bytes: closed.entry.note.bytes,
        booked_bytes: closed.used_bytes,
        series: closed.entry.series,
        held_until: None,
        made: view.timestamp(closed.entry.made),
        price_micros: closed.price_micros,
        destination: closed.entry.note.destination,
    }
}

/// A plan as it travels.
pub(in crate::server) fn plan(view: &View, route: &Route, vector: &TrcVector) -> api::Plan {
    let bytes = view.grid.bytes(vector.area()).get();
    api::Plan {
        links: names(view, route),
        ranges: ranges(view, vector),
        start: view.timestamp(vector.start().unwrap_or(0)),
        finish: view.timestamp(vector.finish().unwrap_or(0)),
        price_micros: crate::ledger::price(&view.links, route, bytes),
    }
}

/// The ranges of a plan, for the ledger.
pub(in crate::server) fn recorded(vector: &TrcVector) -> Ranges {
    Ranges::of(vector)
}
