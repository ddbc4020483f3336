use super::{Book, BookError, BookingId};
use crate::place;
use crate::request::{HoldRequest, Path, PlanError, Request};
use crate::vector::{Runs, TrcVector};

impl Book {
    /// Makes `request`, of the same kind, what a booking is for. A booking that has not begun is
    /// planned again on the best of `paths`; of one that has begun, what has passed and the path
    /// stay, and the rest is planned again. A start that the change leaves as it was may have
    /// passed. The promise becomes that of the new finish.
    pub fn modify(
        &mut self,
        id: BookingId,
        request: &Request,
        paths: &[Path],
    ) -> Result<(), BookError> {
        let booking = self.bookings.get(&id).ok_or(BookError::Unknown(id))?;
        let old = booking.request;
        if core::mem::discriminant(&old) != core::mem::discriminant(request) {
            return Err(BookError::WrongKind);
        }
        request.check()?;
        let begun = booking.vector.start().is_some_and(|start| start < self.now);
        let vector = self.lift(id);
        self.set_request(id, *request);
        let planned = match begun {
            true => self.go_on(id, request, &vector),
            false => self.plan_again(id, &old, request, paths),
        };
        match planned {
            Ok(ranges) => {
                self.put(id, ranges);
                self.enter_request(id, *request);
                Ok(())
            }
            Err(error) => {
                self.set_request(id, old);
                self.put_back(id, vector);
                Err(error.into())
            }
        }
    }

    /// Plans a lifted booking of which nothing has passed, and gives it the best path.
    fn plan_again(
        &mut self,
        id: BookingId,
        old: &Request,
        request: &Request,
        paths: &[Path],
    ) -> Result<Runs, PlanError> {
        let same_start = request.earliest() == old.earliest();
        let now = if same_start { self.now } else { 0 };
        let plan = self.links.plan(&not_before(request, now), paths)?;
        if let Some(booking) = self.bookings.get_mut(&id) {
            booking.path = plan.path;
        }
        Ok(plan.vector.runs().clone())
    }

    /// Plans the rest of a lifted booking that has begun; `old` is what it held.
    fn go_on(&self, id: BookingId, request: &Request, old: &TrcVector) -> Result<Runs, PlanError> {
        match request {
            Request::File(file) => self.remainder(id, file),
            Request::Hold(hold) => self.rest_of_hold(id, hold, old),
        }
    }

    fn rest_of_hold(
        &self,
        id: BookingId,
        hold: &HoldRequest,
        old: &TrcVector,
    ) -> Result<Runs, PlanError> {
        let booking = self.bookings.get(&id).ok_or(PlanError::NoRoom)?;
        let begin = old.start().ok_or(PlanError::NoRoom)?;
        let end = hold.duration.saturating_add(self.config.guard).saturating_add(begin);
        if end <= self.now {
            return Ok(Runs::default());
        }
        if end > self.links.horizon() {
            return Err(PlanError::BeyondHorizon(self.links.horizon()));
        }
        // With guards the rate must not change on the way, or a guard would fall into the hold.
        let rate = old.rate_at(self.now);
        let guarded = self.config.guard > 0 && (hold.min_rate..=hold.max_rate).contains(&rate);
        let cap = if guarded { rate } else { hold.max_rate };
        let ranges = place::capped(&self.links.path(&booking.path), self.now, end, cap);
        let whole = ranges.merged().map(|r| r.end - r.start).sum::<u64>() == end - self.now;
        let least = if self.config.guard > 0 { cap } else { hold.min_rate };
        match whole && ranges.merged().all(|r| r.rate >= least) {
            true => Ok(ranges),
            false => Err(PlanError::NoRoom),
        }
    }

    fn set_request(&mut self, id: BookingId, request: Request) {
        if let Some(booking) = self.bookings.get_mut(&id) {
            booking.request = request;
        }
    }
}

/// The request with a start no earlier than `now`.
fn not_before(request: &Request, now: u64) -> Request {
    match *request {
        Request::File(mut file) => {
            file.earliest = file.earliest.max(now);
            Request::File(file)
        }
        Request::Hold(mut hold) => {
            hold.earliest = hold.earliest.max(now);
            Request::Hold(hold)
        }
    }
}
