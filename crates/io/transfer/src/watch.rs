//! Looking at a transfer while it runs.

use std::sync::Arc;

use longhaul_connection::{CarrierSeen, Watch as Watched};
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{Bottleneck, SourceReport};

use crate::budget::{Budget, SINK_SPARE};
use crate::connection::Lanes;
use crate::hub::Side;
use crate::lease::Lease;

/// Looks at a transfer now and then: carries what is seen to a [`longhaul_connection::Watch`], and what
/// it says to the side that this host plays.
pub(crate) struct Watch {
    begun: Instant,
    budget: Budget,
    patience: Duration,
    /// Since it is known which side that is.
    watched: Option<Watched>,
    /// At a server: what its memory comes from.
    lease: Option<Arc<Lease>>,
}

impl Watch {
    /// `patience` is how long a copy may stand still; zero is for ever.
    pub fn new(budget: Budget, patience: Duration) -> Self {
        Self { begun: clock::now(), budget, patience, watched: None, lease: None }
    }

    /// As [`Self::new`], of a transfer whose memory is leased.
    pub fn leasing(lease: Arc<Lease>, patience: Duration) -> Self {
        Self { lease: Some(lease.clone()), ..Self::new(lease.budget(), patience) }
    }

    /// What there is of `wanted`, of which a side takes `spare` beyond what it counts.
    fn leased(&self, wanted: Bytes, spare: Bytes) -> Bytes {
        self.lease.as_ref().map_or(wanted, |lease| lease.grow(wanted + spare) - spare)
    }

    /// Why the transfer is to be ended, if it has stood still for too long.
    pub fn stalled(&self) -> Option<String> {
        self.watched.as_ref()?.stalled().map(str::to_string)
    }

    fn watched(&mut self, side: &Side) -> &mut Watched {
        let Self { begun, budget, patience, .. } = *self;
        self.watched.get_or_insert_with(|| {
            let memory = match side {
                Side::Source(_) => budget.growing_of_source(begun),
                Side::Sink(_) => budget.growing_of_sink(begun),
            };
            Watched::new(begun, memory, patience)
        })
    }

    /// Looks if it is time, and tells the sink how sending goes if it is time for that.
    pub fn look(&mut self, side: &Side, lanes: &Lanes) {
        let now = clock::now();
        if self.watched(side).is_due(now) {
            let seen = lanes.seen();
            self.examine(now, side, &seen);
            self.look_for_life(now, side, &seen);
        }
        if self.watched(side).is_report_due(now) {
            self.tell(side, lanes);
        }
    }

    /// The same at the end, whatever the time.
    pub fn look_last(&mut self, side: &Side, lanes: &Lanes) {
        self.examine(clock::now(), side, &lanes.seen());
        self.tell(side, lanes);
    }

    fn examine(&mut self, now: Instant, side: &Side, seen: &CarrierSeen) {
        match side {
            Side::Source(source) => {
                let (stages, readers) = source.seen();
                let wanted = self.watched(side).look_at_source(now, seen, stages, readers);
                source.set_memory(self.leased(wanted, Bytes::new(0)));
            }
            Side::Sink(sink) => {
                let (writers, writing) = sink.seen();
                let watched = self.watched(side);
                let (wanted, bounds) = watched.look_at_sink(now, seen, writers, writing);
                sink.set_memory(self.leased(wanted, SINK_SPARE));
                bounds.into_iter().for_each(|bounds| sink.set_bounds(bounds));
            }
        }
    }

    /// Looks whether anything moves.
    fn look_for_life(&mut self, now: Instant, side: &Side, seen: &CarrierSeen) {
        let watched = self.watched(side);
        match side {
            Side::Source(source) => {
                let bound = watched.bound(source.awaits_circuit());
                let (counts, idles) = (source.counts(), source.idles(bound));
                watched.look_for_life_of_source(now, seen, counts, bound, idles);
            }
            Side::Sink(sink) => {
                let bounds = (sink.bounds().storage, sink.source_bound());
                watched.look_for_life_of_sink(now, seen, sink.counts(), bounds, sink.idles());
            }
        }
    }

    fn tell(&mut self, side: &Side, lanes: &Lanes) {
        if let Side::Source(source) = side {
            let bound = self.watched(side).bound(source.awaits_circuit());
            source.report(SourceReport { bound, ..self.sending(lanes) });
        }
    }

    /// How sending goes.
    pub fn sending(&self, lanes: &Lanes) -> SourceReport {
        let counts = lanes.totals().sending;
        match &self.watched {
            Some(watched) => watched.report(counts),
            None => {
                let (bound, bottleneck) = (Bottleneck::StartUp, Bottleneck::StartUp);
                SourceReport { bound, bottleneck, ..counts }
            }
        }
    }
}

#[cfg(test)]
mod tests;
