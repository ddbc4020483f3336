//! The root hash of a file whose groups are hashed in any order.

use alloc::collections::BTreeMap;

use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::hash::{ChainingValue, group_count};

/// Chaining values of the groups of a file, merged as far as their neighbours are there: memory depends on
/// the number of gaps, not on the size of the file.
#[derive(Clone, Debug)]
pub struct GroupTree {
    groups: u32,
    /// Subtrees by level (0: one group) and number; none is in another.
    subtrees: BTreeMap<(u8, u32), ChainingValue>,
    root: Option<ChainingValue>,
}

impl GroupTree {
    /// Of a file of `size` bytes, at least 1.
    pub fn new(size: u64) -> Self {
        Self { groups: group_count(size), subtrees: BTreeMap::new(), root: None }
    }

    /// The hash, once all groups are there.
    pub fn root(&self) -> Option<&ChainingValue> {
        self.root.as_ref()
    }

    /// True if the value of `group` was taken in.
    pub fn has(&self, group: u32) -> bool {
        self.root.is_some()
            || (0..=u32::BITS as u8).any(|level| {
                let number = group.checked_shr(level.into()).unwrap_or(0);
                self.subtrees.contains_key(&(level, number))
            })
    }

    /// Takes in the value of `group`, which is the root hash of a file of one group. False if there is
    /// another one for it, or one that cannot be compared any more.
    pub fn insert(&mut self, group: u32, value: ChainingValue) -> bool {
        if self.has(group) {
            let known = self.root.filter(|_| self.groups == 1);
            return known.as_ref().or_else(|| self.subtrees.get(&(0, group))) == Some(&value);
        }
        let (mut level, mut number, mut value) = (0, group, value);
        loop {
            let count = self.groups.div_ceil(1_u32.checked_shl(level.into()).unwrap_or(u32::MAX));
            let sibling = number ^ 1;
            if count == 1 {
                self.root = Some(value);
                return true;
            }
            if sibling < count {
                let Some(other) = self.subtrees.remove(&(level, sibling)) else {
                    self.subtrees.insert((level, number), value);
                    return true;
                };
                let (left, right) = if sibling < number { (other, value) } else { (value, other) };
                value = match count {
                    2 => *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes(),
                    _ => merge_subtrees_non_root(&left, &right, Mode::Hash),
                };
            }
            // One without a neighbour is a subtree of the next level as it is.
            (level, number) = (level + 1, number / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::group_chaining_value;
    use alloc::vec::Vec;

    /// Bytes of a file, its values, and its tree without any.
    fn file(groups: u32, rest: usize) -> (Vec<u8>, Vec<ChainingValue>, GroupTree) {
        let len = ((groups as usize - 1) << 20) + rest;
        let data: Vec<u8> = (0..len).map(|n| (n * 31 + n / 1000) as u8).collect();
        let values = data.chunks(1 << 20).enumerate();
        let values = values
            .map(|(number, data)| group_chaining_value(data, number as u32, groups == 1))
            .collect();
        let tree = GroupTree::new(len as u64);
        (data, values, tree)
    }

    #[test]
    fn groups_in_any_order_make_the_root() {
        for groups in 1..=9 {
            let (data, values, empty) = file(groups, 77);
            for step in [1, 2, 4, 5, 7] {
                let mut tree = empty.clone();
                let mut left: Vec<u32> = (0..groups).collect();
                let mut at = 0;
                while !left.is_empty() {
                    at = (at + step) % left.len();
                    let group = left.remove(at);
                    assert!(!tree.has(group) && tree.root().is_none());
                    assert!(tree.insert(group, values[group as usize]));
                    assert!(tree.has(group));
                }
                assert_eq!(tree.root(), Some(blake3::hash(&data).as_bytes()), "{groups} {step}");
            }
        }
    }

    #[test]
    fn a_group_with_two_values_is_noticed() {
        let (_, values, mut tree) = file(3, 5);
        assert!(tree.insert(2, values[2]) && tree.insert(0, values[0]));
        assert!(tree.insert(0, values[0]) && !tree.insert(0, values[1]));
        // Merged with its neighbour it cannot be compared.
        assert!(tree.insert(1, values[1]) && !tree.insert(1, values[1]));
    }

    #[test]
    fn memory_depends_on_gaps() {
        let mut tree = GroupTree::new(1 << 40);
        (1..1 << 20).for_each(|group| assert!(tree.insert(group, [7; 32])));
        assert!(tree.subtrees.len() <= 20, "{}", tree.subtrees.len());
        assert!(!tree.has(0) && tree.insert(0, [7; 32]) && tree.root().is_some());
    }
}
