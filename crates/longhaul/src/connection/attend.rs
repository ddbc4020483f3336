//! Attending to a connection while it works: the same at both ends.

use std::sync::Arc;

use longhaul_carriers::carrier::Carrier;
use longhaul_carriers::host_monitor::host_totals;
use longhaul_connection::End;
use longhaul_control::Control;
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Instant};

use crate::connection::path_history::Recollection;
use crate::connection::shared::{Milestones, Shared};
use crate::connection::steering::Steering;
use crate::memory::lease::Lease;

/// Looks at a connection now and then: carries what its lanes have seen to its shared half, and what
/// that says to its memory.
pub(crate) struct Attendant<'a> {
    shared: &'a Arc<Shared>,
    lanes: &'a dyn Carrier,
    control: &'a Control,
    /// At a server: what the memory comes from.
    lease: Option<&'a Lease>,
    /// What this end remembers of the path that it sends over.
    path_history: Option<Recollection>,
    known: Milestones,
    /// What the lanes had received, to tell that the peer lives.
    received: u64,
    has_concluded: bool,
    squeeze: Squeeze,
    steering: Option<Steering<'a>>,
}

/// Whether this host is short of memory: to promise more then would make it worse.
struct Squeeze {
    looked: Instant,
    freeing: Duration,
}

impl Squeeze {
    /// As it was since the last look.
    fn look(&mut self, now: Instant, freeing: Duration) -> bool {
        let passed = now - std::mem::replace(&mut self.looked, now);
        let freed = freeing.saturating_sub(std::mem::replace(&mut self.freeing, freeing));
        freed >= passed / SQUEEZED && !freed.is_zero()
    }
}

impl<'a> Attendant<'a> {
    pub fn new(
        shared: &'a Arc<Shared>,
        lanes: &'a dyn Carrier,
        control: &'a Control,
        lease: Option<&'a Lease>,
    ) -> Self {
        shared.follow_host(lanes.host());
        let known = Milestones::default();
        let path_history = None;
        let looked = clock::now();
        let squeeze = Squeeze { looked, freeing: host_totals(looked).freeing };
        Self {
            shared,
            lanes,
            control,
            lease,
            path_history,
            known,
            received: 0,
            has_concluded: false,
            squeeze,
            steering: None,
        }
    }

    /// Looks after what this end remembers of its path, too.
    pub fn remember(&mut self, path_history: Option<Recollection>) {
        self.path_history = path_history;
    }

    /// Has the rate of this end's data changed, too.
    pub fn steer(&mut self, steering: Steering<'a>) {
        self.steering = Some(steering);
    }

    /// Gives that back, at the end.
    pub fn path_history(self) -> Option<Recollection> {
        self.path_history
    }

    /// Waits for something to happen, or a moment, and looks. Why the connection may be closed, if it
    /// may.
    pub fn round(&mut self) -> Option<End> {
        self.shared.await_news(&mut self.known, INTERVAL);
        self.lanes.look();
        self.steering.iter_mut().for_each(|it| it.look(self.shared, self.lanes));
        self.path_history.iter_mut().for_each(Recollection::look);
        self.received = self.lanes.vouch(self.control, self.received);
        let now = clock::now();
        let (look, report) = {
            let mut half = self.shared.lock();
            (half.is_look_due(now), half.is_report_due(now))
        };
        if self.known.done {
            self.conclude();
        } else {
            if look {
                self.look(now);
            }
            if report {
                self.report();
            }
        }
        let end = self.shared.lock().end();
        end.or_else(|| self.lanes.swallowed(self.control).map(End::Closed))
    }

    /// How far it was when the last round began to look.
    pub fn known(&self) -> Milestones {
        self.known
    }

    /// True where anything has come from the peer by the carrier.
    pub fn has_received(&self) -> bool {
        self.received > 0
    }

    /// Looks for the last time: the last report is sent, and the messages end behind it.
    pub fn conclude(&mut self) {
        if !std::mem::replace(&mut self.has_concluded, true) {
            self.look(clock::now());
            self.report();
            self.shared.change(|half| half.finish());
        }
    }

    /// A source tells the sink how sending goes.
    fn report(&self) {
        let counts = self.lanes.totals().sending;
        let counts =
            self.path_history.as_ref().map_or(counts, |known| known.report().tell_in(counts));
        self.shared.report(counts);
    }

    fn look(&mut self, now: Instant) {
        let is_short = self.squeeze.look(now, host_totals(now).freeing);
        let (seen, work) = (self.lanes.seen(), self.shared.work_done());
        let mailboxes = &self.shared.mailboxes;
        let look = self
            .shared
            .update(&mut self.shared.lock(), |half| half.look(now, &seen, work, mailboxes));
        if let (Some(wanted), Some(spare), false) = (look, self.shared.spare(), is_short) {
            self.shared.grow_memory(self.leased(wanted, spare));
        }
        self.shared.grow_name_memory(self.lease);
    }

    /// What there is of `wanted`, beside what is spared.
    fn leased(&self, wanted: Bytes, spare: Bytes) -> Bytes {
        self.lease.map_or(wanted, |lease| lease.grow(wanted + spare) - spare)
    }
}

/// One part in so many of the time in which somebody waits for memory is too much. Programs that write files wait for a
/// hundredth of it at most while there is memory.
const SQUEEZED: u32 = 10;
/// How often is looked when nothing happens.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
