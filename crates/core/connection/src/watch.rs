//! Looking at a transfer now and then: the memory that it may take, what holds it up, and whether it
//! goes on at all.

use longhaul_rate_control::MemoryBudget;
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{Bottleneck, ReceiverBounds, SourceReport};

use crate::diagnosis::{Diagnosis, ReceivingSide, SendingSide, Stages, Times};
use crate::thread_time::Spent;
use crate::watchdog::{Counts, Stalled, Watchdog, lasts_at_receiver, lasts_at_sender};

/// Counts of a carrier by some time, since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct CarrierSeen {
    /// Bytes that arrived at the peer.
    pub delivered: u64,
    /// Bytes that arrived here.
    pub received: u64,
    /// Object bytes that arrived at the peer or here, each counted once: neither repetitions
    /// nor messages are among them.
    pub moved: u64,
    /// The least round trip of late, zero if unknown.
    pub round_trip: Duration,
    /// Time by what held its pace.
    pub times: Times,
    /// Time of its threads.
    pub spent: Spent,
    /// The bottlenecks in receiving that the peer reports.
    pub peer: ReceiverBounds,
}

/// Looks at a transfer at one of its ends.
///
/// Its driver looks when [`is_due`](Self::is_due) is true: at what it plays, with
/// [`look_at_source`](Self::look_at_source) or [`look_at_sink`](Self::look_at_sink), and then for
/// life. A source reports to its sink when [`is_report_due`](Self::is_report_due) is true.
#[derive(Debug)]
pub struct Watch {
    looked: Instant,
    reported: Instant,
    memory: MemoryBudget,
    sending: Diagnosis,
    receiving: Option<ReceivingSide>,
    watchdog: Watchdog,
    /// Once the transfer has stood still for too long.
    stalled: Option<Stalled>,
}

impl Watch {
    /// Of a transfer that begins now, may take so much memory, and may stand still for `patience`;
    /// zero is for ever.
    pub fn new(now: Instant, memory: MemoryBudget, patience: Duration) -> Self {
        Self {
            looked: now,
            reported: now,
            memory,
            sending: Diagnosis::new(now),
            receiving: None,
            watchdog: Watchdog::new(patience),
            stalled: None,
        }
    }

    /// When it is to be looked at next.
    pub fn next_timeout(&self) -> Instant {
        (self.looked + LOOK_INTERVAL).min(self.reported + REPORT_INTERVAL)
    }

    /// True if it is time to look.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.looked + LOOK_INTERVAL
    }

    /// True if it is time for a source to report its sending; then the next time is later.
    pub fn is_report_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.reported + REPORT_INTERVAL;
        if is_due {
            self.reported = now;
        }
        is_due
    }

    /// Looks at a source, that has been at these stages, and whose threads have spent so much.
    /// Returns the memory that it may take.
    pub fn look_at_source(
        &mut self,
        now: Instant,
        carrier: &CarrierSeen,
        stages: Stages,
        readers: Spent,
    ) -> Bytes {
        self.looked = now;
        self.sending.observe(SendingSide {
            stages,
            readers,
            carrier: carrier.times,
            lanes: carrier.spent,
            receiver: carrier.peer,
        });
        self.memory.update(now, carrier.delivered, carrier.round_trip)
    }

    /// Looks at a sink, whose threads have spent so much, and any of them had something to do for
    /// `writing`. Returns the memory that it may take, and what it is to tell the source, once that
    /// is known.
    pub fn look_at_sink(
        &mut self,
        now: Instant,
        carrier: &CarrierSeen,
        writers: Spent,
        writing: Duration,
    ) -> (Bytes, Option<ReceiverBounds>) {
        self.looked = now;
        let seen = ReceivingSide { at: now, lanes: carrier.spent, writers, writing };
        let bounds = self.receiving.replace(seen).map(|before| seen.bounds(&before));
        (self.memory.update(now, carrier.received, carrier.round_trip), bounds)
    }

    /// Looks whether a source goes on that has come so far; `idles` says whether nothing is to be
    /// expected of it, given what holds it up.
    pub fn look_for_life_of_source(
        &mut self,
        now: Instant,
        carrier: &CarrierSeen,
        counts: Counts,
        bound: Bottleneck,
        idles: bool,
    ) {
        let waits = idles || lasts_at_receiver(carrier.peer.storage);
        let counts = Counts { carried: carrier.moved, ..counts };
        self.stalled = self.watchdog.look(now, counts, waits, bound);
    }

    /// Looks whether a sink goes on that has come so far, that holds itself up so, and whose source
    /// says that it is held up by `there`; `idles` says whether nothing is to be expected of it.
    pub fn look_for_life_of_sink(
        &mut self,
        now: Instant,
        carrier: &CarrierSeen,
        counts: Counts,
        (here, there): (Bottleneck, Bottleneck),
        idles: bool,
    ) {
        let bound = if here == Bottleneck::Unknown { there } else { here };
        let waits = idles || lasts_at_sender(there);
        let counts = Counts { carried: carrier.moved, ..counts };
        self.stalled = self.watchdog.look(now, counts, waits, bound);
    }

    /// Why the transfer is to be ended, if it has stood still for too long.
    pub fn stalled(&self) -> Option<&Stalled> {
        self.stalled.as_ref()
    }

    /// Time in which nothing has moved, whatever is waited for.
    pub fn still(&self) -> Duration {
        self.watchdog.still()
    }

    /// The bottleneck of sending now.
    pub fn bound(&self, awaits_circuit: bool) -> Bottleneck {
        // The data waits for a circuit, whatever else there may be to say.
        if awaits_circuit { Bottleneck::Reservation } else { self.sending.now() }
    }

    /// Report of the sending, by the carrier's `counts`.
    pub fn report(&self, counts: SourceReport) -> SourceReport {
        let (bound, bottleneck) = (self.sending.now(), self.sending.longest());
        SourceReport { bound, bottleneck, ..counts }
    }
}

/// Long enough for what threads did in it to mean something.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Often enough for a progress display, and next to nothing beside the data.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_rate_control::Repair;

    const MEMORY: Bytes = Bytes::from_mib(64);
    const MOST: Bytes = Bytes::from_mib(256);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn watch(patience: Duration) -> Watch {
        Watch::new(at(0), MemoryBudget::new(at(0), MEMORY, MOST, Repair::Continuous), patience)
    }

    #[test]
    fn looks_and_reports_have_their_times() {
        let mut watch = watch(Duration::ZERO);
        assert!(!watch.is_due(at(99)) && watch.is_due(at(100)));
        for ms in (100..=500).step_by(100) {
            assert_eq!(watch.next_timeout(), at(ms));
            assert_eq!(watch.is_report_due(at(ms)), ms == 500);
            let (memory, bounds) = watch.look_at_sink(
                at(ms),
                &CarrierSeen::default(),
                Spent::default(),
                Duration::ZERO,
            );
            assert_eq!(memory, MEMORY);
            assert_eq!(bounds.is_some(), ms > 100, "one look shows no span");
        }
        assert_eq!(watch.next_timeout(), at(600));
    }

    #[test]
    fn memory_follows_what_passes_in_the_ends_own_direction() {
        let mut source = watch(Duration::ZERO);
        let seen = |ms: u64| CarrierSeen {
            delivered: ms << 20,
            round_trip: Duration::from_millis(100),
            ..CarrierSeen::default()
        };
        let stages = Stages::new(at(0));
        let mut memory = MEMORY;
        for ms in (100..2000).step_by(100) {
            memory = source.look_at_source(at(ms), &seen(ms), stages, Spent::default());
        }
        assert_eq!(memory, MOST);
        let (memory, _) = watch(Duration::ZERO).look_at_sink(
            at(900),
            &seen(900),
            Spent::default(),
            Duration::ZERO,
        );
        assert_eq!(memory, MEMORY, "nothing has come here");
    }

    #[test]
    fn a_source_that_waits_for_its_circuit_says_so_and_is_left_alone() {
        let mut watch = watch(Duration::from_secs(1));
        let bound = watch.bound(true);
        assert_eq!(bound, Bottleneck::Reservation);
        let seen = CarrierSeen::default();
        for ms in (0..10_000).step_by(100) {
            watch.look_for_life_of_source(at(ms), &seen, Counts::default(), bound, true);
        }
        assert_eq!(watch.stalled(), None);
        for ms in (10_000..12_000).step_by(100) {
            watch.look_for_life_of_source(at(ms), &seen, Counts::default(), bound, false);
        }
        assert!(watch.stalled().is_some());
    }

    #[test]
    fn a_sink_believes_its_source_about_the_sources_disk_only() {
        for (there, stalls) in [(Bottleneck::SenderDisk, false), (Bottleneck::ReceiverDisk, true)] {
            let mut watch = watch(Duration::from_secs(1));
            for ms in (0..5_000).step_by(100) {
                let bounds = (Bottleneck::Unknown, there);
                let seen = CarrierSeen::default();
                watch.look_for_life_of_sink(at(ms), &seen, Counts::default(), bounds, false);
            }
            assert_eq!(watch.stalled().is_some(), stalls, "{there}");
        }
    }
}
