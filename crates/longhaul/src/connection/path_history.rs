//! The memory of a path, as one transfer uses it and adds to it.

use std::sync::{Arc, Mutex};

use longhaul_carriers::carrier::{Carrier, Totals};
use longhaul_carriers::udp::paths::FIRST;
use longhaul_engine::Path;
use longhaul_history::{History, HistoryError, LEASE_TIME, Lease, PathKey, Record, unix_time};
use longhaul_rate_control::{Observation, PathMemory};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{MemoryUse, Rate};
use longhaul_wire::SourceReport;

/// What became of the memory of a path, at the side that sends.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HistoryReport {
    /// What was known of the path.
    pub known: Option<PathMemory>,
    /// What was made of it.
    pub used: MemoryUse,
    /// The rate for those to come, if this transfer has seen enough.
    pub learnt: Option<Rate>,
}

impl HistoryReport {
    /// Adds what the other end learns of it.
    pub(crate) fn tell_in(&self, report: SourceReport) -> SourceReport {
        let remembered = self.known.map_or(Rate::ZERO, |known| known.rate());
        SourceReport { memory: self.used, remembered, ..report }
    }
}

/// A path that this host sends over, and what is remembered of it.
pub(crate) struct Recollection {
    history: Arc<History>,
    key: PathKey,
    path: Arc<Mutex<Path>>,
    known: Option<PathMemory>,
    lease: Option<Lease>,
    /// When the lease was taken or renewed.
    renewed: u64,
    dropped: bool,
    /// What the user should know.
    notices: Vec<String>,
}

impl Recollection {
    /// Before the first data over `lanes`: tells their path what is remembered of it, unless another
    /// transfer builds on that. TCP has the kernel's own memory.
    pub fn begin(history: &Arc<History>, lanes: &dyn Carrier, key: PathKey) -> Option<Self> {
        let path = lanes.paths()?.path(FIRST);
        let mut this = Self {
            history: history.clone(),
            key,
            path,
            known: None,
            lease: None,
            renewed: unix_time(),
            dropped: false,
            notices: Vec::new(),
        };
        let known = this.tell();
        this.note(known);
        Some(this)
    }

    fn tell(&mut self) -> Result<(), HistoryError> {
        self.known = self.history.recall(&self.key, self.renewed)?;
        let Some(memory) = &self.known else { return Ok(()) };
        self.lease = self.history.lease(&self.key, self.renewed)?;
        if self.lease.is_some() {
            lock(&self.path).recall(clock::now(), memory);
        }
        Ok(())
    }

    /// Looks what became of it: holds on to the lease, and drops a memory that was wrong, before anyone
    /// else builds on it.
    pub fn look(&mut self) {
        let Some(lease) = &self.lease else { return };
        let now = unix_time();
        let mut done = Ok(());
        if !self.dropped && lock(&self.path).memory_use() == Some(MemoryUse::Retreated) {
            self.dropped = true;
            done = self.history.forget(&self.key);
        }
        if now.abs_diff(self.renewed) >= LEASE_TIME.as_secs() / 3 {
            self.renewed = now;
            done = done.and(self.history.renew(lease, now).map(drop));
        }
        self.note(done);
    }

    fn used(&self) -> MemoryUse {
        match (&self.known, &self.lease) {
            (None, _) => MemoryUse::Nothing,
            (_, None) => MemoryUse::Busy,
            _ => lock(&self.path).memory_use().unwrap_or(MemoryUse::Ignored),
        }
    }

    /// What has become of it by now.
    pub fn report(&self) -> HistoryReport {
        HistoryReport { known: self.known, used: self.used(), learnt: None }
    }

    /// The transfer is over, however it ended: what it saw of the path is added. Gives the
    /// report, and what the user should know.
    pub fn end(mut self, profile: &str, totals: &Totals) -> (HistoryReport, Vec<String>) {
        self.look();
        let used = self.used();
        let (seen, member) = {
            let path = lock(&self.path);
            (path.observed(), path.member())
        };
        let learnt = seen.and_then(|seen| {
            let (packets, lost) = (totals.sending.packets_sent, totals.sending.lost);
            let profile = member.unwrap_or(profile).to_owned();
            let record = Record { seen, packets, lost, profile };
            let recorded = self.history.record(&self.key, &record, unix_time());
            let Observation { rate, .. } = seen;
            if let Err(error) = &recorded {
                self.notices.push(format!("what was learnt of this path is lost: {error}"));
            }
            recorded.is_ok().then_some(rate)
        });
        if let Some(lease) = self.lease.take() {
            let given_back = self.history.give_back(&lease);
            self.note(given_back);
        }
        (HistoryReport { known: self.known, used, learnt }, self.notices)
    }

    /// A memory that cannot be had holds up nothing.
    fn note(&mut self, done: Result<(), HistoryError>) {
        if let Err(error) = done {
            let notice = error.to_string();
            if !self.notices.contains(&notice) {
                self.notices.push(notice);
            }
        }
    }
}
