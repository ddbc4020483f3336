//! Looking at a transfer while it runs.

use std::sync::Arc;

use longhaul_connection::{
    Counts, Diagnosis, ReceivingSide, SendingSide, Watchdog, lasts_at_receiver, lasts_at_sender,
};
use longhaul_rate_control::MemoryBudget;
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{Bottleneck, SourceReport};

use crate::budget::{Budget, SINK_SPARE};
use crate::connection::Lanes;
use crate::hub::Side;
use crate::lease::Lease;

/// Looks at a transfer now and then: what holds it up, and when to tell the peer.
pub(crate) struct Watch {
    begun: Instant,
    looked: Instant,
    report_due: Instant,
    sending: Option<Diagnosis>,
    receiving: Option<ReceivingSide>,
    budget: Budget,
    memory: Option<MemoryBudget>,
    watchdog: Watchdog,
    /// In words, once the transfer has stood still for too long.
    stalled: Option<String>,
    /// At a server: what its memory comes from.
    lease: Option<Arc<Lease>>,
}

impl Watch {
    /// `patience` is how long a copy may stand still; zero is for ever.
    pub fn new(budget: Budget, patience: Duration) -> Self {
        let now = clock::now();
        Self {
            begun: now,
            looked: now,
            report_due: now + REPORT_INTERVAL,
            sending: None,
            receiving: None,
            budget,
            memory: None,
            watchdog: Watchdog::new(patience),
            stalled: None,
            lease: None,
        }
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
        self.stalled.clone()
    }

    /// Looks if it is time, and tells the sink how sending goes if it is time for that.
    pub fn look(&mut self, side: &Side, lanes: &Lanes) {
        let now = clock::now();
        if now >= self.looked + LOOK_INTERVAL {
            self.examine(now, side, lanes);
            self.look_for_life(now, side, lanes);
        }
        if now >= self.report_due {
            self.report_due = now + REPORT_INTERVAL;
            self.tell(side, lanes);
        }
    }

    /// The same at the end, whatever the time.
    pub fn look_last(&mut self, side: &Side, lanes: &Lanes) {
        self.examine(clock::now(), side, lanes);
        self.tell(side, lanes);
    }

    fn examine(&mut self, now: Instant, side: &Side, lanes: &Lanes) {
        self.looked = now;
        let (there, here) = lanes.passed();
        let round_trip = lanes.round_trip();
        match side {
            Side::Source(source) => {
                let memory =
                    self.memory.get_or_insert_with(|| self.budget.growing_of_source(self.begun));
                let wanted = memory.update(now, there, round_trip);
                source.set_memory(self.leased(wanted, Bytes::new(0)));
                let (stages, readers) = source.seen();
                let (carrier, receiver) = (lanes.times(), lanes.peer());
                let lanes = lanes.spent();
                let seen = SendingSide { stages, readers, carrier, lanes, receiver };
                self.sending.get_or_insert_with(|| Diagnosis::new(now)).observe(seen);
            }
            Side::Sink(sink) => {
                let memory =
                    self.memory.get_or_insert_with(|| self.budget.growing_of_sink(self.begun));
                let wanted = memory.update(now, here, round_trip);
                sink.set_memory(self.leased(wanted, SINK_SPARE));
                let (writers, writing) = sink.seen();
                let seen = ReceivingSide { at: now, lanes: lanes.spent(), writers, writing };
                if let Some(before) = self.receiving.replace(seen) {
                    sink.set_bounds(seen.bounds(&before));
                }
            }
        }
    }

    /// Looks whether anything moves.
    fn look_for_life(&mut self, now: Instant, side: &Side, lanes: &Lanes) {
        let (counts, waits, bound) = match side {
            Side::Source(source) => {
                let bound = self.bound_of_sending(side);
                let waits = source.idles(bound) || lasts_at_receiver(lanes.peer().storage);
                (source.counts(), waits, bound)
            }
            Side::Sink(sink) => {
                let (here, there) = (sink.bounds().storage, sink.source_bound());
                let bound = if here == Bottleneck::Unknown { there } else { here };
                (sink.counts(), sink.idles() || lasts_at_sender(there), bound)
            }
        };
        let counts = Counts { carried: lanes.moved(), ..counts };
        self.stalled = self.watchdog.look(now, counts, waits, bound);
    }

    /// What holds sending up now.
    fn bound_of_sending(&self, side: &Side) -> Bottleneck {
        match side {
            // The data waits for a circuit, whatever else there may be to say.
            Side::Source(source) if source.awaits_circuit() => Bottleneck::Reservation,
            _ => self.sending.as_ref().map_or(Bottleneck::StartUp, Diagnosis::now),
        }
    }

    fn tell(&self, side: &Side, lanes: &Lanes) {
        if let Side::Source(source) = side {
            let bound = self.bound_of_sending(side);
            source.report(SourceReport { bound, ..self.sending(lanes) });
        }
    }

    /// How sending goes.
    pub fn sending(&self, lanes: &Lanes) -> SourceReport {
        let (bound, bottleneck) = self.sending.as_ref().map_or_else(
            || (Bottleneck::StartUp, Bottleneck::StartUp),
            |diagnosis| (diagnosis.now(), diagnosis.longest()),
        );
        SourceReport { bound, bottleneck, ..lanes.totals().sending }
    }
}

/// Long enough for what threads did in it to mean something.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Often enough for a progress display, and next to nothing beside the data.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
