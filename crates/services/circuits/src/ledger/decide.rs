//! Deciding orders.

use std::collections::BTreeMap;

use longhaul_calendar::{Booking, BookingId, Order as Priority, Plan, Request};

use super::order::{Ask, Chosen, Command, Event, Id, Order, Place, Ranges, Record, Refusal, Route};
use super::quota::{self, Allowance};
use super::usage::Ending;
use super::{Entry, Ledger};

/// A decision of [`Ledger::decide`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Something that belongs into the log.
    Logged(Box<Record>),
    /// The same order came before under this key, and made or changed these bookings.
    Repeated(Vec<Id>),
    /// No; nothing has changed.
    Refused(Refusal),
}

impl Ledger {
    /// Decides an order at `tick`, which must not lie before [`Ledger::now`] (it is taken for now
    /// if it does), and carries it out. What was refused has changed nothing.
    /// Also returns the bookings that ended meanwhile.
    pub fn decide(&mut self, tick: u64, order: Order) -> (Decision, Vec<Id>) {
        let tick = tick.max(self.now());
        let ended = self.advance(tick);
        if let Some((key, fingerprint)) = &order.key
            && let Some((known, ids)) = self.known(&order.project, key)
        {
            if known == fingerprint {
                return (Decision::Repeated(ids.clone()), ended);
            }
            return (Decision::Refused(Refusal::KeyReused), ended);
        }
        let decision = match self.carry_out(&order) {
            Ok(outcome) => {
                self.remember(&order, tick, ids(&outcome));
                self.seq += 1;
                Decision::Logged(Box::new(Record { seq: self.seq, tick, order, outcome }))
            }
            Err(refusal) => Decision::Refused(refusal),
        };
        (decision, ended)
    }

    fn carry_out(&mut self, order: &Order) -> Result<Vec<Event>, Refusal> {
        let for_operators =
            matches!(order.command, Command::Found(_) | Command::SetProjects { .. })
                || matches!(order.command, Command::AddLink(_) | Command::Replan);
        if for_operators && !order.operator {
            return Err(Refusal::NotAllowed);
        }
        match &order.command {
            Command::Found(_) => Err(Refusal::Unsound { why: "founded already".into() }),
            Command::SetProjects { projects } => {
                self.projects.clone_from(projects);
                Ok(vec![Event::Set])
            }
            Command::AddLink(spec) => {
                if self.links.iter().any(|link| link.name == spec.name) {
                    return Err(Refusal::LinkExists { name: spec.name.clone() });
                }
                let link = self.book.add_link(spec.capacity);
                self.links.push(spec.clone());
                Ok(vec![Event::LinkAdded { link: link.0 }])
            }
            Command::Book { requests, paths, held_until, .. } => {
                self.book(order, requests, paths, *held_until)
            }
            Command::Take { plans, .. } => self.take(order, plans),
            Command::Commit { id } => {
                let entry = self.own(order, *id)?;
                if entry.held_until.is_none() {
                    return Err(Refusal::NotHeld { id: *id });
                }
                self.committed(*id);
                Ok(vec![Event::Committed { id: *id }])
            }
            Command::Modify { id, request, paths, .. } => {
                self.own(order, *id)?;
                let old = self.booking(*id)?.clone();
                let allowance = self.allowance(order)?;
                let request = allowance.within(*request)?;
                // One that has begun ends so much after its start, which may be later than asked.
                let begun = old.vector.start().filter(|start| *start < self.now());
                if let (Ask::Hold { duration, .. }, Some(start)) = (request, begun) {
                    let length = duration.saturating_add(self.rules.guard);
                    allowance.reaches(start.saturating_add(length))?;
                }
                let held =
                    |link| if old.path.links().contains(&link) { old.vector.area() } else { 0 };
                let paths = allowance.affordable(paths, &[request], held)?;
                let request: Request = request.into();
                self.book
                    .modify(BookingId(*id), &request, &paths)
                    .map_err(|error| Refusal::of_book(error, *id))?;
                self.changed(*id, &order.command, old);
                Ok(vec![Event::Modified { id: *id, place: self.place(*id)? }])
            }
            Command::Extend { id, by, .. } => self.extend(order, *id, *by),
            Command::Release { id } => {
                self.own(order, *id)?;
                self.end(*id, Ending::Released);
                Ok(self.with_replan(vec![Event::Released { id: *id }]))
            }
            Command::Cancel { id, series } => self.cancel(order, *id, *series),
            Command::Replan => Ok(vec![self.replan()]),
        }
    }

    fn book(
        &mut self,
        order: &Order,
        requests: &[Ask],
        paths: &[Route],
        held_until: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let allowance = self.allowance(order)?;
        let requests = requests
            .iter()
            .map(|request| allowance.within(*request))
            .collect::<Result<Vec<_>, _>>()?;
        let paths = allowance.affordable(paths, &requests, |_| 0)?;
        let requests: Vec<Request> = requests.into_iter().map(Request::from).collect();
        let made = self
            .book
            .book_all(&requests, &paths)
            .map_err(|(occurrence, error)| Refusal::of_plan(error, occurrence))?;
        self.booked(order, &made, held_until)
    }

    fn take(&mut self, order: &Order, plans: &[Chosen]) -> Result<Vec<Event>, Refusal> {
        let allowance = self.allowance(order)?;
        let mut found = Vec::with_capacity(plans.len());
        let mut asked: BTreeMap<u32, u64> = BTreeMap::new();
        for Chosen { request, path: route, ranges } in plans {
            let request = allowance.within(*request)?;
            let (Some(path), Some(vector)) = (route.path(), ranges.vector(self.rules.guard)) else {
                return Err(Refusal::Unsound { why: "the plan holds nothing".into() });
            };
            for link in &route.0 {
                let asked = asked.entry(*link).or_default();
                *asked = asked.saturating_add(quota::area(&request));
            }
            found.push((request.into(), Plan { path, vector }));
        }
        for (link, area) in asked {
            allowance.affordable_area(&[Route(vec![link])], area, |_| 0)?;
        }
        if found.is_empty() {
            return Err(Refusal::Unsound { why: "nothing was quoted".into() });
        }
        let made = self.book.commit_all(found).map_err(|(_, error)| Refusal::of_book(error, 0))?;
        self.booked(order, &made, None)
    }

    /// Notes bookings that were just made; several are a series.
    fn booked(
        &mut self,
        order: &Order,
        made: &[BookingId],
        held_until: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let note = match &order.command {
            Command::Book { note, .. } | Command::Take { note, .. } => note.clone(),
            _ => Default::default(),
        };
        let series = made.first().filter(|_| made.len() > 1).map(|id| id.0);
        let entry = Entry {
            project: order.project.clone(),
            actor: order.actor.clone(),
            note,
            series,
            held_until,
            made: self.now(),
        };
        let mut events = Vec::with_capacity(made.len());
        for BookingId(id) in made.iter().copied() {
            self.enter(id, entry.clone());
            events.push(Event::Booked { id, series, held_until, place: self.place(id)? });
        }
        Ok(events)
    }

    fn extend(&mut self, order: &Order, id: Id, by: u64) -> Result<Vec<Event>, Refusal> {
        self.own(order, id)?;
        let old = self.booking(id)?.clone();
        let more = match old.request {
            Request::File(_) => by,
            Request::Hold(hold) => by.saturating_mul(u64::from(hold.max_rate)),
        };
        let allowance = self.allowance(order)?;
        allowance.affordable_area(&[Route::of(&old.path)], more, |_| 0)?;
        // A file's deadline lies within the project's horizon.
        if let Request::Hold(_) = old.request {
            allowance.reaches(old.finish().saturating_add(by))?;
        }
        let extended = match old.request {
            Request::File(_) => self.book.extend_file(BookingId(id), by),
            Request::Hold(_) => self.book.extend_hold(BookingId(id), by),
        };
        extended.map_err(|error| Refusal::of_book(error, id))?;
        self.changed(id, &order.command, old);
        Ok(vec![Event::Extended { id, place: self.place(id)? }])
    }

    fn cancel(&mut self, order: &Order, id: Id, series: bool) -> Result<Vec<Event>, Refusal> {
        let ids: Vec<Id> = match self.series.get(&id).filter(|_| series) {
            Some(open) => open.iter().copied().collect(),
            None => vec![id],
        };
        for id in &ids {
            self.own(order, *id)?;
        }
        for id in &ids {
            self.end(*id, Ending::Cancelled);
        }
        let events = ids.into_iter().map(|id| Event::Cancelled { id }).collect();
        Ok(self.with_replan(events))
    }

    /// Adds a re-planning if capacity was freed and the rules ask for it.
    fn with_replan(&mut self, mut events: Vec<Event>) -> Vec<Event> {
        if self.book.len() <= self.rules.replan_up_to {
            let event = self.replan();
            if !matches!(&event, Event::Replanned { moved } if moved.is_empty()) {
                events.push(event);
            }
        }
        events
    }

    fn replan(&mut self) -> Event {
        let before: Vec<(BookingId, Booking)> =
            self.book.iter().map(|(id, booking)| (id, booking.clone())).collect();
        self.book.replan(Priority::ShortestFirst);
        let mut moved = Vec::new();
        for (id, old) in before {
            let new = self.book.get(id).map(|booking| &booking.vector);
            if let Some(new) = new.filter(|new| **new != old.vector) {
                moved.push((id.0, Ranges::of(new)));
                self.changed(id.0, &Command::Replan, old);
            }
        }
        Event::Replanned { moved }
    }

    /// The open booking `id`, if the giver of the order may touch it.
    fn own(&self, order: &Order, id: Id) -> Result<&Entry, Refusal> {
        let may = |project: &str| order.operator || order.project == project;
        if let Some(entry) = self.entries.get(&id).filter(|entry| may(&entry.project)) {
            return Ok(entry);
        }
        match self.closed.get(&id).filter(|closed| may(&closed.entry.project)) {
            Some(closed) => Err(Refusal::Closed { id, state: closed.ending.name().into() }),
            None => Err(Refusal::UnknownBooking { id }),
        }
    }

    fn booking(&self, id: Id) -> Result<&Booking, Refusal> {
        self.book.get(BookingId(id)).ok_or(Refusal::UnknownBooking { id })
    }

    fn place(&self, id: Id) -> Result<Place, Refusal> {
        let booking = self.booking(id)?;
        Ok(Place {
            request: booking.request.into(),
            path: Route::of(&booking.path),
            ranges: Ranges::of(&booking.vector),
            promise: booking.promise,
        })
    }

    fn allowance<'a>(&'a self, order: &'a Order) -> Result<Allowance<'a>, Refusal> {
        let (projects, areas) = (&self.projects, &self.areas);
        Allowance::of(&order.project, projects, &self.rules, &self.links, areas, self.now())
    }
}

/// The bookings that events made, ended or changed at the owner's wish.
pub(super) fn ids(events: &[Event]) -> Vec<Id> {
    events.iter().filter_map(Event::id).collect()
}
