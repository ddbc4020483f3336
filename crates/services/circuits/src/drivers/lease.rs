//! The right to switch, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The right of one leader to switch, until its lease of the store ends. Clones share it.
///
/// The store counts the lease from the request as it arrives, this from the request as it is sent,
/// which is sooner; and it ends an eighth early, so that what was begun is over when another node
/// leads.
#[derive(Clone, Debug)]
pub struct Lease {
    epoch: u64,
    origin: Instant,
    /// Nanoseconds after the origin.
    until: Arc<AtomicU64>,
}

impl Lease {
    /// The lease of the leader of `epoch`, which lasts until [`Lease::renew`] or [`Lease::end`]
    /// sets an end.
    pub fn new(epoch: u64) -> Self {
        Self { epoch, origin: Instant::now(), until: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Counted on with every change of leaders.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The store was asked at `asked` for so long, and has agreed.
    pub fn renew(&self, asked: Instant, length: Duration) {
        let passed = asked.saturating_duration_since(self.origin);
        let until = passed.saturating_add(length - length / 8).as_nanos();
        self.until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Ends it at once.
    pub fn end(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// True while its leader may switch.
    pub fn holds(&self) -> bool {
        self.holds_at(Instant::now())
    }

    fn holds_at(&self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.origin).as_nanos();
        passed < u128::from(self.until.load(Ordering::Acquire))
    }
}

/// Why nothing is switched for a leader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Another leader has followed it.
    #[error("nothing is switched for epoch {epoch}, since epoch {latest} has begun")]
    Followed {
        /// Its epoch.
        epoch: u64,
        /// That of the other.
        latest: u64,
    },
    /// The driver was used before [`Driver::reset`](super::Driver::reset).
    #[error("nothing is switched before anybody leads")]
    NoLeader,
    /// Its lease has ended.
    #[error("nothing is switched: the lease of epoch {epoch} is over")]
    Over {
        /// Its epoch.
        epoch: u64,
    },
}

/// A driver's knowledge of its leaders.
#[derive(Debug, Default)]
pub(super) struct Fence {
    latest: Option<Lease>,
}

impl Fence {
    /// A leader begins.
    ///
    /// # Errors
    /// A later one has begun, or its lease is over.
    pub(super) fn begin(&mut self, lease: &Lease) -> Result<(), LeaseError> {
        match &self.latest {
            Some(Lease { epoch: latest, .. }) if *latest > lease.epoch => {
                Err(LeaseError::Followed { epoch: lease.epoch, latest: *latest })
            }
            _ => {
                self.latest = Some(lease.clone());
                self.check().map(drop)
            }
        }
    }

    /// The lease under which something may be switched now.
    pub(super) fn check(&self) -> Result<&Lease, LeaseError> {
        let latest = self.latest.as_ref().ok_or(LeaseError::NoLeader)?;
        match latest.holds() {
            true => Ok(latest),
            false => Err(LeaseError::Over { epoch: latest.epoch }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_when_it_was_asked_for_and_ends_early() {
        let lease = Lease::new(7);
        let at = |seconds| lease.origin + Duration::from_secs(seconds);
        assert!(lease.holds_at(at(1 << 32)), "no other node takes over from a store of one");
        lease.renew(at(100), Duration::from_secs(8));
        assert!(lease.holds_at(at(106)) && !lease.holds_at(at(107)));
        lease.renew(at(104), Duration::from_secs(8));
        assert!(lease.clone().holds_at(at(110)) && !lease.holds_at(at(111)));
        lease.renew(at(105), Duration::MAX);
        assert!(lease.holds_at(at(1 << 32)));
        lease.end();
        assert!(!lease.holds_at(at(105)) && !lease.holds());
    }

    #[test]
    fn a_driver_obeys_no_leader_that_another_has_followed() {
        let mut fence = Fence::default();
        assert!(fence.check().is_err());
        let (old, new) = (Lease::new(3), Lease::new(4));
        fence.begin(&old).unwrap();
        fence.begin(&new).unwrap();
        let why = fence.begin(&old).unwrap_err();
        assert_eq!(why, LeaseError::Followed { epoch: 3, latest: 4 });
        assert!(why.to_string().contains("since epoch 4 has begun"));
        assert_eq!(fence.check().unwrap().epoch(), 4);
        new.end();
        assert!(fence.check().unwrap_err().to_string().contains("the lease of epoch 4 is over"));
    }
}
