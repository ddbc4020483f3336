use longhaul_calendar::{Booking, Grid};

use super::Entry;
use super::order::{Ask, LinkSpec, Ranges, Route};

/// Ending of a booking.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Its time passed.
    Finished,
    /// Its owner was done before.
    Released,
    /// Its owner did not want it.
    Cancelled,
    /// It was held and never committed.
    Lapsed,
}

impl Ending {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Released => "released",
            Self::Cancelled => "cancelled",
            Self::Lapsed => "lapsed",
        }
    }
}

/// A booking that ended, and what it used.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Closed {
    /// Its owner, and its own words about itself.
    pub entry: Entry,
    /// The request.
    pub request: Ask,
    /// Its path.
    pub path: Route,
    /// The capacity it held until its end.
    pub ranges: Ranges,
    /// Its ending.
    pub ending: Ending,
    /// Bytes that what it has held can carry.
    pub used_bytes: u64,
    /// Bytes that what it gave back could have carried.
    pub returned_bytes: u64,
    /// Price of what it has held, in millionths of the currency; a hold that lapsed is free.
    pub price_micros: u64,
}

impl Closed {
    pub(super) fn new(
        entry: Entry,
        booking: &Booking,
        whole: u64,
        ending: Ending,
        links: &[LinkSpec],
        grid: Option<Grid>,
    ) -> Self {
        let bytes = |area| grid.map_or(0, |grid| grid.bytes(area).get());
        let area = booking.vector.area();
        let used_bytes = bytes(area);
        let path = Route::of(&booking.path);
        let price_micros = match ending {
            Ending::Lapsed => 0,
            _ => price(links, &path, used_bytes),
        };
        Self {
            entry,
            request: booking.request.into(),
            path,
            ranges: Ranges::of(&booking.vector),
            ending,
            used_bytes,
            returned_bytes: bytes(whole.saturating_sub(area)),
            price_micros,
        }
    }
}

/// Usage of a project in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Totals {
    /// Bookings that ended.
    pub bookings: u64,
    /// Bytes that they could carry.
    pub used_bytes: u64,
    /// Bytes that they gave back.
    pub returned_bytes: u64,
    /// Their price, in millionths of the currency.
    pub price_micros: u64,
}

impl Totals {
    pub(super) fn add(&mut self, closed: &Closed) {
        self.bookings += 1;
        self.used_bytes = self.used_bytes.saturating_add(closed.used_bytes);
        self.returned_bytes = self.returned_bytes.saturating_add(closed.returned_bytes);
        self.price_micros = self.price_micros.saturating_add(closed.price_micros);
    }
}

/// Price of `bytes` over all links of a path, in millionths of the currency, rounded up.
pub fn price(links: &[LinkSpec], path: &Route, bytes: u64) -> u64 {
    let each = |link: &u32| links.get(*link as usize).map_or(0, |link| link.price_micros);
    let total: u128 = path.0.iter().map(each).map(u128::from).sum();
    let price = total.saturating_mul(u128::from(bytes)).div_ceil(1_000_000_000_000);
    u64::try_from(price).unwrap_or(u64::MAX)
}
