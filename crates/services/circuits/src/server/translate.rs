//! Between what travels (times, bits per second, names) and what the ledger knows (ticks,
//! channels, numbers).

use jiff::Timestamp;
use longhaul_calendar::{Allocation, Margin, Request, TrcVector};
use longhaul_units::{Bytes, Duration, Instant, Rate};

use super::problem::Failure;
use super::{recur, routes};
use crate::api::{self, BookRequest, FileWant, HoldWant, ModifyRequest};
use crate::ledger::{Ask, Closed, Ending, Id, Note, Placing, Ranges, Route};
use crate::service::{Open, View};

/// A request in the ledger's words.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) requests: Vec<Ask>,
    pub(super) paths: Vec<Route>,
    pub(super) note: Note,
}

/// What a request asks for.
pub(super) fn request(view: &View, request: &BookRequest) -> Result<Asked, Failure> {
    if request.label.len() > LABEL_MAX {
        return Err(invalid(format!("label: more than {LABEL_MAX} bytes")));
    }
    if request.label.chars().any(hidden) {
        return Err(invalid("label: it has characters that are not seen, but act on terminals"));
    }
    let paths = paths(view, request)?;
    let occurrences = match (&request.recurring, request.start) {
        (None, start) => vec![(start, None)],
        (Some(_), Some(_)) => {
            return Err(invalid("start: a recurring request starts by its own clock"));
        }
        (Some(rule), None) => {
            let found = recur::occurrences(rule, timestamp(view, view.now())).map_err(invalid)?;
            found.into_iter().map(|(start, by)| (Some(start), by)).collect()
        }
    };
    if request.recurring.is_some()
        && request.file.as_ref().is_some_and(|file| file.deadline.is_some())
    {
        return Err(invalid("deadline: that of a recurring request is recurring.by"));
    }
    let mut note = Note { label: request.label.clone(), ..Note::default() };
    note.destination = request.destination;
    let mut requests = Vec::with_capacity(occurrences.len());
    for (start, by) in occurrences {
        requests.push(match (&request.file, &request.hold) {
            (Some(file), None) => {
                note.bytes = Some(file.bytes);
                note.margin_ppm = file.margin_ppm;
                let deadline = file.deadline.or(by);
                file_ask(view, &FileWant { deadline, ..file.clone() }, start)?
            }
            (None, Some(_)) if by.is_some() => {
                return Err(invalid("recurring.by: it is for files; a hold ends by its duration"));
            }
            (None, Some(hold)) => hold_ask(view, hold, start)?,
            _ => return Err(invalid("expected one of file and hold")),
        });
    }
    Ok(Asked { requests, paths, note })
}

/// Whether a character does something to the text around it: ends lines, moves the cursor, turns
/// the direction of writing.
fn hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2066}'..='\u{2069}')
}

fn file_ask(view: &View, file: &FileWant, start: Option<Timestamp>) -> Result<Ask, Failure> {
    let earliest = start_tick(view, start)?;
    let deadline = file.deadline.map(|by| tick_by(view, by)).transpose()?;
    if deadline.is_some_and(|by| by <= from(view, earliest)) {
        return Err(invalid("deadline: it lies before the start, or has passed"));
    }
    if file.deadline.is_none() && matches!(file.policy, Placing::Latest | Placing::LeastPeak) {
        return Err(invalid("policy: this one needs a deadline"));
    }
    Ok(Ask::File {
        volume: volume(view, "bytes", file.bytes, file.margin_ppm)?,
        max_rate: channels(view, "max_rate_bps", file.max_rate_bps)?,
        earliest,
        deadline,
        policy: file.policy,
    })
}

fn hold_ask(view: &View, hold: &HoldWant, start: Option<Timestamp>) -> Result<Ask, Failure> {
    if hold.min_rate_bps > hold.max_rate_bps {
        return Err(invalid("min_rate_bps: it is above max_rate_bps"));
    }
    let earliest = start_tick(view, start)?;
    // As starts are: what starts at this instant is in time.
    let latest_start =
        hold.latest_start.map(|latest| instant("latest_start", latest)).transpose()?;
    let latest_start = latest_start.map(|latest| view.grid.tick_from(latest));
    if latest_start.is_some_and(|latest| latest < from(view, earliest)) {
        return Err(invalid("latest_start: it lies before the start, or has passed"));
    }
    Ok(Ask::Hold {
        duration: ticks(view, "duration_ms", hold.duration_ms)?,
        // What is asked at least is rounded up: less would be of no use.
        min_rate: channels_above(view, "min_rate_bps", hold.min_rate_bps)?,
        max_rate: channels_above(view, "max_rate_bps", hold.max_rate_bps)?,
        earliest,
        latest_start,
    })
}

/// What a booking would be for after a change.
pub(super) fn modified(
    view: &View,
    open: &Open,
    change: &ModifyRequest,
) -> Result<(Ask, Option<u64>), Failure> {
    let mut bytes = open.entry.note.bytes;
    let ask = match Ask::from(open.booking.request) {
        Ask::File { volume: old, max_rate, earliest, deadline, policy } => {
            if change.duration_ms.is_some() || change.min_rate_bps.is_some() {
                return Err(invalid("a file has no duration and no least rate"));
            }
            bytes = change.bytes.or(bytes);
            let margin = open.entry.note.margin_ppm;
            Ask::File {
                volume: match change.bytes {
                    Some(bytes) => volume(view, "bytes", bytes, margin)?,
                    None => old,
                },
                max_rate: match change.max_rate_bps {
                    Some(rate) => channels(view, "max_rate_bps", rate)?,
                    None => max_rate,
                },
                earliest: changed_start(view, change.start, earliest)?,
                deadline: match change.deadline {
                    Some(by) => Some(tick_by(view, by)?),
                    None => deadline,
                },
                policy,
            }
        }
        Ask::Hold { duration, min_rate, max_rate, earliest, latest_start } => {
            if change.bytes.is_some() || change.deadline.is_some() {
                return Err(invalid("a hold has no bytes and no deadline"));
            }
            let rate = |name, new: Option<u64>, old| match new {
                Some(rate) => channels_above(view, name, rate),
                None => Ok(old),
            };
            Ask::Hold {
                duration: match change.duration_ms {
                    Some(time) => ticks(view, "duration_ms", time)?,
                    None => duration,
                },
                min_rate: rate("min_rate_bps", change.min_rate_bps, min_rate)?,
                max_rate: rate("max_rate_bps", change.max_rate_bps, max_rate)?,
                earliest: changed_start(view, change.start, earliest)?,
                latest_start,
            }
        }
    };
    Ok((ask, bytes))
}

fn changed_start(view: &View, new: Option<Timestamp>, old: u64) -> Result<u64, Failure> {
    match new {
        Some(_) => start_tick(view, new),
        None => Ok(old),
    }
}

fn paths(view: &View, request: &BookRequest) -> Result<Vec<Route>, Failure> {
    match (&request.links, &request.from, &request.to) {
        (Some(names), None, None) => {
            let number = |name: &String| link(view, name);
            let route = Route(names.iter().map(number).collect::<Result<_, _>>()?);
            if route.path().is_none() || names.len() > LINKS_MAX {
                return Err(invalid(format!("links: expected 1 to {LINKS_MAX} different links")));
            }
            match routes::gap(&view.links, &route) {
                Some((end, start)) => Err(invalid(format!(
                    "links: {} ends at {}, but {} begins at {}",
                    end.name, end.to, start.name, start.from
                ))),
                None => Ok(vec![route]),
            }
        }
        (None, Some(from), Some(to)) => {
            for node in [from, to] {
                if !view.links.iter().any(|link| link.from == *node || link.to == *node) {
                    return Err(Failure::not_found("unknown-node", format!("no link at {node}")));
                }
            }
            let found = routes::between(&view.links, from, to, PATHS_MAX);
            match found.is_empty() || from == to {
                true => Err(Failure::not_found("no-path", format!("no path from {from} to {to}"))),
                false => Ok(found),
            }
        }
        _ => Err(invalid("expected from and to, or links")),
    }
}

/// The number of a link.
pub(super) fn link(view: &View, name: &str) -> Result<u32, Failure> {
    let found = view.links.iter().position(|link| link.name == name);
    let number = found.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Failure::not_found("unknown-link", format!("there is no link {name:?}")))
}

/// Names of the links of a route.
pub(super) fn names(view: &View, route: &Route) -> Vec<String> {
    let name = |link: &u32| view.links.get(*link as usize).map(|link| link.name.clone());
    route.0.iter().filter_map(name).collect()
}

/// Channel ticks of so many bytes.
pub(super) fn volume(view: &View, name: &str, bytes: u64, ppm: u32) -> Result<u64, Failure> {
    if bytes == 0 {
        return Err(invalid(format!("{name}: nothing to carry")));
    }
    if ppm > MARGIN_MAX {
        return Err(invalid("margin_ppm: more than the file itself"));
    }
    let volume = view.grid.volume(Bytes::new(bytes), Margin::from_ppm(ppm));
    match volume.filter(|_| bytes <= BYTES_MAX) {
        Some(volume) => Ok(volume),
        None => Err(invalid(format!("{name}: more than an exabyte"))),
    }
}

/// Ticks that cover so many milliseconds.
pub(super) fn ticks(view: &View, name: &str, millis: u64) -> Result<u64, Failure> {
    match view.grid.ticks(Duration::from_millis(millis)) {
        0 => Err(invalid(format!("{name}: no time at all"))),
        ticks if ticks > view.rules.horizon => {
            let horizon = view.grid.instant(view.rules.horizon).as_nanos() / 1_000_000_000;
            Err(invalid(format!("{name}: longer than bookings are taken for ({horizon} s)")))
        }
        ticks => Ok(ticks),
    }
}

fn channels(view: &View, name: &str, bps: u64) -> Result<u32, Failure> {
    check_rate(name, bps)?;
    match view.grid.channels_within(Rate::from_bps(bps)) {
        0 => {
            let least = view.grid.channel();
            Err(invalid(format!("{name}: less than the smallest step of rate, {least}")))
        }
        channels => Ok(channels),
    }
}

/// The capacity of a link.
pub(super) fn capacity(view: &View, bps: u64) -> Result<u32, Failure> {
    let channels = channels(view, "capacity_bps", bps)?;
    let most = view.grid.rate(u32::MAX);
    match Rate::from_bps(bps) > most {
        true => Err(invalid(format!("capacity_bps: more than 2^32 steps of rate, {most}"))),
        false => Ok(channels),
    }
}

fn channels_above(view: &View, name: &str, bps: u64) -> Result<u32, Failure> {
    check_rate(name, bps)?;
    let channels = bps.div_ceil(view.grid.channel().as_bps().max(1));
    Ok(u32::try_from(channels).unwrap_or(u32::MAX))
}

fn check_rate(name: &str, bps: u64) -> Result<(), Failure> {
    match bps {
        0 => Err(invalid(format!("{name}: a rate of zero"))),
        1..=RATE_MAX => Ok(()),
        _ => Err(invalid(format!("{name}: more than a petabit per second"))),
    }
}

/// The tick of a start; 0 for as soon as possible.
fn start_tick(view: &View, start: Option<Timestamp>) -> Result<u64, Failure> {
    let Some(start) = start else { return Ok(0) };
    let tick = view.grid.tick_from(instant("start", start)?);
    if tick < view.now() {
        return Err(invalid(format!("start: {start} has passed")));
    }
    Ok(tick)
}

/// The tick from which a request with this earliest one is planned.
fn from(view: &View, earliest: u64) -> u64 {
    if earliest == 0 { view.now() } else { earliest }
}

/// The tick of a deadline.
fn tick_by(view: &View, by: Timestamp) -> Result<u64, Failure> {
    Ok(view.grid.tick_by(instant("deadline", by)?))
}

pub(super) fn instant(name: &str, time: Timestamp) -> Result<Instant, Failure> {
    let nanos = u64::try_from(time.as_nanosecond());
    nanos
        .map(Instant::from_nanos)
        .map_err(|_| invalid(format!("{name}: {time} is not a time this service knows")))
}

/// When a tick begins.
pub(super) fn timestamp(view: &View, tick: u64) -> Timestamp {
    let nanos = view.grid.instant(tick).as_nanos();
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::MAX)
}

/// A rate in bits per second.
pub(super) fn bps(view: &View, channels: u32) -> u64 {
    view.grid.rate(channels).as_bps()
}

/// A vector as it travels.
pub(super) fn ranges(view: &View, vector: &TrcVector) -> Vec<api::Range> {
    let range = |r: Allocation| api::Range {
        start: timestamp(view, r.start),
        end: timestamp(view, r.end),
        rate_bps: bps(view, r.rate),
    };
    vector.merged().map(range).collect()
}

/// An open booking as it travels.
pub(super) fn open(view: &View, id: Id, open: &Open) -> api::Booking {
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
        start: timestamp(view, vector.start().unwrap_or(0)),
        finish: timestamp(view, open.booking.finish()),
        promise: timestamp(view, open.booking.promise),
        bytes: note.bytes,
        booked_bytes,
        series: open.entry.series,
        held_until: open.entry.held_until.map(|until| timestamp(view, until)),
        made: timestamp(view, open.entry.made),
        price_micros: crate::ledger::price(&view.links, &path, booked_bytes),
        destination: note.destination,
    }
}

/// A booking that ended, as it travels.
pub(super) fn closed(view: &View, id: Id, closed: &Closed) -> api::Booking {
    let vector = closed.ranges.vector(view.rules.guard).unwrap_or_default();
    let asked = Request::from(closed.request).earliest();
    let start = vector.start().unwrap_or(asked);
    let finish = vector.finish().unwrap_or(start);
    api::Booking {
        id,
        project: closed.entry.project.clone(),
        state: match closed.ending {
            Ending::Finished => api::State::Finished,
            Ending::Released => api::State::Released,
            Ending::Cancelled => api::State::Cancelled,
            Ending::Lapsed => api::State::Lapsed,
        },
        label: closed.entry.note.label.clone(),
        links: names(view, &closed.path),
        ranges: ranges(view, &vector),
        start: timestamp(view, start),
        finish: timestamp(view, finish),
        promise: timestamp(view, finish),
        bytes: closed.entry.note.bytes,
        booked_bytes: closed.used_bytes,
        series: closed.entry.series,
        held_until: None,
        made: timestamp(view, closed.entry.made),
        price_micros: closed.price_micros,
        destination: closed.entry.note.destination,
    }
}

/// A plan as it travels.
pub(super) fn plan(view: &View, route: &Route, vector: &TrcVector) -> api::Plan {
    let bytes = view.grid.bytes(vector.area()).get();
    api::Plan {
        links: names(view, route),
        ranges: ranges(view, vector),
        start: timestamp(view, vector.start().unwrap_or(0)),
        finish: timestamp(view, vector.finish().unwrap_or(0)),
        price_micros: crate::ledger::price(&view.links, route, bytes),
    }
}

/// The ranges of a plan, for the ledger.
pub(super) fn recorded(vector: &TrcVector) -> Ranges {
    Ranges::of(vector)
}

pub(super) fn invalid(detail: impl Into<String>) -> Failure {
    Failure::invalid(detail)
}

const LABEL_MAX: usize = 200;
const LINKS_MAX: usize = 16;
/// Candidate paths of a request; few are enough (Rajah, Ranka, Xia 2008).
const PATHS_MAX: usize = 4;
const BYTES_MAX: u64 = 1_000_000_000_000_000_000;
const RATE_MAX: u64 = 1_000_000_000_000_000;
const MARGIN_MAX: u32 = 1_000_000;
