mod change;
mod error;
mod modify;
mod replan;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

pub use self::error::BookError;
pub use self::replan::{Moved, Order};
use crate::capacity::FOREVER;
use crate::links::{LinkSet, Plan};
use crate::request::{LinkId, Path, PlanError, Request};
use crate::vector::TrcVector;

/// Identifier of a booking, in the order in which bookings were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookingId(pub u64);

impl fmt::Debug for BookingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "booking{}", self.0)
    }
}

/// A request, the capacity held for it, and its promised finish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Booking {
    /// The request, with extensions.
    pub request: Request,
    /// The path taken.
    pub path: Path,
    /// Capacity held on each link of it.
    pub vector: TrcVector,
    /// The finish that was promised. The planned finish never comes after it.
    pub promise: u64,
}

impl Booking {
    /// One past the last booked tick.
    pub fn finish(&self) -> u64 {
        self.vector.finish().unwrap_or(0)
    }
}

/// Rules of a [`Book`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BookConfig {
    /// Idle ticks at the start of each booked stretch of one rate: the clocks' uncertainty and
    /// the switch's reprogramming time.
    pub guard: u64,
    /// Number of ticks ahead of now that may be booked.
    pub horizon: u64,
    /// By how much the promised finish exceeds the planned one, in parts per million of the time
    /// from requested start to planned finish. Zero promises what is planned; more leaves
    /// re-planning room to let short transfers pass.
    pub slack_ppm: u32,
}

impl Default for BookConfig {
    fn default() -> Self {
        Self { guard: 0, horizon: FOREVER, slack_ppm: 0 }
    }
}

/// The bookings of a set of links and the capacity they leave.
///
/// The book has no clock: [`Book::advance`] tells it the time, before which nothing changes any
/// more. Every operation either does all of what it says or returns an error and changes nothing.
/// Previews and explanations are made on [`Book::links`] or on a clone of it, the snapshot.
#[derive(Clone, Debug)]
pub struct Book {
    config: BookConfig,
    now: u64,
    links: LinkSet,
    /// Boxed, so that finding one reads little.
    bookings: BTreeMap<BookingId, Box<Booking>>,
    /// The planned finish of every booking, and of some that have changed since: what comes up is
    /// compared with the booking.
    ends: BinaryHeap<Reverse<(u64, BookingId)>>,
    next: BookingId,
}

impl Book {
    /// An empty book without links, at tick `now`.
    pub fn new(config: BookConfig, now: u64) -> Self {
        let mut links = LinkSet::new(config.guard);
        links.set_horizon(now.saturating_add(config.horizon));
        let (bookings, ends) = (BTreeMap::new(), BinaryHeap::new());
        Self { config, now, links, bookings, ends, next: BookingId(0) }
    }

    /// Adds a link of `capacity` channels.
    pub fn add_link(&mut self, capacity: u32) -> LinkId {
        self.links.add(capacity, self.now)
    }

    /// The free capacity, for previews and explanations. Clone it for a snapshot.
    pub const fn links(&self) -> &LinkSet {
        &self.links
    }

    /// The rules.
    pub const fn config(&self) -> &BookConfig {
        &self.config
    }

    /// The current tick.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// A booking.
    pub fn get(&self, id: BookingId) -> Option<&Booking> {
        self.bookings.get(&id).map(|booking| &**booking)
    }

    /// All bookings, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (BookingId, &Booking)> + '_ {
        self.bookings.iter().map(|(id, booking)| (*id, &**booking))
    }

    /// The identifier of the next booking.
    pub const fn next_id(&self) -> BookingId {
        self.next
    }

    /// Leaves identifiers before `next` to bookings that have ended, as when a book is restored
    /// without them.
    pub fn skip_to(&mut self, next: BookingId) {
        self.next = self.next.max(next);
    }

    /// Number of bookings.
    pub fn len(&self) -> usize {
        self.bookings.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.bookings.is_empty()
    }

    /// The bookings that hold capacity of `link` in `[start, end)`. O(bookings).
    pub fn holders(
        &self,
        link: LinkId,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (BookingId, &Booking)> + '_ {
        self.iter().filter(move |(_, booking)| {
            let overlaps = |r: crate::vector::Allocation| r.start < end && start < r.end;
            booking.path.links().contains(&link) && booking.vector.merged().any(overlaps)
        })
    }

    /// Plans on the best of the candidate paths and books.
    pub fn book(&mut self, request: &Request, paths: &[Path]) -> Result<BookingId, PlanError> {
        let plan = self.links.plan(request, paths)?;
        Ok(self.enter(*request, plan))
    }

    /// Plans and books several requests, all or none: the occurrences of a recurring booking. The
    /// error tells which is refused first.
    pub fn book_all(
        &mut self,
        requests: &[Request],
        paths: &[Path],
    ) -> Result<Vec<BookingId>, (usize, PlanError)> {
        self.all(requests, |book, request| book.book(request, paths))
    }

    /// Books several plans made earlier, as [`Book::commit`] does, all or none. The error tells
    /// which is refused first.
    pub fn commit_all(
        &mut self,
        plans: Vec<(Request, Plan)>,
    ) -> Result<Vec<BookingId>, (usize, BookError)> {
        self.all(plans, |book, (request, plan)| book.commit(&request, plan))
    }

    fn all<T, E>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        make: impl Fn(&mut Self, T) -> Result<BookingId, E>,
    ) -> Result<Vec<BookingId>, (usize, E)> {
        let first = self.next;
        let mut made = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            match make(self, item) {
                Ok(id) => made.push(id),
                Err(error) => {
                    for booking in self.bookings.split_off(&first).into_values() {
                        self.links.give(&booking.path, booking.vector.runs().merged());
                    }
                    self.next = first;
                    return Err((index, error));
                }
            }
        }
        Ok(made)
    }

    /// Books a plan made earlier for this request, if it is all still free.
    pub fn commit(&mut self, request: &Request, plan: Plan) -> Result<BookingId, BookError> {
        self.links.check(request, core::slice::from_ref(&plan.path))?;
        let start = plan.vector.start().ok_or(BookError::EmptyPlan)?;
        if start < self.now {
            return Err(BookError::Plan(PlanError::Past(self.now)));
        }
        if plan.finish() > self.links.horizon() {
            return Err(BookError::Plan(PlanError::BeyondHorizon(self.links.horizon())));
        }
        if let Some((link, range)) = self.links.conflict(&plan) {
            return Err(BookError::Taken { link, start: range.start, end: range.end });
        }
        Ok(self.enter(*request, plan))
    }

    /// Puts a booking back under its identifier, as when a journal is replayed. What of it lies
    /// before now is kept as a record only.
    pub fn restore(&mut self, id: BookingId, booking: Booking) -> Result<(), BookError> {
        if self.bookings.contains_key(&id) {
            return Err(BookError::Exists(id));
        }
        let unknown = |link: &&LinkId| self.links.profile(**link).is_none();
        if let Some(link) = booking.path.links().iter().find(unknown) {
            return Err(BookError::Plan(PlanError::UnknownLink(*link)));
        }
        let (_, ahead) = booking.vector.runs().split(self.now);
        let ahead = TrcVector::with(ahead, self.config.guard);
        let plan = Plan { path: booking.path.clone(), vector: ahead };
        if let Some((link, range)) = self.links.conflict(&plan) {
            return Err(BookError::Taken { link, start: range.start, end: range.end });
        }
        self.links.take(&plan.path, plan.vector.runs().merged());
        self.note_end(id, booking.finish());
        self.bookings.insert(id, Box::new(booking));
        self.next = self.next.max(BookingId(id.0 + 1));
        Ok(())
    }

    /// Moves time on: what lies before `now` can no longer be booked or changed, and bookings
    /// that have finished are taken out and returned. Time does not go back: an earlier `now` has
    /// no effect.
    pub fn advance(&mut self, now: u64) -> Vec<(BookingId, Booking)> {
        if now <= self.now {
            return Vec::new();
        }
        self.now = now;
        self.links.forget_before(now);
        self.links.set_horizon(now.saturating_add(self.config.horizon));
        let mut ended = Vec::new();
        while let Some(Reverse((_, id))) = self.ends.peek().filter(|end| end.0.0 <= now) {
            let id = *id;
            self.ends.pop();
            match self.get(id).map(Booking::finish) {
                Some(finish) if finish <= now => {
                    ended.extend(self.bookings.remove(&id).map(|booking| (id, *booking)));
                }
                // It was extended since.
                Some(finish) => self.ends.push(Reverse((finish, id))),
                None => {}
            }
        }
        ended.sort_unstable_by_key(|(id, _)| *id);
        ended
    }

    /// Notes when a booking ends now. Earlier notes of it and those of bookings that were released
    /// stay, as long as they are not too many: making all again looks at every booking.
    fn note_end(&mut self, id: BookingId, finish: u64) {
        if self.ends.len() > NOTES_PER_BOOKING * self.bookings.len() + USUAL_STALE {
            let ends = self.bookings.iter().map(|(id, booking)| Reverse((booking.finish(), *id)));
            self.ends = ends.collect();
        }
        self.ends.push(Reverse((finish, id)));
    }

    fn enter(&mut self, request: Request, plan: Plan) -> BookingId {
        self.links.take(&plan.path, plan.vector.runs().merged());
        let promise = self.promise(&request, plan.finish());
        let id = self.next;
        self.next = BookingId(id.0 + 1);
        let Plan { path, vector } = plan;
        let vector = vector.fitted();
        self.note_end(id, vector.finish().unwrap_or(0));
        self.bookings.insert(id, Box::new(Booking { request, path, vector, promise }));
        id
    }

    /// The promise for a planned finish. A deadline is not exceeded for the sake of slack.
    fn promise(&self, request: &Request, finish: u64) -> u64 {
        let Request::File(file) = request else { return finish };
        let taken = u128::from(finish.saturating_sub(file.earliest));
        let slack = taken * u128::from(self.config.slack_ppm) / 1_000_000;
        let slack = u64::try_from(slack).unwrap_or(u64::MAX);
        let latest = file.deadline.unwrap_or(FOREVER - 1).min(self.links.horizon());
        finish.saturating_add(slack).min(latest).max(finish)
    }
}

/// Ends noted for each booking, of 16 bytes, before outdated ones are cleared away. With two it took
/// an eighth of the time of deciding.
const NOTES_PER_BOOKING: usize = 8;
/// Outdated ends that are not worth clearing away.
const USUAL_STALE: usize = 64;
