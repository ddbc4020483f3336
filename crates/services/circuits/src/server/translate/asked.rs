//! Requests in the ledger's words.

use jiff::Timestamp;
use longhaul_units::acts_on_terminals;

use super::amounts::{channels, channels_above, ticks, volume};
use super::{instant, invalid, link};
use crate::api::{BookRequest, FileWant, HoldWant, ModifyRequest};
use crate::ledger::{Ask, Note, Placing, Route};
use crate::server::problem::ProblemResponse;
use crate::server::{candidate_paths, recur};
use crate::service::{Open, View};

/// A request in the ledger's words.
#[derive(Clone, Debug)]
pub(in crate::server) struct Asked {
    pub(in crate::server) requests: Vec<Ask>,
    pub(in crate::server) paths: Vec<Route>,
    pub(in crate::server) note: Note,
}

/// Reads a request.
pub(in crate::server) fn request(
    view: &View,
    request: &BookRequest,
) -> Result<Asked, ProblemResponse> {
    if request.label.len() > LABEL_MAX {
        return Err(invalid(format!("label: more than {LABEL_MAX} bytes")));
    }
    if request.label.chars().any(acts_on_terminals) {
        return Err(invalid("label: it has characters that are not seen, but act on terminals"));
    }
    let paths = paths(view, request)?;
    let occurrences = match (&request.recurring, request.start) {
        (None, start) => vec![(start, None)],
        (Some(_), Some(_)) => {
            return Err(invalid("start: a recurring request starts by its own clock"));
        }
        (Some(rule), None) => {
            let found = recur::occurrences(rule, view.timestamp(view.now())).map_err(invalid)?;
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

fn file_ask(
    view: &View,
    file: &FileWant,
    start: Option<Timestamp>,
) -> Result<Ask, ProblemResponse> {
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

fn hold_ask(
    view: &View,
    hold: &HoldWant,
    start: Option<Timestamp>,
) -> Result<Ask, ProblemResponse> {
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

/// A booking's request after a change.
pub(in crate::server) fn modified(
    view: &View,
    open: &Open,
    change: &ModifyRequest,
) -> Result<(Ask, Option<u64>), ProblemResponse> {
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

fn changed_start(view: &View, new: Option<Timestamp>, old: u64) -> Result<u64, ProblemResponse> {
    match new {
        Some(_) => start_tick(view, new),
        None => Ok(old),
    }
}

fn paths(view: &View, request: &BookRequest) -> Result<Vec<Route>, ProblemResponse> {
    match (&request.links, &request.from, &request.to) {
        (Some(names), None, None) => {
            let number = |name: &String| link(view, name);
            let route = Route(names.iter().map(number).collect::<Result<_, _>>()?);
            if route.path().is_none() || names.len() > LINKS_MAX {
                return Err(invalid(format!("links: expected 1 to {LINKS_MAX} different links")));
            }
            match candidate_paths::gap(&view.links, &route) {
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
                    return Err(ProblemResponse::not_found(
                        "unknown-node",
                        format!("no link at {node}"),
                    ));
                }
            }
            let found = candidate_paths::between(&view.links, from, to, PATHS_MAX);
            match found.is_empty() || from == to {
                true => Err(ProblemResponse::not_found(
                    "no-path",
                    format!("no path from {from} to {to}"),
                )),
                false => Ok(found),
            }
        }
        _ => Err(invalid("expected from and to, or links")),
    }
}

/// The tick of a start; 0 for as soon as possible.
fn start_tick(view: &View, start: Option<Timestamp>) -> Result<u64, ProblemResponse> {
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
fn tick_by(view: &View, by: Timestamp) -> Result<u64, ProblemResponse> {
    Ok(view.grid.tick_by(instant("deadline", by)?))
}

const LABEL_MAX: usize = 200;
const LINKS_MAX: usize = 16;
/// Candidate paths of a request; few are enough (Rajah, Ranka, Xia 2008).
const PATHS_MAX: usize = 4;
