//! Rebuilding a ledger from the events that it recorded.

use longhaul_calendar::{Booking, BookingId};

use super::corrupt::{Contradiction, Corrupt};
use super::order::{Command, Event, Id, Note, Place, Ranges, Record};
use super::usage::Ending;
use super::{Entry, Ledger};

impl Ledger {
    /// The ledger that a log leads to; `None` for an empty log.
    pub fn replay(records: impl IntoIterator<Item = Record>) -> Result<Option<Self>, Corrupt> {
        let mut ledger: Option<Self> = None;
        for record in records {
            match &mut ledger {
                Some(ledger) => {
                    ledger.apply(&record)?;
                }
                None => ledger = Some(Self::founded(&record)?),
            }
        }
        Ok(ledger)
    }

    /// The ledger that the first record founds.
    pub(crate) fn founded(record: &Record) -> Result<Self, Corrupt> {
        let Command::Found(rules) = &record.order.command else {
            return Err(Corrupt::new(record.seq, Contradiction::NotFounded));
        };
        let mut ledger = Self::new(rules.clone(), record.tick);
        if ledger.grid().is_none() {
            return Err(Corrupt::new(record.seq, Contradiction::NoGrid));
        }
        ledger.seq = record.seq;
        Ok(ledger)
    }

    /// Does what a record says was done. Returns the bookings that ended meanwhile.
    ///
    /// # Errors
    /// It cannot be done after the records before it; the ledger is then of no use.
    pub fn apply(&mut self, record: &Record) -> Result<Vec<Id>, Corrupt> {
        let wrong = |why| Corrupt::new(record.seq, why);
        if record.seq != self.seq + 1 {
            return Err(wrong(Contradiction::Follows(self.seq)));
        }
        if record.tick < self.now() {
            return Err(wrong(Contradiction::Past { tick: record.tick, now: self.now() }));
        }
        let ended = self.advance(record.tick);
        self.seq = record.seq;
        let mut ids = Vec::new();
        for event in &record.outcome {
            self.happen(record, event, &mut ids).map_err(wrong)?;
        }
        self.remember(&record.order, record.tick, ids);
        Ok(ended)
    }

    fn happen(
        &mut self,
        record: &Record,
        event: &Event,
        ids: &mut Vec<Id>,
    ) -> Result<(), Contradiction> {
        match event {
            Event::Set => match &record.order.command {
                Command::SetProjects { projects } => self.projects.clone_from(projects),
                _ => return Err(Contradiction::SetsNothing),
            },
            Event::LinkAdded { .. } => match &record.order.command {
                Command::AddLink(spec) => {
                    self.book.add_link(spec.capacity);
                    self.links.push(spec.clone());
                }
                _ => return Err(Contradiction::AddsNoLink),
            },
            Event::Booked { id, series, held_until, place } => {
                let note = match &record.order.command {
                    Command::Book { note, .. } | Command::Take { note, .. } => note.clone(),
                    _ => Note::default(),
                };
                self.restore(*id, place)?;
                let order = &record.order;
                self.enter(
                    *id,
                    Entry {
                        project: order.project.clone(),
                        actor: order.actor.clone(),
                        note,
                        series: *series,
                        held_until: *held_until,
                        made: record.tick,
                    },
                );
                ids.push(*id);
            }
            Event::Committed { id } => {
                self.committed(*id);
                ids.push(*id);
            }
            Event::Modified { id, place } | Event::Extended { id, place } => {
                let old = self.lift(*id)?;
                self.restore(*id, place)?;
                self.changed(*id, &record.order.command, old);
                ids.push(*id);
            }
            Event::Released { id } => {
                self.end(*id, Ending::Released);
                ids.push(*id);
            }
            Event::Cancelled { id } => {
                self.end(*id, Ending::Cancelled);
                ids.push(*id);
            }
            Event::Replanned { moved } => self.move_all(moved)?,
        }
        Ok(())
    }

    /// Notes a booking that is in the book.
    pub(super) fn enter(&mut self, id: Id, entry: Entry) {
        if let Some(until) = entry.held_until {
            self.held.insert((until, id));
        }
        if let Some(first) = entry.series {
            self.series.entry(first).or_default().insert(id);
        }
        let held = self.book.get(BookingId(id)).map(|b| (b.path.clone(), b.vector.area()));
        if let Some((path, area)) = held {
            for link in path.links() {
                self.charge(&entry.project, link.0, 0, area);
            }
        }
        self.entries.insert(id, entry);
    }

    pub(super) fn committed(&mut self, id: Id) {
        if let Some(entry) = self.entries.get_mut(&id)
            && let Some(until) = entry.held_until.take()
        {
            self.held.remove(&(until, id));
        }
    }

    /// Notes that a booking in the book has become another; `old` is what it was.
    pub(super) fn changed(&mut self, id: Id, command: &Command, old: Booking) {
        let new = self.book.get(BookingId(id)).map(|b| (b.path.clone(), b.vector.area()));
        let Some(entry) = self.entries.get_mut(&id) else { return };
        match command {
            Command::Modify { bytes, .. } => entry.note.bytes = *bytes,
            Command::Extend { bytes: Some(bytes), .. } => {
                entry.note.bytes = entry.note.bytes.map(|old| old.saturating_add(*bytes));
            }
            _ => {}
        }
        let project = entry.project.clone();
        for link in old.path.links() {
            self.charge(&project, link.0, old.vector.area(), 0);
        }
        if let Some((path, area)) = new {
            for link in path.links() {
                self.charge(&project, link.0, 0, area);
            }
        }
    }

    /// Takes a booking out of the book; returns it as it was.
    fn lift(&mut self, id: Id) -> Result<Booking, Contradiction> {
        let whole = self.book.get(BookingId(id)).cloned().ok_or(Contradiction::NoBooking)?;
        self.book.release(BookingId(id))?;
        Ok(whole)
    }

    pub(super) fn restore(&mut self, id: Id, place: &Place) -> Result<(), Contradiction> {
        let booking = Booking {
            request: place.request.into(),
            path: place.path.path().ok_or(Contradiction::NoPath)?,
            vector: place.ranges.vector(self.rules.guard).ok_or(Contradiction::NoVector)?,
            promise: place.promise,
        };
        self.put(id, booking)
    }

    fn put(&mut self, id: Id, booking: Booking) -> Result<(), Contradiction> {
        Ok(self.book.restore(BookingId(id), booking)?)
    }

    fn move_all(&mut self, moved: &[(Id, Ranges)]) -> Result<(), Contradiction> {
        let mut lifted = Vec::with_capacity(moved.len());
        for (id, ranges) in moved {
            let vector = ranges.vector(self.rules.guard).ok_or(Contradiction::NoVector)?;
            let old = self.lift(*id)?;
            lifted.push((*id, Booking { vector, ..old.clone() }, old));
        }
        for (id, new, old) in lifted {
            self.put(id, new)?;
            self.changed(id, &Command::Replan, old);
        }
        Ok(())
    }
}
