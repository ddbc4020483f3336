//! This side's announcements to the peer with its reports, and its orders to the peer.

use longhaul_rate_control::HostLimit;
use longhaul_units::{Duration, Instant, Rate};
use longhaul_wire::{MAX_LIMIT, MAX_SUSPEND, ReceiverBounds, ReceiverLimit};

use crate::path::Suspension;

#[derive(Debug)]
pub(super) struct Announced {
    /// Absolute object bytes that there is room for.
    credit: u64,
    capacity: Option<Rate>,
    bounds: ReceiverBounds,
    limit: Option<HostLimit>,
    /// The highest order that was given.
    ordered: u64,
    /// The last order, as long as it is to be sent.
    order: Option<Order>,
}

/// The peer is to pause, or to go on (protocol.md 5.11).
#[derive(Clone, Copy, Debug)]
struct Order {
    suspension: Suspension,
    /// Time of the next sending.
    next: Instant,
    /// Number of times that a resume is still sent; a suspend is sent until it is over.
    resumes: u8,
}

impl Announced {
    pub(super) const fn new() -> Self {
        Self {
            credit: 0,
            capacity: None,
            bounds: ReceiverBounds::NONE,
            limit: None,
            ordered: 0,
            order: None,
        }
    }

    pub(super) fn credit(&self) -> u64 {
        self.credit
    }

    pub(super) fn capacity(&self) -> Option<Rate> {
        self.capacity
    }

    pub(super) fn bounds(&self) -> ReceiverBounds {
        self.bounds
    }

    /// The limit that holds, with the time that is left of it.
    pub(super) fn limit(&self, now: Instant) -> Option<ReceiverLimit> {
        let HostLimit { rate, cause, until } = self.limit?;
        let lasts = (until - now).min(MAX_LIMIT);
        (!lasts.is_zero()).then_some(ReceiverLimit { rate, cause, lasts })
    }

    /// Time to send an order.
    pub(super) fn order_due(&self) -> Option<Instant> {
        self.order.map(|order| order.next)
    }

    /// There is room for `credit` bytes in all; what was promised stays promised.
    pub(super) fn raise_credit(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    pub(super) fn set_capacity(&mut self, capacity: Option<Rate>) {
        self.capacity = capacity;
    }

    /// Returns true if that is news.
    pub(super) fn set_bounds(&mut self, bounds: ReceiverBounds) -> bool {
        core::mem::replace(&mut self.bounds, bounds) != bounds
    }

    /// Returns true if that is news that cannot wait for the next report: a limit where there was
    /// none, or one that is lower by an eighth.
    pub(super) fn set_limit(&mut self, now: Instant, limit: Option<HostLimit>) -> bool {
        let before = self.limit(now).map_or(Rate::MAX, |limit| limit.rate);
        self.limit = limit;
        self.limit(now).is_some_and(|limit| limit.rate < before.scale(7, 8))
    }

    /// The peer is to pause for a while or, where that is over, to go on; older orders are forgotten.
    pub(super) fn suspend(&mut self, now: Instant, suspension: Suspension) {
        if suspension.order > self.ordered {
            self.ordered = suspension.order;
            let resumes = if suspension.until > now { 0 } else { RESUMES };
            self.order = Some(Order { suspension, next: now, resumes });
        }
    }

    /// The order to send now: it goes with each report.
    pub(super) fn take_order(&mut self, now: Instant, report: bool) -> Option<(u64, Duration)> {
        let order = self.order.as_mut().filter(|order| report || order.next <= now)?;
        let Suspension { order: number, until } = order.suspension;
        let left = (until - now).min(MAX_SUSPEND);
        order.next = now + REPEAT;
        let resumes = order.resumes;
        if left.is_zero() {
            order.resumes = resumes.saturating_sub(1);
            self.order = self.order.filter(|_| resumes > 1);
        }
        (!left.is_zero() || resumes > 0).then_some((number, left))
    }
}

/// A few times the reordering of most paths, and little beside what a suspend is made for.
const REPEAT: Duration = Duration::from_millis(10);
/// A resume that is lost as often lets the suspend expire.
const RESUMES: u8 = 3;
