//! What the user should know of a copy that is complete, in words.

use std::os::unix::ffi::OsStrExt;

use longhaul_units::shown_path;
use longhaul_wire::{KeptAttributes, SourceReport, Summary};

use crate::options::CopyPaths;

/// Attributes that are not at the destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unkept {
    /// Entries with access lists and with extended attributes, which the copy was not to keep.
    pub missed: (u64, u64),
    /// Entries of which the destination could not keep all that it was to.
    pub not_kept: u64,
    /// Attributes that it was to keep.
    pub kept: KeptAttributes,
}

impl Unkept {
    /// Takes in what the server, which has the files, reports.
    pub(crate) fn add_missed(&mut self, report: Option<&SourceReport>) {
        if let Some(report) = report {
            self.missed = (report.access_lists, report.xattrs);
        }
    }

    /// The same without those of which the user wants to know nothing.
    pub(crate) fn without(self, unmissed: KeptAttributes) -> Self {
        let (lists, xattrs) = self.missed;
        let of = |count, bit| if unmissed.has(bit) { 0 } else { count };
        let lists = of(lists, KeptAttributes::ACCESS_LISTS);
        Self { missed: (lists, of(xattrs, KeptAttributes::XATTRS)), ..self }
    }
}

/// A sentence for each of `notes`, as [`Summary::notes`] of a copy of `paths`, and for what is not there.
pub(crate) fn of(notes: u64, paths: &CopyPaths, unkept: &Unkept) -> Vec<String> {
    let meant = REMARKS.iter().filter(|(note, _)| notes & note != 0);
    let meant = meant.map(|(_, remark)| (*remark).to_owned());
    let left_alone = (notes & Summary::LEFT_ALONE != 0).then(|| left_alone(notes, paths));
    meant.chain(left_alone).chain(not_kept(unkept.not_kept)).chain(missed(unkept)).collect()
}

/// Its name is in the destination directory, or beside the new name that is the destination.
fn left_alone(notes: u64, paths: &CopyPaths) -> String {
    let (path, side) = match paths {
        CopyPaths::Push { destination, .. } => (&destination[..], " at the server"),
        CopyPaths::Pull { destination, .. } => (destination.as_os_str().as_bytes(), ""),
    };
    let place = if notes & Summary::NEW_NAME != 0 { "beside" } else { "in" };
    let path = match path {
        b"" => "the destination directory".to_owned(),
        path => shown_path(path),
    };
    format!(
        "{place} {path}{side} is a hidden directory of this copy, .longhaul-*, that is not this user's alone: it was \
         left as it is, and nothing in it used"
    )
}

fn not_kept(entries: u64) -> Option<String> {
    let of = match entries {
        0 => return None,
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    };
    Some(format!(
        "permission bits, owners, hard links, access lists or extended attributes of {of} could not be kept: the \
         destination does not hold them, or does not let this user set them"
    ))
}

fn missed(unkept: &Unkept) -> Option<String> {
    let (lists, xattrs) = unkept.missed;
    let keeps_none = unkept.kept.with(KeptAttributes::FOLLOW, false).is_empty();
    let advice = match (lists > 0, xattrs > 0) {
        (false, false) => return None,
        _ if keeps_none => "-a keeps them",
        (true, false) => "-A keeps them",
        (false, true) => "-X keeps them",
        (true, true) => "-A and -X keep them",
    };
    let entries = |count: u64| match count {
        1 => "1 file or directory has".to_owned(),
        count => format!("{count} files or directories have"),
    };
    let lists = (lists > 0).then(|| format!("{} an access list", entries(lists)));
    let xattrs = (xattrs > 0).then(|| format!("{} extended attributes", entries(xattrs)));
    let parts: Vec<String> = lists.into_iter().chain(xattrs).collect();
    Some(format!("{}: {advice}", parts.join(", ")))
}

const REMARKS: [(u64, &str); 9] = [
    (
        Summary::TIMES_NOT_SET,
        "the destination does not let modification times be set: what was copied has those of the copy; \
         after an interruption, what had its name already is copied again",
    ),
    (
        Summary::SOME_TIMES_NOT_SET,
        "the destination does not let the modification time of each directory, or of each unchanged file, be set, as of \
         another user's: such keep theirs",
    ),
    (
        Summary::MODES_NOT_SET,
        "the destination does not let permission bits be set: what was copied has those that it gives",
    ),
    (
        Summary::TIMES_OUT_OF_RANGE,
        "modification times before 1677-09-21 or after 2262-04-11 cannot be carried: what has such got the \
         nearest that can",
    ),
    (
        Summary::TIMES_NOT_KEPT,
        "the destination keeps no modification times as early or as late as some files have: these got the nearest \
         that it keeps, and are sent each time",
    ),
    (
        Summary::MORE_THAN_FREE,
        "what would be copied is more than is free at the destination, beside what is left to others: make room, \
         or files that do not fit will fail",
    ),
    (
        Summary::SYNC_NOT_CHECKED,
        "the destination's system lets no file, directory or file system be synced by itself: all of its \
         disks were synced, which tells no errors",
    ),
    (
        Summary::NOT_COMPARED,
        "the server does not let anyone see what it has: all was sent, also what is there unchanged",
    ),
    (
        Summary::OWNERS_NOT_ALLOWED,
        "the server does not let owners, set-id bits and attributes beyond user. be set: \
         `serve --allow-owners` would",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_has_its_sentence() {
        let of = |notes| of(notes, &to(b"there"), &Unkept::default());
        assert!(of(0).is_empty());
        assert_eq!(of(u64::MAX).len(), REMARKS.len() + 1);
        assert!(of(Summary::TIMES_NOT_SET)[0].contains("modification times be set"));
    }

    #[test]
    fn the_notice_of_a_hidden_directory_says_where_that_lies() {
        let of = |notes, paths: &CopyPaths| {
            let [remark] = &super::of(Summary::LEFT_ALONE | notes, paths, &Unkept::default())[..]
            else {
                panic!("one remark");
            };
            remark.split(" is a hidden directory").next().map(str::to_owned).unwrap()
        };
        assert_eq!(of(0, &to(b"a/b")), "in a/b at the server");
        assert_eq!(of(Summary::NEW_NAME, &to(b"a/b")), "beside a/b at the server");
        assert_eq!(of(0, &to(b"")), "in the destination directory at the server");
        let (sources, destination) = (Vec::new(), "here/f".into());
        assert_eq!(
            of(Summary::NEW_NAME, &CopyPaths::Pull { sources, destination }),
            "beside here/f"
        );
    }

    fn to(destination: &[u8]) -> CopyPaths {
        CopyPaths::Push { sources: Vec::new(), destination: destination.to_vec() }
    }

    #[test]
    fn what_is_lost_is_counted() {
        let words = |unkept: &Unkept| super::of(0, &to(b"there"), unkept).join("; ");
        let of = |missed, not_kept| words(&Unkept { missed, not_kept, ..Unkept::default() });
        assert_eq!(of((0, 0), 0), "");
        assert_eq!(
            of((0, 12), 0),
            "12 files or directories have extended attributes: -a keeps them"
        );
        assert_eq!(
            of((1, 1), 0),
            "1 file or directory has an access list, 1 file or directory has extended attributes: -a keeps them"
        );
        assert!(of((0, 0), 3).contains("of 3 entries could not be kept"));
        let kept = |kept, missed| words(&Unkept { missed, kept, ..Unkept::default() });
        assert!(kept(KeptAttributes::FOLLOW, (1, 0)).ends_with("-a keeps them"));
        assert!(kept(KeptAttributes::XATTRS, (1, 0)).ends_with("-A keeps them"));
        assert!(kept(KeptAttributes::ACCESS_LISTS, (0, 1)).ends_with("-X keeps them"));
        assert!(kept(KeptAttributes::HARD_LINKS, (1, 1)).ends_with("-A and -X keep them"));
        let both = Unkept { missed: (1, 1), ..Unkept::default() };
        assert!(
            words(&both.without(KeptAttributes::ACCESS_LISTS))
                .starts_with("1 file or directory has extended")
        );
        let all = KeptAttributes::XATTRS.with(KeptAttributes::ACCESS_LISTS, true);
        assert_eq!(words(&both.without(all)), "");
    }
}
