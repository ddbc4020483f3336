//! Changing one booking: release, extension, and the moves that re-planning is made of.

use super::{Book, BookError, Booking, BookingId};
use crate::capacity::{Capacity, FOREVER};
use crate::fill::{Run, Want};
use crate::place;
use crate::request::{FileRequest, HoldRequest, PlanError, Policy, Request};
use crate::vector::{Runs, TrcVector};

impl Book {
    /// Takes a booking out and frees what it holds from now on: a transfer that is done before its
    /// margin is used up, or a cancellation. Returns the booking with what it held before.
    pub fn release(&mut self, id: BookingId) -> Result<Booking, BookError> {
        let mut booking = *self.bookings.remove(&id).ok_or(BookError::Unknown(id))?;
        if booking.vector.start().is_some_and(|start| start >= self.now) {
            let whole = core::mem::take(&mut booking.vector);
            self.links.give(&booking.path, whole.runs().merged());
            return Ok(booking);
        }
        let (kept, freed) = booking.vector.runs().split(self.now);
        self.links.give(&booking.path, freed.merged());
        booking.vector = TrcVector::with(kept, self.config.guard);
        Ok(booking)
    }

    /// Adds `volume` channel ticks to a file. What is still ahead is planned again with its policy,
    /// on the same path; the promise becomes that of the new finish. A file of fixed rate goes
    /// on at that rate directly after its end.
    pub fn extend_file(&mut self, id: BookingId, volume: u64) -> Result<(), BookError> {
        let booking = self.bookings.get(&id).ok_or(BookError::Unknown(id))?;
        let Request::File(file) = booking.request else { return Err(BookError::WrongKind) };
        if volume == 0 {
            return Err(BookError::WrongKind);
        }
        let total = file.volume.checked_add(volume).ok_or(PlanError::NoRoom)?;
        let file = FileRequest { volume: total, ..file };
        if file.policy == Policy::Fixed {
            let ticks = total - booking.vector.delivered().min(total);
            let ticks = ticks.div_ceil(u64::from(file.max_rate));
            let by = file.deadline.unwrap_or(FOREVER);
            return self.append(id, Request::File(file), ticks, file.max_rate, by);
        }
        let old = self.lift(id);
        match self.remainder(id, &file) {
            Ok(ranges) => {
                self.put(id, ranges);
                self.enter_request(id, Request::File(file));
                Ok(())
            }
            Err(error) => {
                self.put_back(id, old);
                Err(error.into())
            }
        }
    }

    /// Adds `ticks` to a hold, directly after its end and at Rmin or more. What is already booked
    /// stays as it is.
    pub fn extend_hold(&mut self, id: BookingId, ticks: u64) -> Result<(), BookError> {
        let booking = self.bookings.get(&id).ok_or(BookError::Unknown(id))?;
        let Request::Hold(hold) = booking.request else { return Err(BookError::WrongKind) };
        if ticks == 0 {
            return Err(BookError::WrongKind);
        }
        let duration = hold.duration.checked_add(ticks).ok_or(PlanError::NoRoom)?;
        let request = Request::Hold(HoldRequest { duration, ..hold });
        self.append(id, request, ticks, hold.min_rate, FOREVER)
    }

    /// Makes the planned finish, with the slack of the rules, the promise if that is earlier.
    pub fn tighten(&mut self, id: BookingId) -> Result<(), BookError> {
        let booking = self.bookings.get(&id).ok_or(BookError::Unknown(id))?;
        let promise = self.promise(&booking.request, booking.finish());
        if let Some(booking) = self.bookings.get_mut(&id) {
            booking.promise = booking.promise.min(promise);
        }
        Ok(())
    }

    /// Appends `ticks` with at least `rate` throughout to the end of a booking.
    fn append(
        &mut self,
        id: BookingId,
        request: Request,
        ticks: u64,
        rate: u32,
        by: u64,
    ) -> Result<(), BookError> {
        let booking = self.bookings.get(&id).ok_or(BookError::Unknown(id))?;
        let start = booking.finish();
        let last = booking.vector.merged().last().map_or(rate, |r| r.rate);
        let end = start.checked_add(ticks).ok_or(PlanError::NoRoom)?;
        if end > self.links.horizon() {
            return Err(PlanError::BeyondHorizon(self.links.horizon()).into());
        }
        if start < self.now || end > by {
            return Err(PlanError::NoRoom.into());
        }
        // With guards the rate must not change, or the appended time would not be all of use.
        let guarded = self.config.guard > 0;
        let (rate, cap) = if guarded { (last, last) } else { (rate, request.max_rate()) };
        let ranges = place::capped(&self.links.path(&booking.path), start, end, cap);
        let whole = ranges.merged().map(|r| r.end - r.start).sum::<u64>() == ticks;
        if !whole || ranges.merged().any(|r| r.rate < rate) {
            return Err(PlanError::NoRoom.into());
        }
        self.put(id, ranges);
        self.enter_request(id, request);
        Ok(())
    }

    /// Notes a changed request, and the promise that goes with the finish it now has.
    pub(super) fn enter_request(&mut self, id: BookingId, request: Request) {
        let Some(finish) = self.get(id).map(Booking::finish) else { return };
        let promise = self.promise(&request, finish);
        if let Some(booking) = self.bookings.get_mut(&id) {
            booking.request = request;
            booking.promise = promise;
        }
    }

    /// Frees what a booking holds from now on; returns its whole vector as it was.
    pub(super) fn lift(&mut self, id: BookingId) -> TrcVector {
        let Some(booking) = self.bookings.get_mut(&id) else { return TrcVector::default() };
        let (kept, lifted) = booking.vector.runs().split(self.now);
        self.links.give(&booking.path, lifted.merged());
        let kept = TrcVector::with(kept, self.config.guard);
        core::mem::replace(&mut booking.vector, kept)
    }

    /// Undoes [`Book::lift`].
    pub(super) fn put_back(&mut self, id: BookingId, old: TrcVector) {
        let Some(booking) = self.bookings.get_mut(&id) else { return };
        self.links.take(&booking.path, old.runs().split(self.now).1.merged());
        booking.vector = old;
        let finish = booking.finish();
        self.note_end(id, finish);
    }

    /// Takes ranges that are free and after all that a booking holds, and adds them to it.
    pub(super) fn put(&mut self, id: BookingId, ranges: Runs) {
        let Some(booking) = self.bookings.get_mut(&id) else { return };
        self.links.take(&booking.path, ranges.merged());
        // Now is no change point.
        booking.vector.append(ranges, self.now);
        let finish = booking.finish();
        self.note_end(id, finish);
    }

    /// Plans what a lifted booking does not carry yet, by the policy of `file`.
    pub(super) fn remainder(&self, id: BookingId, file: &FileRequest) -> Result<Runs, PlanError> {
        let booking = self.bookings.get(&id).ok_or(PlanError::NoRoom)?;
        let left = file.volume - booking.vector.delivered().min(file.volume);
        if left == 0 {
            return Ok(Runs::default());
        }
        if file.policy == Policy::Earliest {
            let by = file.deadline.unwrap_or(FOREVER).min(self.links.horizon());
            return self.fill(booking, left, by, Side::Early).ok_or(PlanError::NoRoom);
        }
        let earliest = file.earliest.max(self.now);
        let rest = Request::File(FileRequest { volume: left, earliest, ..*file });
        self.links.place(&rest, &booking.path).map_err(|_| PlanError::NoRoom)
    }

    /// Places `volume` for a lifted booking between now (or its start) and `by`.
    pub(super) fn fill(&self, booking: &Booking, volume: u64, by: u64, side: Side) -> Option<Runs> {
        let from = booking.request.earliest().max(self.now);
        if by <= from {
            return None;
        }
        let guard = self.config.guard;
        let want = Want { volume, max_rate: booking.request.max_rate(), from, by, guard };
        let run = booking.vector.merged().last().filter(|r| r.end == from);
        let run = run.map(|r| Run { start: r.start, end: r.end, rate: r.rate });
        match booking.path.links() {
            [link] => fill_on(self.links.profile(*link)?, &want, run, side),
            _ => fill_on(&self.links.path(&booking.path), &want, run, side),
        }
    }
}

/// Where in its room a volume goes.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Early,
    Late,
}

fn fill_on<C: Capacity>(capacity: &C, want: &Want, run: Option<Run>, side: Side) -> Option<Runs> {
    match side {
        Side::Early => place::earliest(capacity, want, run).ok(),
        Side::Late => place::latest(capacity, want).ok(),
    }
}
