//! Times of modification where a file system keeps them less finely than others.

use std::os::fd::AsFd;

use rustix::fs::{Stat, fstat};

use crate::source::nanoseconds;

/// True if a file that was given the time `modified` has another: its file system keeps none so early or so late.
pub(crate) fn lacks_time(file: impl AsFd, modified: i64) -> bool {
    let is_kept = (KEPT_FROM..KEPT_UNTIL).contains(&modified);
    !is_kept && fstat(file).is_ok_and(|stat| !may_have_time(&stat, modified))
}

/// Times that each file system keeps: FAT none before 1980, UTC or not, ext3 none after January 2038.
const KEPT_FROM: i64 = 315_619_200 * 1_000_000_000;
const KEPT_UNTIL: i64 = (i32::MAX as i64) * 1_000_000_000;

/// True if a file of this status may have been given the time `modified`: as far as its file system keeps it.
pub(crate) fn may_have_time(stat: &Stat, modified: i64) -> bool {
    let there = nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64);
    let changed = nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64);
    let kept = grain(there, changed);
    modified.div_euclid(kept) == there.div_euclid(kept)
}

/// How finely a file system keeps times that keeps these. Anybody may give a file the time of a whole second; the time
/// of its last change is the system's, and whole only where nothing finer is kept.
fn grain(modified: i64, changed: i64) -> i64 {
    let divides = |grain: &i64| modified.rem_euclid(*grain) == 0 && changed.rem_euclid(*grain) == 0;
    GRAINS.into_iter().find(divides).unwrap_or(1)
}

/// Grains of modification times, in nanoseconds: FAT, ext3, exFAT, NFS and CIFS, NTFS.
const GRAINS: [i64; 6] = [2_000_000_000, 1_000_000_000, 10_000_000, 1_000_000, 1_000, 100];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_systems_own_times_show_how_finely_times_are_kept() {
        const SECOND: i64 = 1_000_000_000;
        assert_eq!(grain(1_700_000_000 * SECOND, 1_700_000_777 * SECOND + 123_456_789), 1);
        assert_eq!(grain(1_700_000_000 * SECOND, 1_700_000_777 * SECOND), SECOND);
        assert_eq!(grain(1_700_000_000 * SECOND, 1_700_000_778 * SECOND), 2 * SECOND);
        assert_eq!(grain(1_700_000_000 * SECOND, 1_700_000_777 * SECOND + 123_456_700), 100);
        assert_eq!(grain(-3 * SECOND, 1_700_000_778 * SECOND), SECOND, "before 1970");
    }
}
