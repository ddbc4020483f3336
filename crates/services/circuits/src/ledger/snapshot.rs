//! A ledger as one text, which stands for the records that led to it.

use std::collections::BTreeMap;

use longhaul_calendar::BookingId;
use serde::{Deserialize, Serialize};

use super::corrupt::{Contradiction, Corrupt};
use super::order::{Id, LinkSpec, Place, Quota, Ranges, Route, Rules};
use super::usage::{Closed, Totals};
use super::{Entry, Ledger};

/// The part of a ledger that cannot be computed from the rest of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    rules: Rules,
    seq: u64,
    tick: u64,
    next: Id,
    links: Vec<LinkSpec>,
    projects: BTreeMap<String, Quota>,
    open: Vec<(Id, Entry, Place)>,
    closed: Vec<(Id, Closed)>,
    totals: BTreeMap<String, Totals>,
    keys: Vec<Key>,
}

/// An idempotency key that was used.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    used: u64,
    project: String,
    key: String,
    fingerprint: String,
    ids: Vec<Id>,
}

impl Ledger {
    /// The ledger as a text from which [`Ledger::from_snapshot`] makes it again.
    ///
    /// # Errors
    /// Something of it has no JSON; it is then not this version's.
    pub fn snapshot(&self) -> Result<String, Corrupt> {
        let open = self.iter().map(|(id, entry, booking)| {
            let place = Place {
                request: booking.request.into(),
                path: Route::of(&booking.path),
                ranges: Ranges::of(&booking.vector),
                promise: booking.promise,
            };
            (id, entry.clone(), place)
        });
        let keys = self.keys.iter().map(|(used, project, key, known)| {
            let (project, key, (fingerprint, ids)) = (project.into(), key.into(), known.clone());
            Key { used, project, key, fingerprint, ids }
        });
        let snapshot = Snapshot {
            rules: self.rules.clone(),
            seq: self.seq,
            tick: self.now(),
            next: self.book.next_id().0,
            links: self.links.clone(),
            projects: self.projects.clone(),
            open: open.collect(),
            closed: self.closed.iter().map(|(id, closed)| (*id, closed.clone())).collect(),
            totals: self.totals.clone(),
            keys: keys.collect(),
        };
        serde_json::to_string(&snapshot)
            .map_err(|error| Corrupt::new(self.seq, Contradiction::Json(error.to_string())))
    }

    /// The ledger that a text of [`Ledger::snapshot`] stands for.
    ///
    /// # Errors
    /// It is no such text, or contradicts itself.
    pub fn from_snapshot(text: &str) -> Result<Self, Corrupt> {
        let found: Snapshot = serde_json::from_str(text)
            .map_err(|error| Corrupt::new(0, Contradiction::Json(error.to_string())))?;
        let wrong = |why| Corrupt::new(found.seq, Contradiction::InState(Box::new(why)));
        let mut ledger = Self::new(found.rules, found.tick);
        if ledger.grid().is_none() {
            return Err(wrong(Contradiction::NoGrid));
        }
        ledger.seq = found.seq;
        for link in found.links {
            ledger.book.add_link(link.capacity);
            ledger.links.push(link);
        }
        ledger.projects = found.projects;
        for (id, entry, place) in found.open {
            ledger.restore(id, &place).map_err(wrong)?;
            ledger.enter(id, entry);
        }
        ledger.book.skip_to(BookingId(found.next));
        ledger.closed = found.closed.into_iter().collect();
        ledger.totals = found.totals;
        for Key { used, project, key, fingerprint, ids } in found.keys {
            ledger.keys.insert(used, &project, &key, (fingerprint, ids));
        }
        Ok(ledger)
    }
}
