//! Limits the part of a disk that a copy takes: it looks first, and leaves a reserve to others and
//! to its own resume record.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use longhaul_objects::TempName;
use longhaul_sys::files::{Allocation, preallocate};
use longhaul_sys::sync::lock;
use longhaul_units::Bytes;
use longhaul_wire::Entry;
use rustix::fs::{AtFlags, fstatfs, fstatvfs, statat};

use crate::identify::hex;
use crate::place::disk_bytes;
use crate::sink::SinkTree;

/// A file system as it was when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Bytes that anybody may still take.
    free: u64,
    /// All of its bytes; 0 where it has no limit.
    total: u64,
    /// Bytes that copies leave in any case.
    least: u64,
}

impl Space {
    /// Of the file system that `file` is on; where that does not say, no limit is known.
    fn of(file: impl AsFd, least: u64) -> Self {
        let Ok(stat) = fstatvfs(file) else { return Self { free: 0, total: 0, least } };
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Self { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks), least }
    }

    /// Bytes that a copy leaves.
    fn reserve(self) -> u64 {
        let share = (self.total / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
        share.min(self.total / RESERVE_PART_MAX).max(self.least)
    }

    /// Bytes that stay above the reserve when `needed` bytes are taken, and `owed` ones later.
    fn after(self, needed: u64, owed: u64) -> Result<u64, TooLittle> {
        if self.total == 0 {
            return Ok(u64::MAX);
        }
        let Self { free, .. } = self;
        let reserve = self.reserve();
        let kept = reserve.saturating_add(owed);
        let left = free.checked_sub(kept).and_then(|above| above.checked_sub(needed));
        left.ok_or(TooLittle { needed, free, owed, reserve })
    }
}

/// True where it is files that the file system of a directory holds no more of, though bytes are free. What could not
/// be made whole was removed, so a few may be left.
pub(crate) fn lacks_inodes(directory: impl AsFd) -> bool {
    let Ok(stat) = fstatvfs(directory) else { return false };
    // File systems that know no bound have none.
    stat.f_files > 0 && stat.f_favail <= INODES_FEW && stat.f_bavail > INODES_FEW
}

/// True if so many bytes fit where a directory is, and as many are left as a copy leaves, at `least` these.
pub(crate) fn has_room(directory: impl AsFd, needed: u64, least: Bytes) -> bool {
    Space::of(directory, least.get()).after(needed, 0).is_ok()
}

/// Something does not fit without the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct TooLittle {
    needed: u64,
    free: u64,
    owed: u64,
    reserve: u64,
}

impl fmt::Display for TooLittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [needed, free, owed, reserve] =
            [self.needed, self.free, self.owed, self.reserve].map(Bytes::new);
        write!(f, "{needed} are needed and {free} are free, ")?;
        if self.owed > 0 {
            write!(f, "of which other files of this copy need {owed} and ")?;
        } else {
            write!(f, "of which ")?;
        }
        write!(f, "{reserve} are left to others")
    }
}

impl From<TooLittle> for io::Error {
    fn from(error: TooLittle) -> Self {
        Self::new(io::ErrorKind::StorageFull, error)
    }
}

/// Space that a copy has been promised on its disk.
#[derive(Debug, Default)]
pub(crate) struct SpaceBudget {
    /// Lengths of unpublished files whose blocks are not theirs yet.
    promised: BTreeMap<TempName, u64>,
    /// Bytes that small files may take before the disk is looked at again.
    unlooked: u64,
    /// Bytes that stay free, if the disk's reserve is less.
    least: u64,
}

impl SpaceBudget {
    /// One that leaves so many bytes to others, or more.
    pub(crate) fn leaving(least: Bytes) -> Self {
        Self { least: least.get(), ..Self::default() }
    }

    /// Takes `len` bytes of what may be taken without looking; or tells that it is too little.
    fn draw(&mut self, len: u64) -> bool {
        let left = self.unlooked.checked_sub(len);
        self.unlooked = left.unwrap_or(self.unlooked);
        left.is_some()
    }

    /// Takes `len` bytes of `space`, of which `owed` ones are promised to others.
    fn take(&mut self, space: Space, owed: u64, len: u64) -> Result<(), TooLittle> {
        self.unlooked = 0;
        self.unlooked = (space.after(len, owed)? / UNLOOKED_PART).min(UNLOOKED_MAX);
        Ok(())
    }

    /// Bytes that promised files have yet to take. `taken` tells what one has, if it is there.
    fn owed(&self, taken: impl Fn(&TempName) -> Option<u64>) -> u64 {
        let owed = |(temp, len): (&TempName, &u64)| len.saturating_sub(taken(temp).unwrap_or(0));
        self.promised.iter().map(owed).fold(0, u64::saturating_add)
    }
}

impl SinkTree {
    /// Takes space for `len` bytes of a small file.
    pub(crate) fn take_space(&self, len: usize) -> io::Result<()> {
        let len = (len as u64).next_multiple_of(BLOCK);
        let mut budget = lock(&self.space_budget);
        if budget.draw(len) {
            return Ok(());
        }
        let owed = self.owed(&budget);
        let space = Space::of(&self.hidden, budget.least);
        Ok(budget.take(space, owed, len)?)
    }

    /// Looks if `len` bytes fit where `parent` is, on another file system than the hidden directory.
    pub(crate) fn fits_elsewhere(&self, parent: &OwnedFd, len: u64) -> Result<(), TooLittle> {
        let least = lock(&self.space_budget).least;
        Space::of(parent, least).after(len, 0).map(drop)
    }

    /// Gives a new large file its length, and its blocks where that is quick; nothing where it does
    /// not fit.
    pub(crate) fn reserve(&self, temp: TempName, file: &File, entry: &Entry) -> io::Result<()> {
        let len = entry.data_len();
        {
            let mut budget = lock(&self.space_budget);
            let owed = self.owed(&budget);
            let space = Space::of(file, budget.least);
            budget.take(space, owed, len)?;
            // Before it has the blocks, so that nobody else is given them meanwhile.
            budget.promised.insert(temp, len);
        }
        let allocated = allocate(file, entry);
        if !matches!(allocated, Ok(Allocation::Sparse)) {
            self.forget_promise(temp);
        }
        allocated.map(drop)
    }

    /// An earlier run has given a large file its length, and perhaps not all of its blocks.
    pub(crate) fn promise(&self, temp: TempName, len: u64) {
        lock(&self.space_budget).promised.insert(temp, len);
    }

    /// The file is whole, or is not to be.
    pub(crate) fn forget_promise(&self, temp: TempName) {
        lock(&self.space_budget).promised.remove(&temp);
    }

    fn owed(&self, budget: &SpaceBudget) -> u64 {
        budget.owed(|temp| {
            let stat = statat(&self.hidden, &hex(&temp.0)[..], AtFlags::SYMLINK_NOFOLLOW);
            stat.ok().map(|stat| disk_bytes(&stat))
        })
    }
}

/// A file system in memory would touch every page before the first byte has arrived.
fn allocate(file: &File, entry: &Entry) -> io::Result<Allocation> {
    if fstatfs(file).is_ok_and(|system| system.f_type == TMPFS) {
        return file.set_len(entry.size).map(|()| Allocation::Sparse);
    }
    if entry.data_len() < entry.size {
        file.set_len(entry.size)?;
    }
    for part in entry.parts(0, entry.data_len()) {
        if preallocate(file, part)? == Allocation::Sparse {
            return Ok(Allocation::Sparse);
        }
    }
    Ok(Allocation::Reserved)
}

/// The reserve is this part of a file system, between two bounds, but never more than the other part.
const RESERVE_PART: u64 = 100;
const RESERVE_MIN: u64 = 64 << 20;
const RESERVE_MAX: u64 = 1 << 30;
const RESERVE_PART_MAX: u64 = 16;
/// Small files take this part of what is above the reserve before the next look, since others write
/// too; and no more than the smallest reserve of a disk of some size.
const UNLOOKED_PART: u64 = 4;
const UNLOOKED_MAX: u64 = RESERVE_MIN;
/// Inodes that what was begun may have had, and not more than a moment ago.
const INODES_FEW: u64 = 8;
/// Unit in which file systems commonly give space to files.
const BLOCK: u64 = 4096;
/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn the_reserve_fits_the_disk() {
        for (total, reserve) in [
            (4 * MIB, MIB / 4),
            (GIB, 64 * MIB),
            (5 * GIB, 64 * MIB),
            (100 * GIB, GIB),
            (u64::MAX, GIB),
            (0, 0),
        ] {
            assert_eq!(Space { free: 0, total, least: 0 }.reserve(), reserve, "{total}");
        }
        // What is to stay free in any case does, and a smaller wish lessens nothing.
        for (least, reserve) in [(MIB, 64 * MIB), (900 * MIB, 900 * MIB)] {
            assert_eq!(Space { free: 0, total: GIB, least }.reserve(), reserve);
        }
    }

    #[test]
    fn files_that_would_take_the_reserve_are_refused() {
        let space = Space { free: 500 * MIB, total: GIB, least: 0 };
        assert_eq!(space.after(436 * MIB, 0), Ok(0));
        assert_eq!(space.after(400 * MIB, 6 * MIB), Ok(30 * MIB));
        let error = space.after(400 * MIB, 37 * MIB).unwrap_err();
        assert_eq!(
            error.to_string(),
            "419 MB are needed and 524 MB are free, of which other files of this copy need 38.8 MB \
             and 67.1 MB are left to others"
        );
        let error = space.after(u64::MAX, 0).unwrap_err();
        assert!(
            error.to_string().ends_with("524 MB are free, of which 67.1 MB are left to others")
        );
        // Without a limit everything fits; below the reserve nothing does.
        assert!(Space { free: 0, total: 0, least: 0 }.after(u64::MAX, 0).is_ok());
        assert!(Space { free: MIB, total: GIB, least: 0 }.after(1, 0).is_err());
    }

    #[test]
    fn small_files_take_a_part_before_the_next_look() {
        let mut budget = SpaceBudget::default();
        assert!(!budget.draw(1));
        let space = Space { free: 104 * MIB, total: GIB, least: 0 };
        budget.take(space, 0, 0).unwrap();
        assert!(budget.draw(9 * MIB));
        assert!(!budget.draw(2 * MIB));
        assert!(budget.draw(MIB));
        assert!(!budget.draw(1));
        // What was allowed before is not after a look that found too little.
        budget.take(space, 0, 0).unwrap();
        budget.take(space, 40 * MIB, 1).unwrap_err();
        assert!(!budget.draw(1));
        budget.take(Space { free: 900 * GIB, total: 900 * GIB, least: 0 }, 0, 0).unwrap();
        assert!(!budget.draw(UNLOOKED_MAX + 1));
    }

    #[test]
    fn promised_space_that_is_not_taken_is_owed() {
        let mut budget = SpaceBudget::default();
        for (number, len) in [(1, 10), (2, 20), (3, 30)] {
            budget.promised.insert(TempName([number; 16]), len);
        }
        let taken = |temp: &TempName| match temp.0[0] {
            1 => Some(4),
            2 => Some(50),
            _ => None,
        };
        assert_eq!(budget.owed(taken), 6 + 30);
    }
}
