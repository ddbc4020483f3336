//! Credit of the source (docs/objects.md section "Credit").

use alloc::collections::BTreeMap;

use longhaul_units::ObjectId;

use crate::limits::UNVERIFIED_MAX;

/// Memory for groups, and what was received for the first time.
#[derive(Debug)]
pub(super) struct Credit {
    capacity: u64,
    /// Groups that are being written: how often at the same time, and their first-sent bytes.
    held: BTreeMap<(ObjectId, u32), (u32, u32)>,
    /// First-sent bytes that are no longer in memory.
    consumed: u64,
    /// Promise at the time when too many answers waited, while they do.
    frozen: Option<u64>,
}

impl Credit {
    pub(super) fn new(capacity: u64) -> Self {
        let capacity = capacity.max(CAPACITY_MIN);
        Self { capacity, held: BTreeMap::new(), consumed: 0, frozen: None }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn grow(&mut self, capacity: u64) {
        self.capacity = self.capacity.max(capacity);
    }

    /// Promise while so many bytes are written of which no hash has come.
    pub(super) fn promised(&self, unverified: u64) -> u64 {
        let stopped = unverified.saturating_sub(UNVERIFIED_MAX);
        self.frozen.unwrap_or_else(|| self.consumed - stopped + self.capacity)
    }

    /// Stands still from now on.
    pub(super) fn freeze(&mut self, unverified: u64) {
        self.frozen = Some(self.promised(unverified));
    }

    /// Grows again.
    pub(super) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// A group is about to be written, with `new` bytes that came for the first time.
    pub(super) fn hold(&mut self, group: (ObjectId, u32), new: u32) {
        let (writes, bytes) = self.held.entry(group).or_default();
        *writes += 1;
        *bytes += new;
    }

    /// A write has ended. Returns the new bytes of its group, the first time.
    pub(super) fn release(&mut self, group: (ObjectId, u32)) -> u32 {
        let Some((writes, bytes)) = self.held.get_mut(&group) else { return 0 };
        *writes -= 1;
        let new = core::mem::take(bytes);
        if *writes == 0 {
            self.held.remove(&group);
        }
        self.consumed += u64::from(new);
        new
    }

    /// A group with so many new bytes was found useless.
    pub(super) fn drop_new(&mut self, new: u32) {
        self.consumed += u64::from(new);
    }

    /// True if no group is being written.
    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty()
    }
}

/// Less could not keep one group in each stage.
const CAPACITY_MIN: u64 = 4 << 20;
