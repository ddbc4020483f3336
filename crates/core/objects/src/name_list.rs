//! Names that a user lists, of all that a source has (docs/protocol.md section 7.9).

use alloc::vec::Vec;
use core::cmp::Ordering;

use longhaul_wire::{InvalidPath, ListedName};

use crate::paths::AnnouncedPaths;

/// Paths below a source, in the order of a scan: of each directory the names in it, then those in its directories.
/// None is in another, since what a directory holds is copied with it.
///
/// Each takes its bytes and five more, one with a slash behind it nine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    /// Each with a zero behind it.
    bytes: Vec<u8>,
    starts: Vec<u32>,
    /// Numbers of names that have a slash behind them.
    followed: Vec<u32>,
}

/// The reason why names cannot be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameListError {
    /// One of them is no path of an entry.
    #[error("a name is no path below the source: {0}")]
    Invalid(#[from] InvalidPath),
    /// The peer has no list to send, or has sent all of it.
    #[error("names that nobody asked for")]
    Unasked,
    /// A name of a peer comes behind one that it belongs before, or is in.
    #[error("the names are in another order than that of a scan")]
    Order,
    /// They take more than [`NAME_LIST_MAX`] bytes.
    #[error("the names of a list take at most 64 MiB: copy in parts")]
    TooMany,
}

/// Bytes of the names of a list, with one more for each.
pub const NAME_LIST_MAX: usize = 64 << 20;

/// The place of a path beside a [`NameList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// It is listed, or in a directory that is.
    Within,
    /// It is a directory above one that is listed.
    Above,
    /// Nobody wants it.
    Apart,
}

impl NameList {
    /// Of these names, in any order. Of one with a slash behind it a link is followed that leads to a directory.
    ///
    /// # Errors
    /// One is no path, or they are too many.
    pub fn new(names: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, NameListError> {
        let names = names.into_iter().map(ListedName::new);
        let mut names = names.collect::<Result<Vec<_>, _>>()?;
        // Of one that is there with and without a slash that with it.
        names.sort_unstable_by(|one, other| {
            let by_path = order(one.path.as_bytes(), other.path.as_bytes());
            by_path.then(other.follows.cmp(&one.follows))
        });
        let (mut list, mut followed) = (Self::default(), Vec::new());
        for name in names {
            let path = name.path.as_bytes();
            match list.within(path) {
                None => list.push(&name)?,
                // Who lists what is in it means a directory.
                Some(above) if list.get(above) != Some(path) => followed.push(above as u32),
                Some(_) => {}
            }
        }
        list.followed.append(&mut followed);
        list.followed.sort_unstable();
        list.followed.dedup();
        Ok(list)
    }

    /// One more name, behind all others.
    ///
    /// # Errors
    /// It is not behind them, or there is no room; nothing was added then.
    pub fn push(&mut self, name: &ListedName) -> Result<(), NameListError> {
        let ListedName { path, follows } = name;
        let name = path.as_bytes();
        let is_behind = self.last().is_none_or(|last| order(last, name) == Ordering::Less);
        if !is_behind || self.within(name).is_some() {
            return Err(NameListError::Order);
        }
        if self.bytes.len() + name.len() >= NAME_LIST_MAX {
            return Err(NameListError::TooMany);
        }
        self.followed.extend(follows.then_some(self.starts.len() as u32));
        self.starts.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        Ok(())
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// A name, by its number from 0.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        let start = *self.starts.get(number)? as usize;
        let end = self.starts.get(number + 1).map_or(self.bytes.len(), |next| *next as usize);
        self.bytes.get(start..end - 1)
    }

    /// All names.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    /// True if a link is followed that has this listed name and leads to a directory.
    pub fn follows(&self, name: &[u8]) -> bool {
        let number = self.past(name);
        self.get(number) == Some(name) && self.followed.binary_search(&(number as u32)).is_ok()
    }

    /// A number that is the same for the same names, and for no others.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.bytes);
        self.followed.iter().for_each(|number| _ = hasher.update(&number.to_be_bytes()));
        *hasher.finalize().as_bytes()
    }

    fn last(&self) -> Option<&[u8]> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Number of the name that the path is, or is in.
    fn within(&self, path: &[u8]) -> Option<usize> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let above = ends.map(|(end, _)| &path[..end]).chain([path]);
        let mut numbers = above.map(|path| (self.past(path), path));
        numbers.find_map(|(number, path)| (self.get(number) == Some(path)).then_some(number))
    }

    /// Number of the first name that is not before a path.
    fn past(&self, path: &[u8]) -> usize {
        let at =
            |number: &u32| self.bytes.get(*number as usize..).map(until_zero).unwrap_or_default();
        self.starts.partition_point(|start| order(at(start), path) == Ordering::Less)
    }

    /// True if the path is one of a directory above a listed name.
    pub fn is_above(&self, path: &[u8]) -> bool {
        self.beside(path) == Beside::Above
    }

    pub(crate) fn beside(&self, path: &[u8]) -> Beside {
        if self.within(path).is_some() {
            return Beside::Within;
        }
        // Before all names in a directory that can be.
        let first_in = [path, b"/"].concat();
        let next = if path.is_empty() { self.get(0) } else { self.get(self.past(&first_in)) };
        match next.is_some_and(|name| path.is_empty() || name.starts_with(&first_in)) {
            true => Beside::Above,
            false => Beside::Apart,
        }
    }

    /// Names that were not announced, nor a file or link in the place of a directory above.
    pub(crate) fn unmet<'a>(&'a self, paths: &'a AnnouncedPaths) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(|name| !paths.settle(name))
    }
}

/// Where two paths part, the one that ends there comes first: what is in a directory, then what is in its
/// directories.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    let components = |path| <[u8]>::split(path, |byte| *byte == b'/');
    let (mut one, mut other) = (components(one).peekable(), components(other).peekable());
    loop {
        let (here, there) = (one.next(), other.next());
        let (here, there) = match (here, there) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(here), Some(there)) => (here, there),
        };
        let goes_on = (one.peek().is_some(), other.peek().is_some());
        let order = goes_on.0.cmp(&goes_on.1).then_with(|| here.cmp(there));
        if order.is_ne() {
            return order;
        }
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn list(names: &[&str]) -> NameList {
        NameList::new(names.iter().map(|name| name.as_bytes().to_vec())).unwrap()
    }

    fn shown(list: &NameList) -> Vec<String> {
        list.iter().map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_list_is_in_the_order_of_a_scan_and_has_nothing_twice() {
        let list = list(&["b", "a-b", "a/x", "a", "b/c/d", "c/e", "c-d", "c/e", "c/d/x"]);
        assert_eq!(shown(&list), ["a", "a-b", "b", "c-d", "c/e", "c/d/x"]);
        assert!(NameList::new([b"../x".to_vec()]).is_err());
        assert!(NameList::new([b"x//".to_vec()]).is_err());
    }

    #[test]
    fn a_slash_behind_a_name_is_no_part_of_it_and_is_kept() {
        let slashed = list(&["b", "a/x/", "b/", "c", "c", "e/f/g", "e"]);
        assert_eq!(shown(&slashed), ["b", "c", "e", "a/x"]);
        let follows = ["b", "c", "e", "a/x", "a"].map(|name| slashed.follows(name.as_bytes()));
        assert_eq!(follows, [true, false, true, true, false]);
        assert_ne!(slashed.digest(), list(&["b", "a/x", "c", "e"]).digest());
    }

    #[test]
    fn a_path_is_within_a_listed_name_above_one_or_apart() {
        let list = list(&["a", "c/d/x", "c/e"]);
        for (path, beside) in [
            ("a", Beside::Within),
            ("a/b/c", Beside::Within),
            ("a-b", Beside::Apart),
            ("", Beside::Above),
            ("c", Beside::Above),
            ("c/d", Beside::Above),
            ("c/d/x", Beside::Within),
            ("c/d/y", Beside::Apart),
            ("c/ex", Beside::Apart),
            ("z", Beside::Apart),
        ] {
            assert_eq!(list.beside(path.as_bytes()), beside, "{path}");
        }
    }

    #[test]
    fn names_of_a_peer_come_in_order_and_are_bounded() {
        let push =
            |list: &mut NameList, name: &str| list.push(&ListedName::new(name.into()).unwrap());
        let mut one = list(&["c/d"]);
        for wrong in ["a", "c", "c/d", "c/d/e", "c/c", "c/d/e/f"] {
            assert_eq!(push(&mut one, wrong), Err(NameListError::Order), "{wrong}");
        }
        push(&mut one, "c/e").unwrap();
        let mut number = 0;
        let full = loop {
            let pushed = push(&mut one, &alloc::format!("z/{number:04000}"));
            number += 1;
            if let Err(error) = pushed {
                break error;
            }
        };
        assert_eq!((full, number), (NameListError::TooMany, NAME_LIST_MAX / 4_003 + 1));
    }
}
