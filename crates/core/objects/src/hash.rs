//! BLAKE3 over groups (docs/protocol.md section 7.3).

use alloc::vec::Vec;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::limits::GROUP_SIZE;

/// BLAKE3 chaining value of a group, or the root hash.
pub type ChainingValue = [u8; 32];

/// The chaining value of group number `group` with contents `data`, which is the object's root
/// hash when the group `is_only_group`.
///
/// `data` holds 1 to [`GROUP_SIZE`] bytes.
pub fn group_chaining_value(data: &[u8], group: u32, is_only_group: bool) -> ChainingValue {
    if is_only_group {
        return *blake3::hash(data).as_bytes();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(u64::from(group) * GROUP_SIZE);
    hasher.update(data);
    hasher.finalize_non_root()
}

/// Value in place of the chaining value of a group where both ends agreed not to hash.
pub const UNHASHED: ChainingValue = [0; 32];

/// Number of groups of an object of `size` bytes, at most [`crate::limits::OBJECT_MAX`].
pub const fn group_count(size: u64) -> u32 {
    size.div_ceil(GROUP_SIZE) as u32
}

/// Bytes of group number `group` of an object of `size` bytes; 0 when it has no such group.
pub const fn group_len(size: u64, group: u32) -> u32 {
    let start = group as u64 * GROUP_SIZE;
    let rest = size.saturating_sub(start);
    (if rest < GROUP_SIZE { rest } else { GROUP_SIZE }) as u32
}

/// Combines the chaining values of an object's groups, in order, to its BLAKE3 root hash.
///
/// Memory is one value for each level of the tree. Two subtrees merge only when another group
/// follows, because the last merge is the root and differs.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootHasher {
    stack: Vec<ChainingValue>,
    pushed: u32,
}

impl RootHasher {
    /// Number of groups taken in; the next one has this number.
    pub(crate) fn pushed(&self) -> u32 {
        self.pushed
    }

    pub(crate) fn push(&mut self, value: ChainingValue) {
        // One complete subtree remains for each bit of the count so far.
        while self.stack.len() > self.pushed.count_ones() as usize {
            self.merge();
        }
        self.stack.push(value);
        self.pushed += 1;
    }

    /// The root hash after the last group.
    pub(crate) fn finish(mut self) -> ChainingValue {
        while self.stack.len() > 2 {
            self.merge();
        }
        match self.stack[..] {
            [ref left, ref right] => *merge_subtrees_root(left, right, Mode::Hash).as_bytes(),
            [only] => only,
            _ => *blake3::hash(&[]).as_bytes(),
        }
    }

    fn merge(&mut self) {
        if let (Some(right), Some(left)) = (self.stack.pop(), self.stack.pop()) {
            self.stack.push(merge_subtrees_non_root(&left, &right, Mode::Hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn groups_combine_to_the_root() {
        for size in [1, 1 << 20, (1 << 20) + 1, 2 << 20, (3 << 20) + 77, 7 << 20, (8 << 20) + 1] {
            let mut data = vec![0u8; size];
            for (i, byte) in data.iter_mut().enumerate() {
                *byte = (i * 31 + i / 1000) as u8;
            }
            let groups = group_count(size as u64);
            let mut root = RootHasher::default();
            for (number, group) in data.chunks(GROUP_SIZE as usize).enumerate() {
                let number = number as u32;
                assert_eq!(group.len(), group_len(size as u64, number) as usize);
                root.push(group_chaining_value(group, number, groups == 1));
            }
            assert_eq!(root.pushed(), groups);
            assert_eq!(root.finish(), *blake3::hash(&data).as_bytes(), "{size}");
        }
    }

    #[test]
    fn groups_past_the_end_are_empty() {
        assert_eq!(group_len(GROUP_SIZE, 0), 1 << 20);
        assert_eq!(group_len(GROUP_SIZE, 1), 0);
        assert_eq!(group_count(0), 0);
        assert_eq!(group_count(crate::limits::OBJECT_MAX), u32::MAX);
    }
}
