//! Memory that the transfers of a server share.
//!
//! Whatever a client pretends its path to be, and however many lanes it asks for, all transfers
//! together take no more than the server may: each begins with what it needs and leases more as its
//! path shows what it is worth.

use std::sync::{Arc, Mutex};

use longhaul_objects::limits::{NAME_MEMORY, UNSETTLED_COST};
use longhaul_sys::sync::lock;
use longhaul_units::Bytes;

use crate::memory::budget::{Budget, MEMORY_FIRST, MEMORY_LEAST, NAMES_LEAST};

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
        self.take(held, wanted, self.spare())
    }

    /// The same for names, without which entries fail while contents only take longer: of what is left
    /// to newcomers they may take half.
    fn grow_names(&mut self, held: u64, wanted: u64) -> u64 {
        self.take(held, wanted, self.free().saturating_sub(self.total / NEWCOMERS / 2))
    }

    fn take(&mut self, held: u64, wanted: u64, most: u64) -> u64 {
        let more = wanted.saturating_sub(held).min(most);
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
    /// For contents, for names that are kept, and for buffers of sockets and names that are not settled.
    contents: Mutex<u64>,
    names: Mutex<u64>,
    fixed: u64,
}

impl SharedMemory {
    pub fn new(total: Bytes) -> Self {
        let total = total.max(MEMORY_LEAST + NAMES_LEAST);
        let ledger = Ledger { total: total.get(), leased: 0 };
        Self { ledger: Arc::new(Mutex::new(ledger)), total }
    }

    /// A connection's part, beside `sockets` for the buffers of its sockets; `None` if there is not
    /// even the least.
    pub fn lease(&self, sockets: Bytes) -> Option<Arc<Lease>> {
        let fixed = sockets.get() + UNSETTLED_COST;
        let beside = fixed + NAME_MEMORY;
        let [least, first] = [MEMORY_LEAST, MEMORY_FIRST].map(|part| part.get() + beside);
        let begun = lock(&self.ledger).begin(least, first)?;
        let (contents, names) = (Mutex::new(begun - beside), Mutex::new(NAME_MEMORY));
        Some(Arc::new(Lease { memory: self.clone(), contents, names, fixed }))
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

    /// The same for names that are kept.
    pub fn grow_names(&self, wanted: Bytes) -> Bytes {
        let mut names = lock(&self.names);
        *names = lock(&self.memory.ledger).grow_names(*names, wanted.get());
        Bytes::new(*names)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let held = *lock(&self.contents) + *lock(&self.names) + self.fixed;
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
        let one = memory.lease(Bytes::from_mib(8)).unwrap();
        assert_eq!(one.budget().of_source(), Bytes::from_mib(96));
        assert_eq!(one.grow(Bytes::from_mib(4096)), Bytes::from_mib(96));
        assert!(memory.lease(Bytes::from_mib(41)).is_none(), "not the least beside its sockets");
        let two = memory.lease(Bytes::from_mib(40)).unwrap();
        assert!(memory.lease(Bytes::new(0)).is_none());
        drop((one, two));
        assert_eq!(lock(&memory.ledger).leased, 0);
        let one = memory.lease(Bytes::new(0)).unwrap();
        let [little, all] = [16, 4096].map(|wanted| one.grow_names(Bytes::from_mib(wanted)));
        assert_eq!((little, all), (Bytes::from_mib(16), Bytes::from_mib(72)));
        assert_eq!(one.grow_names(Bytes::from_mib(4096)), all, "a quarter is left to others");
        drop(one);
        assert_eq!(lock(&memory.ledger).leased, 0);
        assert!(SharedMemory::new(Bytes::new(0)).lease(Bytes::new(0)).is_some());
    }
}
