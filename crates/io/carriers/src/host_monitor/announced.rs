//! The sentinel's last announcement, for all lanes.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use longhaul_engine::Suspension;
use longhaul_rate_control::HostLimit;
use longhaul_units::{Bottleneck, Instant, Rate};

/// A sequence lock around the last announcement, which the sentinel alone writes. Readers never wait: one
/// that comes while it changes looks again later.
#[derive(Debug, Default)]
pub struct AnnouncementCell {
    /// Odd while the values change.
    version: AtomicU64,
    /// Rate, cause and end of the limit, order and end of the suspend, and the capacity.
    values: [AtomicU64; 6],
}

/// The limits that lanes announce to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// This end takes no more.
    pub limit: Option<HostLimit>,
    /// The last order to be silent, or to go on.
    pub suspension: Option<Suspension>,
    /// The rate that this end will process, where a controller goes by that.
    pub capacity: Option<Rate>,
}

impl AnnouncementCell {
    /// A count of changes, two for each: it shows whether a look is worth while.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The announcement, and its version; nothing while it changes.
    pub fn read(&self) -> Option<(u64, Announced)> {
        let before = self.version.load(Ordering::Acquire);
        let values = self.values.each_ref().map(|value| value.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if !before.is_multiple_of(2) || self.version.load(Ordering::Relaxed) != before {
            return None;
        }
        let [rate, cause, until, order, silent, capacity] = values;
        let limit = (until > 0).then(|| HostLimit {
            rate: Rate::from_bps(rate),
            cause: Bottleneck::from_code(cause as u8),
            until: Instant::from_nanos(until),
        });
        let suspension =
            (order > 0).then(|| Suspension { order, until: Instant::from_nanos(silent) });
        let capacity = (capacity > 0).then(|| Rate::from_bps(capacity));
        Some((before, Announced { limit, suspension, capacity }))
    }

    /// Writes a new announcement. Called by the sentinel.
    pub(super) fn write(&self, last: &Announced) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let limit = last.limit.map_or([0; 3], |limit| {
            [limit.rate.as_bps(), limit.cause as u64, limit.until.as_nanos()]
        });
        let order = last.suspension.map_or([0; 2], |last| [last.order, last.until.as_nanos()]);
        let capacity = last.capacity.unwrap_or(Rate::ZERO).as_bps();
        let values = limit.into_iter().chain(order).chain([capacity]);
        for (to, value) in self.values.iter().zip(values) {
            to.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(n: u64) -> Announced {
        let until = Instant::from_nanos(n);
        let limit = HostLimit { rate: Rate::from_bps(n), cause: Bottleneck::ReceiverDisk, until };
        let suspension = Some(Suspension { order: n, until });
        Announced { limit: Some(limit), suspension, capacity: Some(Rate::from_bps(n)) }
    }

    #[test]
    fn an_announcement_is_read_as_it_was_written() {
        let cell = AnnouncementCell::default();
        assert_eq!(cell.read(), Some((0, Announced::default())));
        let second = Announced { limit: None, ..announcement(9) };
        for (version, last) in [(2, announcement(7)), (4, second)] {
            cell.write(&last);
            assert_eq!(cell.read(), Some((version, last)));
            assert_eq!(cell.version(), version);
        }
    }

    #[test]
    fn an_announcement_is_never_half_of_one_and_half_of_another() {
        let cell = AnnouncementCell::default();
        cell.write(&announcement(1));
        std::thread::scope(|scope| {
            scope.spawn(|| (2..20_000).for_each(|n| cell.write(&announcement(n))));
            let mut last = 0;
            while last < 19_999 {
                if let Some((_, read)) = cell.read() {
                    let order = read.suspension.unwrap().order;
                    assert_eq!(read, announcement(order));
                    assert!(order >= last);
                    last = order;
                }
            }
        });
    }
}
