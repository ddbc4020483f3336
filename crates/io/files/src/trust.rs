//! Whose a hidden directory is, and what lies in it (docs/files.md section "The hidden directory").

use std::io;
use std::os::fd::AsFd;

use longhaul_sys::files::ConfinedDir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, unlinkat};
use rustix::process::geteuid;

use crate::place::{beneath, open_at};

/// Conditions on a thing for this user to go on from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Nobody else may write to the directory that holds it. Owners are not asked for: some file
    /// systems (CIFS, FUSE, NFS that squashes users) show others than those who have made it.
    Anything,
    /// Others may have put it there: it has to be this user's alone.
    Own {
        /// This user, as the file system shows what it makes.
        uid: u32,
        /// Permission bits that the file system shows of anything, whatever was asked for.
        shown: u32,
    },
}

impl Trust {
    /// In `directory`.
    pub(crate) fn within(directory: impl AsFd) -> io::Result<Self> {
        let (stat, uid) = (fstat(directory)?, geteuid().as_raw());
        let others = stat.st_mode & OTHERS_WRITE != 0 || ![uid, ROOT].contains(&stat.st_uid);
        Ok(if others { Self::Own { uid, shown: 0 } } else { Self::Anything })
    }

    /// Trust that follows when something was made in `directory` under the name `name`, looked at,
    /// and removed again.
    pub(crate) fn learn(self, directory: &ConfinedDir, name: &[u8]) -> Self {
        let Self::Own { uid, .. } = self else { return self };
        let Ok((made, file)) = shown(directory, name) else { return self };
        // A file that was just made is this user's for certain: where the directory has another owner,
        // somebody has put another in its place.
        match made.st_uid == file.st_uid {
            true => Self::Own { uid: file.st_uid, shown: (made.st_mode | file.st_mode) & OTHERS },
            false => Self::Own { uid, shown: 0 },
        }
    }

    /// True where it is a directory of this user's which nobody else enters.
    pub(crate) fn has_directory(self, stat: &Stat) -> bool {
        is(stat, FileType::Directory) && self.owns(stat, OTHERS)
    }

    /// True where it is a file of this user's to which nobody else writes.
    pub(crate) fn has_record(self, stat: &Stat) -> bool {
        self.has_file(stat) && self.owns(stat, OTHERS_WRITE)
    }

    /// True where it is a file of this user's, which has no name elsewhere. It may have its final mode.
    pub(crate) fn has_file(self, stat: &Stat) -> bool {
        let is_alone = self == Self::Anything || stat.st_nlink <= 1;
        is(stat, FileType::RegularFile) && is_alone && self.owns(stat, 0)
    }

    /// True where it is this user's, and none of `bits` are set.
    fn owns(self, stat: &Stat, bits: u32) -> bool {
        match self {
            Self::Anything => true,
            Self::Own { uid, shown } => stat.st_uid == uid && stat.st_mode & bits & !shown == 0,
        }
    }
}

/// Attributes that the file system shows of a new directory, and of a new file in it.
fn shown(directory: &ConfinedDir, name: &[u8]) -> rustix::io::Result<(Stat, Stat)> {
    mkdirat(directory, name, Mode::RWXU)?;
    let looked = beneath(directory, name, OFlags::RDONLY).and_then(|made| {
        // Where somebody has put another in its place this is refused, or harmless.
        let _ = fchmod(&made, Mode::RWXU);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = open_at(&made, PROBE, flags, Mode::RUSR | Mode::WUSR)?;
        let stats = (fstat(&made)?, fstat(&file)?);
        unlinkat(&made, PROBE, AtFlags::empty())?;
        Ok(stats)
    });
    let removed = unlinkat(directory, name, AtFlags::REMOVEDIR);
    looked.and_then(|stats| removed.map(|()| stats))
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// Name of the file by which a file system is asked.
const PROBE: &str = "owner";
const ROOT: u32 = 0;
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;
