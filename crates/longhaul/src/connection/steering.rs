//! Rates that change while a transfer runs.

use std::fmt;
use std::sync::Arc;

use longhaul_carriers::carrier::Carrier;
use longhaul_units::Rate;

use crate::connection::shared::Shared;

/// The most that may be sent, by the time: asked some ten times a second.
#[derive(Clone)]
pub struct RateSchedule(Arc<dyn Fn() -> Option<Rate> + Send + Sync>);

impl RateSchedule {
    /// As `now` says; nothing where there is no limit.
    pub fn new(now: impl Fn() -> Option<Rate> + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The rate now.
    pub fn now(&self) -> Option<Rate> {
        (self.0)()
    }
}

impl fmt::Debug for RateSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateSchedule").field(&self.now()).finish()
    }
}

/// Sees to it that the end with the data sends at the rate that holds: the lower one of what both ends allow. An end
/// that gets a copy tells the other what it allows.
pub(crate) struct Steering<'a> {
    /// The most that this end allows now.
    own: Box<dyn Fn() -> Option<Rate> + 'a>,
    /// The rate that the other end, if it sends, takes for that at first.
    known: Option<Rate>,
    /// The most that the other end allows.
    theirs: Option<Rate>,
    /// The limit of this end's carrier, and whether it is another than at first.
    limit: Option<Rate>,
    is_changed: bool,
}

impl<'a> Steering<'a> {
    /// Of a client that allows `first`, as its HELLO has it, or what a schedule says.
    pub fn of_client(schedule: Option<RateSchedule>, first: Option<Rate>) -> Self {
        let own = move || schedule.as_ref().map_or(first, RateSchedule::now);
        Self { own: Box::new(own), known: first, theirs: None, limit: first, is_changed: false }
    }

    /// Of a server that allows what `own` says, whose client has asked for at most `first`.
    pub fn of_server(own: impl Fn() -> Option<Rate> + 'a, first: Option<Rate>) -> Self {
        Self { own: Box::new(own), known: None, theirs: first, limit: first, is_changed: false }
    }

    /// Looks what the rate is now.
    pub fn look(&mut self, shared: &Shared, lanes: &dyn Carrier) {
        let own = (self.own)();
        let steered = shared.lock().incoming_copy().map(|copy| copy.steer(self.known, own));
        if let Some(is_news) = steered {
            if is_news {
                shared.mailboxes.wake_messages();
            }
            return;
        }
        let theirs = shared.lock().outgoing_copy().and_then(|copy| copy.take_rate());
        self.theirs = theirs.unwrap_or(self.theirs);
        let limit = own.into_iter().chain(self.theirs).min();
        let is_news = limit != self.limit;
        self.limit = limit;
        self.is_changed |= is_news;
        // Paths may have come since.
        if is_news || self.is_changed && lanes.paths().is_some() {
            lanes.limit(limit);
        }
    }
}
