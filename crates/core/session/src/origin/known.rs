use alloc::collections::BTreeMap;

use super::Origin;

/// Origins from which something was proven, and when it was last: a bounded number of them, of which
/// the one that was seen first is forgotten.
#[derive(Debug)]
pub struct KnownOrigins<W> {
    most: usize,
    last: BTreeMap<Origin, W>,
}

impl<W: Copy + Ord> KnownOrigins<W> {
    /// None yet; `most` are remembered.
    pub const fn new(most: usize) -> Self {
        Self { most, last: BTreeMap::new() }
    }

    /// Notes that something was proven from `origin`.
    pub fn note(&mut self, origin: Origin, when: W) {
        self.last.insert(origin, when);
        if self.last.len() > self.most
            && let Some((&oldest, _)) = self.last.iter().min_by_key(|(_, when)| **when)
        {
            self.last.remove(&oldest);
        }
    }

    /// When something was last proven from `origin`; `None` if it never was, or that is forgotten.
    pub fn last(&self, origin: Origin) -> Option<W> {
        self.last.get(&origin).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    #[test]
    fn origins_are_remembered_in_bounded_memory() {
        let origin = |last| Origin::of(IpAddr::from(Ipv4Addr::new(192, 0, 2, last)));
        let mut known = KnownOrigins::new(3);
        for (last, when) in [(1, 10), (2, 11), (1, 12), (3, 13), (4, 14)] {
            known.note(origin(last), when);
        }
        assert_eq!(
            [1, 2, 3, 4].map(|last| known.last(origin(last))),
            [Some(12), None, Some(13), Some(14)]
        );
        assert_eq!(known.last.len(), 3);
    }
}
