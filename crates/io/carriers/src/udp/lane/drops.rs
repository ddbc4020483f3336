//! Packets that this host lost before they came to a socket.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_sys::clock;
use longhaul_sys::host::{BacklogSampler, DeviceDropsSampler};
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant};

use crate::damaged::Damaged;

/// Explains gaps in the packet numbers of lanes by what the kernel counted as dropped at the same
/// time. The counts are of the whole host, so a gap may be somebody else's drop beside a loss on
/// the path; but no more packets are explained than were dropped.
#[derive(Debug)]
pub struct HostDrops {
    backlog: Option<BacklogSampler>,
    devices: DeviceDropsSampler,
    account: Mutex<Account>,
    /// Packets explained, by place.
    explained: ByPlace<AtomicU64>,
    damaged: Mutex<Damaged>,
}

/// In the kernel's queues between devices and sockets, and at network cards.
#[derive(Clone, Copy, Debug, Default)]
struct ByPlace<T> {
    backlog: T,
    card: T,
}

#[derive(Debug, Default)]
struct Account {
    sampled: Instant,
    places: ByPlace<Dropped>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Dropped {
    /// Count at the last sample.
    count: u64,
    /// Packets that were dropped between the last two samples, and before, and explain nothing yet.
    fresh: u64,
    stale: u64,
}

impl HostDrops {
    /// Drops from now on.
    pub fn since_now() -> Self {
        let (backlog, devices) = (BacklogSampler::new().ok(), DeviceDropsSampler::new());
        let before = dropped(backlog.as_ref(), &devices);
        let of = |count| Dropped { count, ..Dropped::default() };
        let places = ByPlace { backlog: of(before.backlog), card: of(before.card) };
        let account = Mutex::new(Account { sampled: clock::now(), places });
        let explained = ByPlace::default();
        let damaged = Mutex::new(Damaged::since_now());
        Self { backlog, devices, account, explained, damaged }
    }

    /// See [`Damaged::among`].
    pub fn damaged(&self, now: Instant, dropped: u64) -> u64 {
        lock(&self.damaged).among(now, dropped)
    }

    /// Packets that it has explained so far, in the kernel's queues and at network cards.
    pub fn explained(&self) -> (u64, u64) {
        let ByPlace { backlog, card } = &self.explained;
        (backlog.load(Ordering::Relaxed), card.load(Ordering::Relaxed))
    }

    /// Of `missing` packets, newly found missing by a lane, those that this host has lost.
    pub fn explain(&self, now: Instant, missing: u64) -> u64 {
        let mut account = lock(&self.account);
        if now >= account.sampled + SAMPLE_INTERVAL {
            account.sample(now, dropped(self.backlog.as_ref(), &self.devices));
        }
        let ByPlace { backlog, card } = account.take(missing);
        self.explained.backlog.fetch_add(backlog, Ordering::Relaxed);
        self.explained.card.fetch_add(card, Ordering::Relaxed);
        backlog + card
    }
}

impl Account {
    fn sample(&mut self, now: Instant, counts: ByPlace<u64>) {
        self.places.backlog.sample(counts.backlog);
        self.places.card.sample(counts.card);
        self.sampled = now;
    }

    /// The queues come first: they are nearer to the socket.
    fn take(&mut self, missing: u64) -> ByPlace<u64> {
        let backlog = self.places.backlog.take(missing);
        ByPlace { backlog, card: self.places.card.take(missing - backlog) }
    }
}

impl Dropped {
    /// A gap shows when the next packet comes, which may be behind the next sample.
    fn sample(&mut self, count: u64) {
        self.stale = std::mem::replace(&mut self.fresh, count.saturating_sub(self.count));
        self.count = count;
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
fn dropped(backlog: Option<&BacklogSampler>, devices: &DeviceDropsSampler) -> ByPlace<u64> {
    let sample = backlog.and_then(|sampler| sampler.sample().ok());
    let backlog = sample.map_or(0, |backlog| backlog.dropped) * SUPER_PACKET;
    ByPlace { backlog, card: devices.sample() }
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
        let mut account = Dropped::default();
        assert_eq!(account.take(5), 0);
        account.sample(64);
        assert_eq!((account.take(5), account.take(100)), (5, 59));
        account.sample(128);
        account.sample(130);
        assert_eq!(account.take(65), 65, "one sample late");
        account.sample(130);
        account.sample(130);
        assert_eq!(account.take(10), 0, "too late");
    }

    #[test]
    fn drops_of_queues_and_of_cards_are_counted_apart() {
        let mut account = Account::default();
        account.sample(Instant::ZERO, ByPlace { backlog: 64, card: 10 });
        let ByPlace { backlog, card } = account.take(70);
        assert_eq!((backlog, card), (64, 6));
    }

    #[test]
    fn a_host_that_drops_nothing_explains_nothing() {
        let drops = HostDrops::since_now();
        let count = || {
            let ByPlace { backlog, card } = lock(&drops.account).places;
            backlog.count + card.count
        };
        let before = count();
        let explained = drops.explain(clock::now() + SAMPLE_INTERVAL, 10);
        // Others may be losing packets on this host meanwhile: never more than that.
        assert!(explained <= count() - before, "{explained}");
        let (backlog, card) = drops.explained();
        assert_eq!(backlog + card, explained);
    }
}
