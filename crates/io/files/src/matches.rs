//! Listings of what a pattern matches (docs/protocol.md sections 7.8 and 7.9), and the names that may be in one.

use std::sync::Arc;

use longhaul_sys::files::ConfinedDir;
use longhaul_units::Bytes;
use longhaul_wire::{EntryCode, EntryEnd, EntryPath, Listed, MAX_PATH};

use crate::filter::FilterError;
use crate::glob::{NamePattern, expand, is_pattern};
use crate::listing::{Found, Listing, link_status, status};
use crate::source::scan::join;

/// Matches of a pattern, one after the other: each with its path from the first wildcard on, and behind a
/// directory what is in it, or below.
pub struct Matches {
    root: Arc<ConfinedDir>,
    left: std::vec::IntoIter<Vec<u8>>,
    /// Bytes of a match before its first component with a wildcard.
    before: usize,
    recursive: bool,
    memory: Bytes,
    /// The directory that is being listed, with its path.
    directory: Option<(Vec<u8>, Listing)>,
}

impl Matches {
    /// Of the pattern `path` below `root`, within `memory` for names.
    ///
    /// # Errors
    /// It matches nothing, or too much, or is no pattern: in words for people.
    pub fn open(
        root: &Arc<ConfinedDir>,
        path: &[u8],
        recursive: bool,
        memory: Bytes,
    ) -> Result<Self, EntryEnd> {
        let found = expand(root, path, memory)?;
        // Where nothing matches it is the pattern itself.
        if matches!(&found[..], [only] if only == path) {
            status(root, path)?;
        }
        let (root, left, before) = (root.clone(), found.into_iter(), before_pattern(path));
        Ok(Self { root, left, before, recursive, memory, directory: None })
    }

    fn begin(&mut self, path: &[u8]) -> Found {
        let shown = path.get(self.before..).unwrap_or_default().to_vec();
        let found = status(&self.root, path).and_then(|listed| {
            let listing = Listing::open(&self.root, path, self.recursive, self.memory)?;
            Ok((listed, listing))
        });
        match found {
            Ok((listed, listing)) => {
                self.directory = listing.is_directory().then(|| (shown.clone(), listing));
                below(shown, listed)
            }
            // One that leads nowhere, or out of what is served, is listed as in its directory.
            Err(end) => match link_status(&self.root, path) {
                Some(link) => below(shown, link),
                None => Found::Unlisted { path: shown, end },
            },
        }
    }
}

impl Iterator for Matches {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if let Some((above, listing)) = &mut self.directory {
            match listing.next() {
                Some(Found::There(listed)) => {
                    return Some(below(join(above, listed.path.as_bytes()), listed));
                }
                Some(Found::Unlisted { path, end }) => {
                    return Some(Found::Unlisted { path: join(above, &path), end });
                }
                None => self.directory = None,
            }
        }
        let path = self.left.next()?;
        Some(self.begin(&path))
    }
}

fn below(path: Vec<u8>, listed: Listed) -> Found {
    match EntryPath::new(path.clone()) {
        Ok(path) => Found::There(Listed { path, ..listed }),
        Err(_) => {
            let reason = format!("its path is longer than {MAX_PATH} bytes");
            Found::Unlisted { path, end: EntryEnd::new(EntryCode::Name, &reason) }
        }
    }
}

/// Bytes of a path before its first component with a wildcard; all of what is no pattern.
fn before_pattern(path: &[u8]) -> usize {
    let mut begin = 0;
    for component in path.split(|byte| *byte == b'/') {
        if is_pattern(component) {
            return begin;
        }
        begin += component.len() + 1;
    }
    path.len()
}

/// The pattern of a listing, against which a client holds the paths that a server lists.
#[derive(Debug)]
pub struct ListedPattern {
    components: Vec<(Vec<u8>, Option<NamePattern>)>,
    /// True if all below a match is listed, not only its own entries.
    recursive: bool,
}

impl ListedPattern {
    /// Of the path of a listing; nothing where that is no pattern.
    ///
    /// # Errors
    /// It is no pattern though it has wildcards.
    pub fn new(path: &[u8], recursive: bool) -> Result<Option<Self>, FilterError> {
        let pattern = &path[before_pattern(path)..];
        if pattern.is_empty() {
            return Ok(None);
        }
        let component = |it: &[u8]| {
            let pattern = is_pattern(it).then(|| NamePattern::new(it)).transpose()?;
            Ok((it.to_vec(), pattern))
        };
        let components = pattern.split(|byte| *byte == b'/').filter(|it| !it.is_empty());
        let components = components.map(component).collect::<Result<_, FilterError>>()?;
        Ok(Some(Self { components, recursive }))
    }

    /// True if a listing of the pattern may have that path.
    pub fn admits(&self, path: &[u8]) -> bool {
        let mut names = path.split(|byte| *byte == b'/');
        let mut matches = |(written, pattern): &(Vec<u8>, Option<NamePattern>)| {
            names.next().is_some_and(|name| {
                name == written || pattern.as_ref().is_some_and(|it| it.matches(name))
            })
        };
        let all_match = self.components.iter().all(&mut matches);
        let more = names.count();
        all_match && (self.recursive || more <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_paths_that_match_and_what_is_in_them() {
        let pattern = |path: &str, recursive| {
            ListedPattern::new(path.as_bytes(), recursive).unwrap().unwrap()
        };
        let one = pattern("data/run-*/a?.h5", false);
        for path in ["run-1/a1.h5", "run-/ab.h5/in", "run-*/a?.h5"] {
            assert!(one.admits(path.as_bytes()), "{path}");
        }
        for path in ["", "run-1", "run-1/b", "run-1/a1.h5/in/it", "data/run-1/a1.h5", "x/a1.h5"] {
            assert!(!one.admits(path.as_bytes()), "{path}");
        }
        assert!(pattern("*/x", true).admits(b"a/x/in/it"));
        assert!(!pattern("*", true).admits(b".hidden"));
        assert!(ListedPattern::new(b"data/x", false).unwrap().is_none());
        assert!(ListedPattern::new(b"[z-a]", false).is_err());
    }
}
