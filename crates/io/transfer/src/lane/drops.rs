//! Packets that this host lost before they came to a socket.

use std::sync::Mutex;

use longhaul_sys::clock;
use longhaul_sys::host::{BacklogSampler, DeviceDropsSampler};
use longhaul_units::{Duration, Instant};

use crate::buffer::lock;

/// Explains gaps in the packet numbers of lanes by what the kernel counted as dropped at the same
/// time. The counts are of the whole host, so a gap may be somebody else's drop beside a loss on
/// the path; but no more packets are explained than were dropped.
#[derive(Debug)]
pub(crate) struct HostDrops {
    backlog: Option<BacklogSampler>,
    devices: DeviceDropsSampler,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    sampled: Instant,
    /// Counts at that time.
    dropped: u64,
    /// Packets that were dropped between the last two samples, and before, and explain nothing yet.
    fresh: u64,
    stale: u64,
}

impl HostDrops {
    /// Drops from now on.
    pub fn new() -> Self {
        let (backlog, devices) = (BacklogSampler::new().ok(), DeviceDropsSampler::new());
        let (sampled, dropped) = (clock::now(), dropped(backlog.as_ref(), &devices));
        let account = Mutex::new(Account { sampled, dropped, ..Account::default() });
        Self { backlog, devices, account }
    }

    /// How many of `missing` packets, newly found missing by a lane, this host has lost.
    pub fn explain(&self, now: Instant, missing: u64) -> u64 {
        let mut account = lock(&self.account);
        if now >= account.sampled + SAMPLE_INTERVAL {
            account.sample(now, dropped(self.backlog.as_ref(), &self.devices));
        }
        account.take(missing)
    }
}

impl Account {
    /// A gap shows when the next packet comes, which may be behind the next sample.
    fn sample(&mut self, now: Instant, dropped: u64) {
        self.stale = std::mem::replace(&mut self.fresh, dropped.saturating_sub(self.dropped));
        self.dropped = dropped;
        self.sampled = now;
    }

    fn take(&mut self, missing: u64) -> u64 {
        let old = missing.min(self.stale);
        self.stale -= old;
        let new = (missing - old).min(self.fresh);
        self.fresh -= new;
        old + new
    }
}

/// Packets that may have been lost in this host so far.
fn dropped(backlog: Option<&BacklogSampler>, devices: &DeviceDropsSampler) -> u64 {
    let sample = backlog.and_then(|sampler| sampler.sample().ok());
    sample.map_or(0, |backlog| backlog.dropped) * SUPER_PACKET + devices.sample()
}

/// Packets that the kernel counts as one where a device hands them over joined.
const SUPER_PACKET: u64 = 64;
/// Short beside the time between two unlucky coincidences, long beside what sampling costs.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_explained_than_was_dropped_lately() {
        let mut account = Account::default();
        assert_eq!(account.take(5), 0);
        account.sample(Instant::ZERO, 64);
        assert_eq!((account.take(5), account.take(100)), (5, 59));
        account.sample(Instant::ZERO, 128);
        account.sample(Instant::ZERO, 130);
        assert_eq!(account.take(65), 65, "one sample late");
        account.sample(Instant::ZERO, 130);
        account.sample(Instant::ZERO, 130);
        assert_eq!(account.take(10), 0, "too late");
    }

    #[test]
    fn a_host_that_drops_nothing_explains_nothing() {
        let drops = HostDrops::new();
        let before = lock(&drops.account).dropped;
        let explained = drops.explain(clock::now() + SAMPLE_INTERVAL, 10);
        // Others may be losing packets on this host meanwhile: never more than that.
        assert!(explained <= lock(&drops.account).dropped - before, "{explained}");
    }
}
