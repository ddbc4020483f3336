//! Memory for names that are kept for long: those of directories, and of files in directories that
//! are staged (docs/objects.md section "Names").

use crate::limits::{NAME_MARGIN, NAME_MEMORY};

/// Amounts given and taken. The driver gives more when it is asked for, or says that there
/// is no more.
#[derive(Debug)]
pub(crate) struct NameMemory {
    capacity: u64,
    taken: u64,
    /// There was no more when it was asked for last.
    is_last: bool,
}

impl NameMemory {
    pub(crate) const fn new() -> Self {
        Self { capacity: NAME_MEMORY, taken: 0, is_last: false }
    }

    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.taken + bytes <= self.capacity
    }

    /// True where half of it is free: else nothing is begun that can be left out.
    pub(crate) fn is_plentiful(&self) -> bool {
        self.taken <= self.capacity / 2
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_sub(bytes);
    }

    /// Amount that is needed, if it is more than there is.
    pub(crate) fn wanted(&self) -> Option<u64> {
        (!self.is_plentiful()).then_some(2 * self.capacity)
    }

    /// There is so much now.
    pub(crate) fn grow(&mut self, capacity: u64) {
        self.is_last = capacity <= self.capacity;
        self.capacity = self.capacity.max(capacity);
    }

    /// True where more is to be awaited before more names are taken in.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.is_last && !self.has_room(NAME_MARGIN)
    }
}
