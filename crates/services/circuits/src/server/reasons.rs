//! Reasons why a request, or a change of a booking, found no room.

use longhaul_calendar::{Alternative, Booking, LinkSet, Path, Request};

use super::translate::{self, Asked};
use crate::api::{self, Explanation};
use crate::ledger::{Ask, Command, Placing, Refusal, Route};
use crate::service::{Open, ServiceError, View};

/// Why a request of a project was refused, if that was for lack of room.
pub(super) fn of_request(
    view: &View,
    error: &ServiceError,
    project: &str,
    asked: &Asked,
) -> Option<Explanation> {
    let ServiceError::Refused(Refusal::NoRoom { occurrence }) = error else { return None };
    let paths: Vec<Path> = asked.paths.iter().filter_map(Route::path).collect();
    let allowance = view.allowance(project).ok()?;
    let mut capacity = view.capacity.clone();
    // Beside those before it, as it was decided.
    for ask in asked.requests.get(..*occurrence)? {
        let plan = capacity.plan(&allowance.within(*ask).ok()?.into(), &paths).ok()?;
        capacity = capacity.beside(&plan)?;
    }
    let ask = *asked.requests.get(*occurrence)?;
    explained(view, project, &capacity, ask, &paths, Some)
}

/// Why a change of a booking was refused, if that was for lack of room.
pub(super) fn of_change(
    view: &View,
    error: &ServiceError,
    open: &Open,
    command: &Command,
) -> Option<Explanation> {
    let ServiceError::Refused(Refusal::NoRoom { .. }) = error else { return None };
    let booking = &open.booking;
    let part = Part::of(view, booking, command)?;
    // Its own place is free for it.
    let capacity = view.capacity.without(&booking.path, &booking.vector)?;
    let paths = [booking.path.clone()];
    explained(view, &open.entry.project, &capacity, part.ask, &paths, |change| match change {
        Alternative::Volume(most) => part.whole(most).map(Alternative::Volume),
        Alternative::Duration(most) => part.whole(most).map(Alternative::Duration),
        // A booking cannot be given these.
        Alternative::LatestStart(_) | Alternative::VaryingRate => None,
        change => Some(change),
    })
}

/// The plan for a change of a booking.
struct Part {
    ask: Ask,
    /// Channel ticks of a file or ticks of a hold that have passed.
    passed: u64,
    /// The part of them that the change does not count: it says how many are added.
    before: u64,
}

impl Part {
    fn of(view: &View, booking: &Booking, command: &Command) -> Option<Self> {
        let now = view.now();
        match (command, booking.request) {
            (Command::Modify { request, .. }, _) => {
                Some(Self::of_request(booking, Request::from(*request), now, 0))
            }
            (Command::Extend { by, .. }, Request::File(mut file))
                if Placing::from(file.policy) != Placing::Fixed =>
            {
                let before = file.volume;
                file.volume = before.saturating_add(*by);
                Some(Self::of_request(booking, Request::File(file), now, before))
            }
            (Command::Extend { by, .. }, _) => {
                let ask = appended(booking, *by, view.rules.guard);
                Some(Self { ask, passed: 0, before: 0 })
            }
            _ => None,
        }
    }

    fn of_request(booking: &Booking, request: Request, now: u64, before: u64) -> Self {
        let passed = match request {
            Request::File(_) => booking.vector.delivered_before(now),
            Request::Hold(_) => booking.vector.start().map_or(0, |start| now.saturating_sub(start)),
        };
        Self { ask: rest(&Booking { request, ..booking.clone() }, now), passed, before }
    }

    /// The value that a change to `most` of the part has for the whole.
    fn whole(&self, most: u64) -> Option<u64> {
        most.saturating_add(self.passed).checked_sub(self.before).filter(|whole| *whole > 0)
    }
}

/// The rest of a booking from now on.
pub(super) fn rest(booking: &Booking, now: u64) -> Ask {
    let ask = Ask::from(booking.request).not_before(now);
    let begun = booking.vector.start().filter(|start| *start < now);
    match (ask, begun) {
        (Ask::File { volume, max_rate, earliest, deadline, policy }, _) => {
            let left = volume.saturating_sub(booking.vector.delivered_before(now)).max(1);
            Ask::File { volume: left, max_rate, earliest, deadline, policy }
        }
        (Ask::Hold { duration, min_rate, max_rate, .. }, Some(start)) => {
            let duration = start.saturating_add(duration).saturating_sub(now).max(1);
            let latest_start = Some(now);
            Ask::Hold { duration, min_rate, max_rate, earliest: now, latest_start }
        }
        (hold, None) => hold,
    }
}

/// A request directly after a booking's end: more of a hold, or of a file of fixed rate.
fn appended(booking: &Booking, by: u64, guard: u64) -> Ask {
    let end = booking.finish();
    // What goes on at the same rate has no guard of its own.
    let useful = |ticks: u64| ticks.saturating_sub(guard).max(1);
    match Ask::from(booking.request) {
        Ask::File { max_rate, deadline, policy, .. } => {
            let ticks = by.div_ceil(u64::from(max_rate)).max(1);
            let last = end.saturating_add(ticks);
            let deadline = Some(deadline.map_or(last, |by| by.clamp(end + 1, last)));
            let volume = useful(ticks).saturating_mul(u64::from(max_rate));
            Ask::File { volume, max_rate, earliest: end, deadline, policy }
        }
        Ask::Hold { min_rate, max_rate, .. } => {
            let last = booking.vector.merged().last().map_or(min_rate, |range| range.rate);
            let (min_rate, max_rate) = if guard > 0 { (last, last) } else { (min_rate, max_rate) };
            let (duration, latest_start) = (useful(by), Some(end));
            Ask::Hold { duration, min_rate, max_rate, earliest: end, latest_start }
        }
    }
}

/// Explains that there is no room for `ask`, with those changes that the project may have, as
/// `express` puts them; `None` if there is room by now.
fn explained(
    view: &View,
    project: &str,
    capacity: &LinkSet,
    ask: Ask,
    paths: &[Path],
    express: impl Fn(Alternative) -> Option<Alternative>,
) -> Option<Explanation> {
    let allowance = view.allowance(project).ok()?;
    let request: Request = allowance.within(ask).ok()?.into();
    let mut found =
        capacity.explain(&request, paths).ok().filter(|found| found.finish.is_none())?;
    let allowed = |change: &Alternative| {
        let ask = change.apply(&request).into();
        allowance.within(ask) == Ok(ask)
    };
    found.alternatives =
        found.alternatives.into_iter().filter(allowed).filter_map(express).collect();
    Some(in_sentences(view, found))
}

/// The explanation, for people.
pub(super) fn in_sentences(view: &View, found: longhaul_calendar::Explanation) -> Explanation {
    let time = |tick| view.timestamp(tick);
    let binding = found.binding.map(|binding| api::Binding {
        link: translate::names(view, &Route(vec![binding.link.0])).concat(),
        range: api::Range {
            start: time(binding.start),
            end: time(binding.end),
            rate_bps: view.bps(binding.free),
        },
    });
    let seconds = view.grid.tick().as_secs_f64();
    let changes: Vec<String> =
        found.alternatives.iter().map(|change| in_words(view, *change)).collect();
    let bound = match &binding {
        Some(api::Binding { link, range }) => format!(
            "; link {link} holds it up most: it has {} from {} to {}",
            longhaul_units::Rate::from_bps(range.rate_bps),
            range.start,
            range.end
        ),
        None => "; no link holds it up".into(),
    };
    let summary = match found.finish {
        Some(finish) if finish <= found.unimpeded => "it finishes as if the links were idle".into(),
        Some(finish) => format!(
            "it finishes {:.3} s later than on idle links{bound}",
            finish.saturating_sub(found.unimpeded) as f64 * seconds
        ),
        None if changes.is_empty() => format!("it is refused{bound}; no single change helps"),
        None => {
            format!("it is refused{bound}; it would be accepted with {}", changes.join(", or "))
        }
    };
    Explanation {
        summary,
        unimpeded_finish: Some(time(found.unimpeded)),
        finish: found.finish.map(time),
        binding,
        changes,
    }
}

/// A change that would help.
pub(super) fn in_words(view: &View, change: Alternative) -> String {
    match change {
        Alternative::Deadline(tick) => {
            format!("a deadline of {}", view.timestamp(tick))
        }
        Alternative::Volume(volume) => format!("no more than {}", view.grid.bytes(volume)),
        Alternative::MaxRate(rate) => format!("a maximum rate of {}", view.grid.rate(rate)),
        Alternative::VaryingRate => "a varying rate".into(),
        Alternative::LatestStart(tick) => {
            format!("a start as late as {}", view.timestamp(tick))
        }
        Alternative::Duration(ticks) => {
            let seconds = ticks as f64 * view.grid.tick().as_secs_f64();
            format!("no longer than {seconds} s")
        }
        Alternative::MinRate(rate) => format!("a least rate of {}", view.grid.rate(rate)),
        other => format!("{other:?}"),
    }
}
