//! What the user should know of a copy that is complete, in words.

use longhaul_wire::Summary;

/// A sentence for each of `notes`, as [`Summary::notes`].
pub(crate) fn of(notes: u64) -> Vec<String> {
    let meant = REMARKS.iter().filter(|(note, _)| notes & note != 0);
    meant.map(|(_, remark)| (*remark).to_owned()).collect()
}

const REMARKS: [(u64, &str); 6] = [
    (
        Summary::TIMES_NOT_SET,
        "the destination does not let modification times be set: what was copied has those of the copy; \
         after an interruption, what had its name already is copied again",
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
        Summary::LEFT_ALONE,
        "a hidden directory of this copy is there that is not this user's alone: it was left as it is, and \
         nothing in it used",
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
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_has_its_sentence() {
        assert!(of(0).is_empty());
        assert_eq!(of(u64::MAX).len(), REMARKS.len());
        assert!(of(Summary::TIMES_NOT_SET)[0].contains("modification times be set"));
    }
}
