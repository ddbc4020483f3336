//! What this host can take, at one end of a connection: lanes leave word of what they do, a sentinel
//! looks at them each millisecond and feeds a [`longhaul_host::Monitor`], and lanes pass on what that
//! has to say (docs/host-awareness.md).
//!
//! Nobody waits here for anybody: a lane without a processor must not hold up who sees that it has none.
//! Words are atomics; where there are locks they are tried.
//!
//! The sentinel seals nothing itself, for two threads never seal under one key: it wakes all lanes, and
//! whichever has a processor speaks for all of them.

mod log;
mod machine;
mod said;
mod sentinel;
mod watch;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use longhaul_host::{Account, Part, RapidConfig, RunAndSleep};
use longhaul_rate_control::{ChosenProfile, ReceiverPart};
use longhaul_sys::host;
use longhaul_wire::HostAccount;

use crate::carrier::Mailbox;
use log::LaneLog;
use said::Said;
use sentinel::{Ears, Sentinel, StoredLook};

pub(crate) use watch::Watch;

/// The monitor of one end of a connection. Its thread ends when this is dropped.
pub(crate) struct HostMonitor {
    logs: Vec<Arc<LaneLog>>,
    said: Arc<Said>,
    account: Arc<Mutex<HostAccount>>,
    /// The peer is told; else it is for the report only.
    speaks: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostMonitor {
    /// Watches a lane for each of `mailboxes`, in their order.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        mailboxes: &[Arc<Mailbox>],
        part: Part,
        priority: Priority,
        stored: StoredLook,
    ) -> io::Result<Self> {
        let logs: Vec<_> = mailboxes.iter().map(|_| Arc::new(LaneLog::default())).collect();
        let (said, account): (Arc<Said>, Arc<Mutex<_>>) = Default::default();
        let (speaks, stop): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let ears = Ears {
            mailboxes: mailboxes.to_vec(),
            said: said.clone(),
            account: account.clone(),
            speaks: speaks.clone(),
            stored,
        };
        let (watched, stopped) = (logs.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("sentinel".into()).spawn(move || {
            let mut sentinel = Sentinel::new(watched, part, ears);
            sentinel.note(priority.take());
            sentinel.run(&stopped);
        })?;
        Ok(Self { logs, said, account, speaks, stop, thread: Some(thread) })
    }

    /// What the lane of that place among the mailboxes does for it.
    pub fn watch(&self, lane: usize) -> Watch {
        Watch::new(self.logs[lane].clone(), self.said.clone())
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

impl Drop for HostMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Who speaks for the receiving host under this profile, if anybody.
pub(crate) fn part_of(chosen: &ChosenProfile) -> Option<Part> {
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

/// How the threads that must not be late are scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Priority {
    /// In short turns, which everybody may have.
    #[default]
    Usual,
    /// Before all that are scheduled normally; that it is not permitted is told.
    First,
    /// The same, where it is permitted: nobody has asked for it.
    Punctual,
}

impl Priority {
    /// What the user wishes.
    pub fn wished(first: bool) -> Self {
        if first { Self::First } else { Self::Usual }
    }

    /// Takes it for the calling thread, and says what came of it, as [`HostAccount`] has it.
    pub fn take(self) -> u64 {
        match self {
            Self::First | Self::Punctual if host::run_first().is_ok() => {
                return HostAccount::RUNS_FIRST;
            }
            _ => {}
        }
        let refused = if self == Self::First { HostAccount::PRIORITY_REFUSED } else { 0 };
        match host::take_short_turns() {
            Ok(()) => refused | HostAccount::SHORT_TURNS,
            Err(_) => refused,
        }
    }
}

#[cfg(test)]
mod tests;
