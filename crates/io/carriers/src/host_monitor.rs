//! Measures what this host can take, at one end of a connection: lanes log what they do, a sentinel
//! looks at the logs each millisecond and feeds a [`longhaul_host::Monitor`], and lanes send what the
//! monitor announces (docs/host-awareness.md).
//!
//! No thread waits here for another: a lane without a processor must not hold up the thread that sees that
//! it has none. Values are atomics; where there are locks they are tried.
//!
//! The sentinel runs on the thread of a lane of its own (docs/protocol.md 4.7), so that it can send
//! while all others are away: two threads never seal under one key. It wakes the others as well, and
//! each that has a processor sends the same announcement.

mod announced;
mod log;
mod machine;
mod null_upper_layer;
mod remedies;
mod sentinel;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_host::{Account, Part, RapidConfig, RunAndSleep};
use longhaul_rate_control::{ChosenProfile, ReceiverPart};
use longhaul_wire::HostAccount;

use crate::upper_layer::Mailbox;
use announced::AnnouncementCell;
use log::LaneLog;
use sentinel::{AnnouncementSinks, StoredLook};

pub use machine::totals as host_totals;
pub use null_upper_layer::NullUpperLayer;
pub use remedies::{Priority, poll_device, with_priority, writers_in_short_turns};
pub use sentinel::Sentinel;
pub use watch::Watch;

/// The monitor of one end of a connection.
pub struct HostMonitor {
    logs: Vec<Arc<LaneLog>>,
    announced: Arc<AnnouncementCell>,
    account: Arc<Mutex<HostAccount>>,
    /// The announcements go to the peer; else they are for the report only.
    speaks: Arc<AtomicBool>,
}

impl HostMonitor {
    /// Watches a lane for each of `mailboxes`, in their order. The sentinel is for the lane that gets
    /// its orders by `own`.
    pub fn new(
        mailboxes: &[Arc<Mailbox>],
        own: &Arc<Mailbox>,
        part: Part,
        stored: StoredLook,
    ) -> (Self, Sentinel) {
        let logs: Vec<_> = mailboxes.iter().map(|_| Arc::new(LaneLog::default())).collect();
        let (announced, account): (Arc<AnnouncementCell>, Arc<Mutex<_>>) = Default::default();
        let speaks: Arc<AtomicBool> = Default::default();
        let sinks = AnnouncementSinks {
            mailboxes: [own].into_iter().chain(mailboxes).cloned().collect(),
            announced: announced.clone(),
            account: account.clone(),
            speaks: speaks.clone(),
            stored,
        };
        let sentinel = Sentinel::new(logs.clone(), part, sinks);
        (Self { logs, announced, account, speaks }, sentinel)
    }

    /// The watch for the lane of that place among the mailboxes.
    pub fn watch(&self, lane: usize) -> Watch {
        Watch::new(Some(self.logs[lane].clone()), self.announced.clone())
    }

    /// The watch for the sentinel's own lane.
    pub fn listen(&self) -> Watch {
        Watch::new(None, self.announced.clone())
    }

    /// This end receives the data: from now on lanes announce to the peer what it takes.
    pub fn speak(&self) {
        self.speaks.store(true, Ordering::Relaxed);
    }

    /// The account of what it has seen and announced so far.
    pub fn account(&self) -> Arc<Mutex<HostAccount>> {
        self.account.clone()
    }
}

/// The part that speaks for the receiving host under this profile, if any.
pub fn part_of(chosen: &ChosenProfile) -> Option<Part> {
    match chosen.profile.receiver_part {
        ReceiverPart::None => None,
        ReceiverPart::Monitor => Some(Part::Limits),
        ReceiverPart::Rapid => {
            let mut rapid = RapidConfig {
                polling: chosen.parameters.time("polling"),
                ..RapidConfig::default()
            };
            if chosen.parameters.get("account") == 1 {
                rapid.account = Account::Ule(RunAndSleep::default());
            }
            Some(Part::Rapid(rapid))
        }
        ReceiverPart::Paptc => Some(Part::Paptc),
    }
}

#[cfg(test)]
mod tests;
