//! A rate that changes while a transfer runs.

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

/// Sees to it that an end sends at the rate that holds: at a client by its schedule, which it tells a server that
/// sends to it.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    /// Of a client, and the rate of its HELLO.
    schedule: Option<(RateSchedule, Option<Rate>)>,
    /// The limit of this end's carrier.
    limit: Option<Option<Rate>>,
}

impl Steering {
    /// By the schedule of a client whose HELLO had the rate `first`.
    pub fn by(schedule: Option<RateSchedule>, first: Option<Rate>) -> Self {
        Self { schedule: schedule.map(|schedule| (schedule, first)), limit: None }
    }

    /// Looks what the rate is now.
    pub fn look(&mut self, shared: &Shared, lanes: &dyn Carrier) {
        let rate = match &self.schedule {
            Some((schedule, first)) => {
                let rate = schedule.now();
                let steered = shared.lock().incoming_copy().map(|copy| copy.steer(*first, rate));
                if steered == Some(true) {
                    shared.mailboxes.wake_messages();
                }
                steered.is_none().then_some(rate)
            }
            None => shared.lock().outgoing_copy().and_then(|copy| copy.take_rate()),
        };
        let is_news = rate.is_some() && rate != self.limit;
        self.limit = rate.or(self.limit);
        // Paths may have come since.
        if let Some(limit) = self.limit.filter(|_| is_news || lanes.paths().is_some()) {
            lanes.limit(limit);
        }
    }
}
