//! What this side tells the peer of itself with its reports, and orders it to do.

use longhaul_units::{Duration, Rate};
use longhaul_wire::ReceiverBounds;

#[derive(Debug)]
pub(super) struct Promises {
    /// Absolute object bytes that there is room for.
    credit: u64,
    capacity: Option<Rate>,
    bounds: ReceiverBounds,
    /// How many times the peer was told to pause or to go on.
    orders: u64,
    /// The last of these, until it is said.
    order: Option<(u64, Duration)>,
}

impl Promises {
    pub(super) const fn new() -> Self {
        Self { credit: 0, capacity: None, bounds: ReceiverBounds::NONE, orders: 0, order: None }
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

    /// Whether an order is to be said.
    pub(super) fn has_order(&self) -> bool {
        self.order.is_some()
    }

    /// There is room for `credit` bytes in all; what was promised stays promised.
    pub(super) fn raise_credit(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    pub(super) fn set_capacity(&mut self, capacity: Option<Rate>) {
        self.capacity = capacity;
    }

    /// Returns whether that is news.
    pub(super) fn set_bounds(&mut self, bounds: ReceiverBounds) -> bool {
        core::mem::replace(&mut self.bounds, bounds) != bounds
    }

    /// The peer is to pause for `duration`, whatever it was told before.
    pub(super) fn suspend(&mut self, duration: Duration) {
        self.orders += 1;
        self.order = Some((self.orders, duration));
    }

    pub(super) fn take_order(&mut self) -> Option<(u64, Duration)> {
        self.order.take()
    }
}
