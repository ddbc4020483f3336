//! Listed names that a source has to announce (docs/protocol.md section 7.9).

use std::collections::BTreeSet;

use longhaul_files::Scanned;
use longhaul_wire::{EntryCode, EntryEnd, EntryKind};

/// Those of which a scan has found nothing yet.
#[derive(Debug)]
pub(crate) struct DueNames(BTreeSet<Vec<u8>>);

impl DueNames {
    pub fn new(names: &[Vec<u8>]) -> Self {
        Self(names.iter().cloned().collect())
    }

    /// It is found, if only as failed. Where that is no directory, or failed, nobody looks for names below it.
    pub fn meet(&mut self, found: &Scanned) {
        let (path, is_directory) = match found {
            Scanned::Entry(entry) => (entry.path.as_bytes(), entry.kind == EntryKind::Directory),
            Scanned::Failed(failure) => (&failure.path[..], false),
        };
        self.0.remove(path);
        if self.0.is_empty() || is_directory {
            return;
        }
        let first_in = [path, b"/"].concat();
        let from = self.0.range(first_in.clone()..);
        let below: Vec<_> = from.take_while(|name| name.starts_with(&first_in)).cloned().collect();
        below.iter().for_each(|name| _ = self.0.remove(name));
    }

    /// Those that are left at the end.
    pub fn left(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// The end of one of which nothing was found, with `place`, like "on this host".
pub(crate) fn not_found(place: &str) -> EntryEnd {
    let reason = format!(
        "no such file or directory {place}, or it is behind a link that a pattern excludes: list it without the \
         directories above the link"
    );
    EntryEnd::new(EntryCode::Failed, &reason)
}

#[cfg(test)]
mod tests {
    use longhaul_files::ScanFailure;
    use longhaul_objects::testing::file;
    use longhaul_wire::Entry;

    use super::*;

    #[test]
    fn names_are_met_by_themselves_and_by_what_is_no_directory_above_them() {
        let names =
            ["d", "d-e", "d/a", "d/l/x", "d/l/y", "d/lost"].map(|it| it.as_bytes().to_vec());
        let mut due = DueNames::new(&names);
        due.meet(&Scanned::Entry(Entry { kind: EntryKind::Directory, ..file("d", 0) }));
        due.meet(&Scanned::Entry(Entry {
            kind: EntryKind::Link { target: b"t".to_vec() },
            ..file("d/l", 0)
        }));
        let end = EntryEnd::new(EntryCode::Permission, "no");
        let failure = ScanFailure { path: b"d/a".to_vec(), end, stand_in: None };
        due.meet(&Scanned::Failed(failure));
        assert!(due.left().eq([&b"d-e"[..], b"d/lost"]));
    }
}
