//! Checking a log: that it decides itself again, word for word, and that what was held never
//! exceeded a link.

use std::collections::BTreeMap;

use super::Ledger;
use super::corrupt::{Contradiction, Corrupt};
use super::decide::Decision;
use super::order::{Event, Id, Ranges, Record, Route};

/// Findings of [`verify`].
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Records in the log.
    pub records: u64,
    /// Bookings that were made.
    pub booked: u64,
    /// Largest part of a link that was ever held, in parts per million.
    pub peak_ppm: u64,
}

/// Replays a log twice: once by applying its events, once by deciding its orders again. Both must
/// agree with the log and with each other, and no link may have carried more than it can.
///
/// `state` is the ledger kept for records that the log no longer has. Records that begin before it
/// must lead to it; if they follow it, they are replayed from there on.
///
/// # Errors
/// The first record that contradicts the others.
pub fn verify(records: &[Record], state: Option<&Ledger>) -> Result<Summary, Corrupt> {
    let mut summary = Summary { records: records.len() as u64, ..Summary::default() };
    let (mut applied, rest) = match (records, state) {
        ([], None) => return Ok(summary),
        ([], Some(state)) => (state.clone(), records),
        ([first, ..], Some(state)) if first.seq == state.seq() + 1 => (state.clone(), records),
        ([first, rest @ ..], _) => (Ledger::founded(first)?, rest),
    };
    let mut decided = applied.clone();
    let mut held = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for record in rest {
        let wrong = |why| Corrupt::new(record.seq, why);
        let ended = applied.apply(record)?;
        note(&applied, ended, &mut held);
        match decided.decide(record.tick, record.order.clone()).0 {
            Decision::Logged(again) if *again == *record => {}
            Decision::Logged(again) => return Err(wrong(Contradiction::Otherwise(again.outcome))),
            Decision::Repeated(_) => return Err(wrong(Contradiction::Repeated)),
            Decision::Refused(why) => return Err(wrong(Contradiction::Refused(why))),
        }
        let events = &record.outcome;
        let ends =
            |event: &Event| matches!(event, Event::Released { .. } | Event::Cancelled { .. });
        note(&applied, events.iter().filter(|e| ends(e)).filter_map(Event::id), &mut held);
        let booked = events.iter().filter(|e| matches!(e, Event::Booked { .. })).count();
        summary.booked += booked as u64;
        if let Some((key, _)) = record.order.key.as_ref().filter(|_| booked > 0) {
            let used = (record.order.project.clone(), key.clone());
            let life = applied.rules().key_life;
            let before = keys.insert(used, record.tick);
            if before.is_some_and(|before| record.tick < before + life) {
                return Err(wrong(Contradiction::KeyUsed(key.clone())));
            }
        }
        if state.is_some_and(|state| state.seq() == record.seq && !state.same(&applied)) {
            return Err(wrong(Contradiction::OtherState));
        }
    }
    if !applied.same(&decided) {
        return Err(Corrupt::new(applied.seq(), Contradiction::OtherLedger));
    }
    for (id, _, booking) in applied.iter() {
        held.insert(id, (Route::of(&booking.path), Ranges::of(&booking.vector)));
    }
    summary.peak_ppm = peak(&applied, held.values())?;
    Ok(summary)
}

/// Notes what bookings that ended have held.
fn note(
    ledger: &Ledger,
    ended: impl IntoIterator<Item = Id>,
    held: &mut BTreeMap<Id, (Route, Ranges)>,
) {
    for id in ended {
        if let Some(closed) = ledger.closed(id) {
            held.insert(id, (closed.path.clone(), closed.ranges.clone()));
        }
    }
}

/// The largest part of a link that is held at any time, by a plain sum over all changes.
fn peak<'a>(
    ledger: &Ledger,
    held: impl Iterator<Item = &'a (Route, Ranges)>,
) -> Result<u64, Corrupt> {
    let mut changes: Vec<BTreeMap<u64, i64>> = vec![BTreeMap::new(); ledger.links().len()];
    for (route, ranges) in held {
        for link in &route.0 {
            let Some(changes) = changes.get_mut(*link as usize) else { continue };
            for (start, end, rate) in &ranges.0 {
                *changes.entry(*start).or_default() += i64::from(*rate);
                *changes.entry(*end).or_default() -= i64::from(*rate);
            }
        }
    }
    let mut peak = 0;
    for (spec, changes) in ledger.links().iter().zip(changes) {
        let mut sum = 0;
        for (tick, change) in changes {
            sum += change;
            if sum > i64::from(spec.capacity) {
                let (link, capacity) = (spec.name.clone(), spec.capacity);
                let why = Contradiction::Exceeds { sum, capacity, link, tick };
                return Err(Corrupt::new(ledger.seq(), why));
            }
            peak = peak.max(sum.unsigned_abs() * 1_000_000 / u64::from(spec.capacity).max(1));
        }
    }
    Ok(peak)
}
