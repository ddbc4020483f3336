//! Looking at a transfer while it runs.

use longhaul_rate_control::MemoryBudget;
use longhaul_sys::clock;
use longhaul_units::{Duration, Instant};
use longhaul_wire::{Bottleneck, SourceReport};

use crate::bottleneck::{Diagnosis, ReceivingSide, SendingSide};
use crate::budget::Budget;
use crate::connection::Lanes;
use crate::hub::Side;

/// Looks at a transfer now and then: what holds it up, and when to tell the peer.
pub(crate) struct Watch {
    begun: Instant,
    looked: Instant,
    report_due: Instant,
    sending: Option<Diagnosis>,
    receiving: Option<ReceivingSide>,
    budget: Budget,
    memory: Option<MemoryBudget>,
}

impl Watch {
    pub fn new(budget: Budget) -> Self {
        let now = clock::now();
        Self {
            begun: now,
            looked: now,
            report_due: now + REPORT_INTERVAL,
            sending: None,
            receiving: None,
            budget,
            memory: None,
        }
    }

    /// Looks if it is time, and tells the sink how sending goes if it is time for that.
    pub fn look(&mut self, side: &Side, lanes: &Lanes) {
        let now = clock::now();
        if now >= self.looked + LOOK_INTERVAL {
            self.examine(now, side, lanes);
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
                source.set_memory(memory.update(now, there, round_trip));
                let (stages, readers) = source.seen();
                let (carrier, receiver) = (lanes.times(), lanes.peer());
                let lanes = lanes.spent();
                let seen = SendingSide { stages, readers, carrier, lanes, receiver };
                self.sending.get_or_insert_with(|| Diagnosis::new(now)).observe(seen);
            }
            Side::Sink(sink) => {
                let memory =
                    self.memory.get_or_insert_with(|| self.budget.growing_of_sink(self.begun));
                sink.set_memory(memory.update(now, here, round_trip));
                let (writers, writing) = sink.seen();
                let seen = ReceivingSide { at: now, lanes: lanes.spent(), writers, writing };
                if let Some(before) = self.receiving.replace(seen) {
                    sink.set_bounds(seen.bounds(&before));
                }
            }
        }
    }

    fn tell(&self, side: &Side, lanes: &Lanes) {
        if let Side::Source(source) = side {
            source.report(self.sending(lanes));
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
