//! Memory that the transfers of a server share.
//!
//! Whatever a client pretends its path to be, and however many lanes it asks for, all transfers
//! together take no more than the server may: each begins with what it needs and leases more as its
//! path shows what it is worth.

use std::sync::{Arc, Mutex};

use longhaul_units::Bytes;

use crate::budget::{Budget, MEMORY_FIRST, MEMORY_LEAST};
use crate::buffer::lock;

/// Who has how much of it. Without clock and locks.
#[derive(Debug)]
struct Ledger {
    total: u64,
    leased: u64,
}

impl Ledger {
    fn free(&self) -> u64 {
        self.total - self.leased
    }

    /// What may be leased beyond what a transfer needs at least: a share is left to newcomers.
    fn spare(&self) -> u64 {
        self.free().saturating_sub(self.total / NEWCOMERS)
    }

    /// For a transfer that needs `least` and would begin with `first`.
    fn begin(&mut self, least: u64, first: u64) -> Option<u64> {
        if least > self.free() {
            return None;
        }
        let begun = self.spare().clamp(least, first.max(least));
        self.leased += begun;
        Some(begun)
    }

    /// Of a transfer that has `held` and would have `wanted`: what it has from now on.
    fn grow(&mut self, held: u64, wanted: u64) -> u64 {
        let more = wanted.saturating_sub(held).min(self.spare());
        self.leased += more;
        held + more
    }

    fn end(&mut self, held: u64) {
        self.leased -= held;
    }
}

/// The memory of a server.
#[derive(Clone, Debug)]
pub(crate) struct SharedMemory {
    ledger: Arc<Mutex<Ledger>>,
    total: Bytes,
}

/// What one connection has of it; given back when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    memory: SharedMemory,
    /// For contents, and for buffers of sockets.
    contents: Mutex<u64>,
    sockets: u64,
}

impl SharedMemory {
    pub fn new(total: Bytes) -> Self {
        let total = total.max(MEMORY_LEAST);
        let ledger = Ledger { total: total.get(), leased: 0 };
        Self { ledger: Arc::new(Mutex::new(ledger)), total }
    }

    /// A connection's part, beside `sockets` for the buffers of its sockets; `None` if there is not
    /// even the least.
    pub fn lease(&self, sockets: Bytes) -> Option<Arc<Lease>> {
        let sockets = sockets.get();
        let [least, first] = [MEMORY_LEAST, MEMORY_FIRST].map(|part| part.get() + sockets);
        let begun = lock(&self.ledger).begin(least, first)?;
        let contents = Mutex::new(begun - sockets);
        Some(Arc::new(Lease { memory: self.clone(), contents, sockets }))
    }
}

impl Lease {
    /// What the transfer may begin with, and grow to.
    pub fn budget(&self) -> Budget {
        Budget::leased(Bytes::new(*lock(&self.contents)), self.memory.total)
    }

    /// Leases more for contents, up to `wanted` in all; gives what there is then.
    pub fn grow(&self, wanted: Bytes) -> Bytes {
        let mut contents = lock(&self.contents);
        *contents = lock(&self.memory.ledger).grow(*contents, wanted.get());
        Bytes::new(*contents)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let held = *lock(&self.contents) + self.sockets;
        lock(&self.memory.ledger).end(held);
    }
}

/// One part in so many of the memory is kept for what clients still to come need at least.
const NEWCOMERS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_leases_together_never_exceed_the_memory() {
        let mut ledger = Ledger { total: 1000, leased: 0 };
        let first = ledger.begin(60, 200).unwrap();
        assert_eq!(first, 200);
        let grown = ledger.grow(first, u64::MAX);
        assert_eq!(grown, 500, "half is left to others");
        assert_eq!(ledger.grow(grown, u64::MAX), 500);
        let others: Vec<_> = std::iter::from_fn(|| ledger.begin(60, 200)).collect();
        assert_eq!(others, [60; 8]);
        assert_eq!(ledger.leased, 980);
        ledger.end(grown);
        assert_eq!(ledger.begin(60, 200), Some(60));
        assert_eq!(ledger.grow(60, 10), 60, "nothing that was leased is taken back");
    }

    #[test]
    fn what_a_connection_leased_is_free_again_when_it_ends() {
        let memory = SharedMemory::new(Bytes::from_mib(256));
        let one = memory.lease(Bytes::from_mib(32)).unwrap();
        assert_eq!(one.budget().of_source(), Bytes::from_mib(96));
        assert_eq!(one.grow(Bytes::from_mib(4096)), Bytes::from_mib(96));
        assert!(memory.lease(Bytes::from_mib(65)).is_none(), "not the least beside its sockets");
        let two = memory.lease(Bytes::from_mib(64)).unwrap();
        assert!(memory.lease(Bytes::new(0)).is_none());
        drop((one, two));
        assert_eq!(lock(&memory.ledger).leased, 0);
        assert!(SharedMemory::new(Bytes::new(0)).lease(Bytes::new(0)).is_some());
    }
}
