//! Listed names that a source has to announce (docs/protocol.md section 7.9).

use std::collections::{BTreeMap, BTreeSet};

use longhaul_connection::IncomingCopy;
use longhaul_files::Scanned;
use longhaul_objects::Announced;
use longhaul_wire::{EntryCode, EntryEnd, EntryKind};

/// Those of which a scan has found nothing yet, and those that it has found it cannot give.
#[derive(Debug)]
pub(crate) struct DueNames {
    /// Each with true if it has a slash behind it.
    due: BTreeMap<Vec<u8>, bool>,
    missed: Vec<(Vec<u8>, Missed)>,
}

/// Why a listed name is not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    NotFound,
    /// A link is there, or above it, that is copied as a link.
    Link,
    /// Something above it is no directory.
    NoDirectory,
}

impl DueNames {
    pub fn new(names: &[Vec<u8>]) -> Self {
        let due = names.iter().map(|name| split(name)).map(|(path, slash)| (path.to_vec(), slash));
        Self { due: due.collect(), missed: Vec::new() }
    }

    /// It is found, if only as failed. Below one that failed nobody looks for names.
    pub fn meet(&mut self, found: &Scanned) {
        if self.due.is_empty() {
            return;
        }
        let (path, kind) = match found {
            Scanned::Entry(entry) => (entry.path.as_bytes(), Some(&entry.kind)),
            Scanned::Failed(failure) => (&failure.path[..], None),
        };
        let is_slashed = self.due.remove(path) == Some(true);
        let why = match kind {
            Some(EntryKind::Directory) => return,
            Some(EntryKind::Link { .. }) => Some(Missed::Link),
            Some(EntryKind::File) => Some(Missed::NoDirectory),
            None => None,
        };
        let first_in = [path, b"/"].concat();
        let from = self.due.range(first_in.clone()..).map(|(name, _)| name);
        let below: Vec<_> = from.take_while(|name| name.starts_with(&first_in)).cloned().collect();
        below.iter().for_each(|name| _ = self.due.remove(name));
        if let Some(why) = why {
            let itself = (is_slashed && why == Missed::Link).then_some(first_in);
            self.missed.extend(itself.into_iter().chain(below).map(|name| (name, why)));
        }
    }

    /// Those that are not copied, once all is found.
    pub fn missed(&self) -> impl Iterator<Item = (&[u8], Missed)> {
        let left = self.due.keys().map(|name| (&name[..], Missed::NotFound));
        left.chain(self.missed.iter().map(|(name, why)| (&name[..], *why)))
    }
}

/// Of the `due` names those that a server has not announced, nor a failure above them.
pub(crate) fn missed_at_server<'a, I>(
    copy: &IncomingCopy<I>,
    due: &'a [Vec<u8>],
) -> Vec<(&'a [u8], Missed)> {
    let failed: BTreeSet<&[u8]> = copy.failures().iter().map(|it| it.path.as_bytes()).collect();
    let why = |name: &'a Vec<u8>| {
        let (path, is_slashed) = split(name);
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = ends.map(|(end, _)| &path[..end]);
        let mut leaf_above = || {
            let leaf = |it| Some((it, copy.announced(it)?));
            above.find_map(|it| leaf(it).filter(|(_, what)| *what != Announced::Directory))
        };
        match copy.announced(path) {
            Some(Announced::Link) if is_slashed => Some((&name[..], Missed::Link)),
            Some(_) => None,
            None => match leaf_above() {
                None => Some((path, Missed::NotFound)),
                Some((_, Announced::Link)) => Some((path, Missed::Link)),
                Some((above, _)) => {
                    (!failed.contains(above)).then_some((path, Missed::NoDirectory))
                }
            },
        }
    };
    due.iter().filter_map(why).collect()
}

impl Missed {
    /// The end of such a name, with `place`, like "on this host"; `has_rules` where some names are excluded.
    pub fn end(self, place: &str, has_rules: bool) -> EntryEnd {
        let (code, reason) = match self {
            Self::NotFound if has_rules => (
                EntryCode::NotFound,
                format!(
                    "no such file or directory {place}, or it is behind a link that a pattern excludes: list it \
                     without the directories above the link"
                ),
            ),
            Self::NotFound => (EntryCode::NotFound, format!("no such file or directory {place}")),
            Self::Link => (
                EntryCode::Failed,
                format!(
                    "a link {place} leads there, which is copied as a link, since a directory above it is listed: \
                     list what that directory holds in its place, or copy with --follow"
                ),
            ),
            Self::NoDirectory => {
                (EntryCode::NotFound, format!("what it should be in is no directory {place}"))
            }
        };
        EntryEnd::new(code, &reason)
    }
}

/// A name without the slash behind it, and whether it has one.
fn split(name: &[u8]) -> (&[u8], bool) {
    name.strip_suffix(b"/").map_or((name, false), |path| (path, true))
}

#[cfg(test)]
mod tests {
    use longhaul_files::ScanFailure;
    use longhaul_objects::testing::file;
    use longhaul_wire::Entry;

    use super::*;

    #[test]
    fn names_are_met_by_themselves_and_missed_behind_what_is_no_directory() {
        let names = ["d", "d-e", "d/a", "d/f/x", "d/l/", "d/l/x", "d/lost", "d/no/x", "d/m"];
        let mut due = DueNames::new(&names.map(|it| it.as_bytes().to_vec()));
        due.meet(&Scanned::Entry(Entry { kind: EntryKind::Directory, ..file("d", 0) }));
        for path in ["d/l", "d/m"] {
            let kind = EntryKind::Link { target: b"t".to_vec() };
            due.meet(&Scanned::Entry(Entry { kind, ..file(path, 0) }));
        }
        due.meet(&Scanned::Entry(file("d/f", 0)));
        for path in [&b"d/a"[..], b"d/no"] {
            let end = EntryEnd::new(EntryCode::Permission, "no");
            due.meet(&Scanned::Failed(ScanFailure { path: path.to_vec(), end, stand_in: None }));
        }
        let expected: [(&[u8], _); 5] = [
            (b"d-e", Missed::NotFound),
            (b"d/lost", Missed::NotFound),
            (b"d/l/", Missed::Link),
            (b"d/l/x", Missed::Link),
            (b"d/f/x", Missed::NoDirectory),
        ];
        assert!(due.missed().eq(expected), "{due:?}");
    }
}
