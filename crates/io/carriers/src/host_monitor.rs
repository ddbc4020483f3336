//! What this host can take, at one end of a connection: lanes leave word of what they do, a sentinel
//! looks at them each millisecond and feeds a [`longhaul_host::Monitor`], and lanes pass on what that
//! has to say (docs/host-awareness.md).
//!
//! Nobody waits here for anybody: a lane without a processor must not hold up who sees that it has none.
//! Words are atomics; where there are locks they are tried.
//!
//! The sentinel runs on the thread of a lane of its own (docs/protocol.md 4.7), so that it can speak
//! while all others are away: two threads never seal under one key. It wakes the others as well, and
//! whichever has a processor says the same.

mod bystander;
mod log;
mod machine;
mod remedies;
mod said;
mod sentinel;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_host::{Account, Part, RapidConfig, RunAndSleep};
use longhaul_rate_control::{ChosenProfile, ReceiverPart};
use longhaul_wire::HostAccount;

use crate::carrier::Mailbox;
use log::LaneLog;
use said::Said;
use sentinel::{Ears, StoredLook};

pub use bystander::Bystander;
pub use machine::totals as host_totals;
pub use remedies::{Priority, poll_device, with_priority, writers_in_short_turns};
pub use sentinel::Sentinel;
pub use watch::Watch;

/// The monitor of one end of a connection.
pub struct HostMonitor {
    logs: Vec<Arc<LaneLog>>,
    said: Arc<Said>,
    account: Arc<Mutex<HostAccount>>,
    /// The peer is told; else it is for the report only.
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
        let (said, account): (Arc<Said>, Arc<Mutex<_>>) = Default::default();
        let speaks: Arc<AtomicBool> = Default::default();
        let ears = Ears {
            mailboxes: [own].into_iter().chain(mailboxes).cloned().collect(),
            said: said.clone(),
            account: account.clone(),
            speaks: speaks.clone(),
            stored,
        };
        let sentinel = Sentinel::new(logs.clone(), part, ears);
        (Self { logs, said, account, speaks }, sentinel)
    }

    /// What the lane of that place among the mailboxes does for it.
    pub fn watch(&self, lane: usize) -> Watch {
        Watch::new(Some(self.logs[lane].clone()), self.said.clone())
    }

    /// What the sentinel's own lane does.
    pub fn listen(&self) -> Watch {
        Watch::new(None, self.said.clone())
    }

    /// This end receives the data: from now on the peer is told what it takes.
    pub fn speak(&self) {
        self.speaks.store(true, Ordering::Relaxed);
    }

    /// What it has seen and said so far.
    pub fn account(&self) -> Arc<Mutex<HostAccount>> {
        self.account.clone()
    }
}

/// Who speaks for the receiving host under this profile, if anybody.
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
