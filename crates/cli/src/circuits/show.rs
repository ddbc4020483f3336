//! `longhaul circuits list` and `show`.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use longhaul_circuits::api::{Booking, Bookings, State};
use longhaul_units::{Bytes, Rate, shown};

use super::args::{ListArgs, ShowArgs};
use super::reach::{client_of as client, failure};
use super::{gantt, value};
use crate::failure::Failure;
use crate::output::Output;

pub(super) fn list(args: &ListArgs, output: &Output) -> Result<(), Failure> {
    let client = client(&args.at)?;
    let mut all = Bookings { bookings: Vec::new(), more_after: None };
    let mut size = 0;
    loop {
        let after = all.bookings.last().map(|booking| booking.id);
        let page = client.list(args.all, after).map_err(failure)?;
        size += page.bookings.iter().map(|booking| 1 + booking.ranges.len()).sum::<usize>();
        if size > SIZE_MOST {
            return Err(Failure::failed(format!(
                "{}: more bookings than this command lists; ask for one with `show`",
                client.url()
            )));
        }
        all.bookings.extend(page.bookings);
        if page.more_after.is_none() {
            break;
        }
    }
    let text = match all.bookings.is_empty() {
        true => "no bookings".into(),
        false => table(&all.bookings),
    };
    output.result(&value(&all)?, text)
}

pub(super) fn show(args: &ShowArgs, output: &Output) -> Result<(), Failure> {
    let client = client(&args.at)?;
    let booking = client.show(args.id).map_err(failure)?;
    let open = matches!(booking.state, State::Held | State::Scheduled | State::Active);
    let why = match open {
        // That it has ended meanwhile, or begun so long ago that it cannot be asked for again,
        // leaves nothing to explain.
        true => client.explain(args.id).ok(),
        false => None,
    };
    let mut json = value(&booking)?;
    let mut text = table(std::slice::from_ref(&booking));
    for range in &booking.ranges {
        let rate = Rate::from_bps(range.rate_bps);
        text += &format!("  {}  {rate}\n", span(range.start, range.end));
    }
    text += &format!(
        "promised by {}, {} booked, price {:.6}\n",
        short(booking.promise),
        Bytes::new(booking.booked_bytes),
        booking.price_micros as f64 / 1e6
    );
    if let Some(why) = why {
        text += &format!("{}\n", why.summary);
        json["explanation"] = value(&why)?;
    }
    output.result(&json, text)
}

/// Bookings as lines with bars on a common time line.
pub(super) fn table(bookings: &[Booking]) -> String {
    let from = bookings.iter().map(|booking| booking.start).min().unwrap_or(Timestamp::MIN);
    let to = bookings.iter().map(|booking| booking.finish).max().unwrap_or(from);
    let rates = bookings.iter().flat_map(|booking| &booking.ranges).map(|range| range.rate_bps);
    let top = rates.max().unwrap_or(1);
    let window = gantt::Window { from, to, width: gantt::WIDTH };
    let links = bookings.iter().map(|booking| booking.links.join(",").len()).max().unwrap_or(0);
    let links = links.max("links".len());
    let mut out = format!(
        "{:>6} {:<9} {:<10} {:<links$} {:<26} {}\n",
        "id",
        "state",
        "project",
        "links",
        format!("{} + ...", short(from)),
        span(from, to)
    );
    for booking in bookings {
        let begins = booking.start.duration_since(from).as_secs_f64();
        let lasts = booking.finish.duration_since(booking.start).as_secs_f64();
        out += &format!(
            "{:>6} {:<9} {:<10} {:<links$} {:<26} {} {}\n",
            booking.id,
            state(booking.state),
            booking.project,
            booking.links.join(","),
            format!("{begins:.1} s, for {lasts:.1} s"),
            gantt::bar(&booking.ranges, window, top),
            shown(&booking.label)
        );
    }
    out
}

fn state(state: State) -> &'static str {
    match state {
        State::Held => "held",
        State::Scheduled => "scheduled",
        State::Active => "active",
        State::Finished => "finished",
        State::Released => "released",
        State::Cancelled => "cancelled",
        State::Lapsed => "lapsed",
        State::Unknown => "unknown",
    }
}

/// A time to the second, in UTC.
pub(super) fn short(time: Timestamp) -> String {
    let rounded = time.round(Unit::Second).unwrap_or(time);
    let civil = rounded.to_zoned(TimeZone::UTC).datetime();
    format!("{civil}Z")
}

/// From when to when.
pub(super) fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs_f64();
    format!("{} to {} ({seconds:.3} s)", short(from), short(to))
}

/// Bookings and their ranges, of a service that says that there are more without end: some hundred
/// megabytes.
const SIZE_MOST: usize = 1_000_000;
