//! Entries that one command has brought to its sink, over all its connections.

use alloc::vec::Vec;

/// Entries that earlier connections of a command have brought, or begun to bring, to the sink, and those that
/// were named as changes. Each takes eight bytes: hashes of paths, since they are only counted.
#[derive(Clone, Debug, Default)]
pub struct CarriedEntries {
    /// Somebody counts over connections.
    wanted: bool,
    begun: Seen,
    named: Seen,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// Of earlier connections, ascending.
    earlier: Vec<u64>,
    now: Vec<u64>,
}

impl Seen {
    fn note(&mut self, path: &[u8]) {
        let key = key(path);
        if self.now.last() != Some(&key) {
            self.now.push(key);
        }
    }

    fn has_earlier(&self, path: &[u8]) -> bool {
        !self.earlier.is_empty() && self.earlier.binary_search(&key(path)).is_ok()
    }

    fn end_connection(&mut self) {
        self.earlier.append(&mut self.now);
        self.earlier.sort_unstable();
        self.earlier.dedup();
    }
}

impl CarriedEntries {
    /// Of the first connection.
    pub fn of_first() -> Self {
        Self { wanted: true, ..Self::default() }
    }

    /// Counts the entries that the connection has brought as earlier ones from now on.
    #[must_use]
    pub fn after_connection(mut self) -> Self {
        self.begun.end_connection();
        self.named.end_connection();
        self
    }

    /// Something of the entry is brought.
    pub(crate) fn begin(&mut self, path: &[u8]) {
        if self.wanted {
            self.begun.note(path);
        }
    }

    /// True of an entry that an earlier connection has begun to bring: the sink has it from that.
    pub(crate) fn was_begun(&self, path: &[u8]) -> bool {
        self.begun.has_earlier(path)
    }

    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// The entry is named as changed. False if an earlier connection did that.
    pub(crate) fn name(&mut self, path: &[u8]) -> bool {
        let is_new = !self.named.has_earlier(path);
        if is_new && self.wanted {
            self.named.note(path);
        }
        is_new
    }
}

fn key(path: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(path).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_connection_has_begun_and_named_the_next_one_knows() {
        let mut carried = CarriedEntries::of_first();
        carried.begin(b"a");
        assert!(carried.name(b"a") && !carried.was_begun(b"a"), "this one is no earlier one");
        let mut carried = carried.after_connection();
        carried.begin(b"b");
        assert!(carried.was_begun(b"a") && !carried.was_begun(b"b"));
        assert!(!carried.name(b"a") && carried.name(b"b"));
        let mut carried = carried.after_connection();
        assert!(carried.was_begun(b"a") && carried.was_begun(b"b"));
        assert!(!carried.name(b"b") && carried.name(b"c"));
    }
}
