//! Stamps show that an unpublished file is as the last run has left it (docs/files.md section
//! "Altered files").

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use longhaul_objects::hash::{UNHASHED, group_chaining_value, group_count, group_len};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{ChainingValue, FileIdentity, NamedFile, Stamp, TempName, identity};
use longhaul_sys::files::PositionedFile;
use longhaul_sys::memory::Pages;
use longhaul_wire::Entry;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat,
    futimens, statat,
};

use crate::identify::hex;
use crate::large::large;
use crate::place::{open_at, split};
use crate::sink::{LastDirectory, SinkTree};
use crate::source::{file_identity, read};

impl SinkTree {
    /// See [`longhaul_objects::Action::StampFiles`].
    pub(crate) fn stamp_files(&self, files: &[NamedFile], settle: bool) -> Vec<Option<Stamp>> {
        let mut last = None;
        let stats: Vec<_> = files.iter().map(|file| self.stat_file(file, &mut last)).collect();
        // A second write within one tick of the kernel's clock does not change the time.
        let latest = stats.iter().flatten().map(changed).max().filter(|_| settle);
        let left = latest.and_then(|latest| (latest + TICK).duration_since(SystemTime::now()).ok());
        if let Some(left) = left {
            std::thread::sleep(left.min(TICK));
        }
        let settled = SystemTime::now();
        let stamp = |stat: &Stat| self.stamp(stat).filter(|_| changed(stat) + TICK <= settled);
        stats.iter().map(|stat| stat.as_ref().and_then(stamp)).collect()
    }

    fn stat_file(&self, file: &NamedFile, last: &mut Option<LastDirectory>) -> Option<Stat> {
        let Some(entry) = &file.aside else {
            return stat_file(&self.hidden, &hex(&file.temp.0)).ok();
        };
        let (parent, name) = split(entry.path.as_bytes());
        let open = || self.open_staged_of(entry, OFlags::PATH);
        stat_file(LastDirectory::or_open(last, parent, open).ok()?, name).ok()
    }

    /// Stamp that shows that nobody has written to a file: writing changes its status change time,
    /// whatever is done to the others afterwards.
    pub(crate) fn stamp(&self, stat: &Stat) -> Option<Stamp> {
        // A time in whole seconds stays the same for too long.
        (self.keeps_change_times && stat.st_ctime_nsec != 0).then(|| {
            // Devices get new numbers when they are mounted again.
            Stamp(identity(&FileIdentity { device: 0, ..file_identity(stat) }, None))
        })
    }

    /// See [`longhaul_objects::Action::RecheckGroups`]. What cannot be read is sent again as well.
    pub(crate) fn recheck(
        &self,
        entry: &Entry,
        temp: TempName,
        groups: &[(u32, ChainingValue)],
    ) -> Vec<u32> {
        let opened = self.open_to_recheck(temp);
        let is_wrong = |file: &PositionedFile, buffer: &mut Pages, group, value| {
            let len = group_len(entry.data_len(), group);
            let data = &mut buffer[..len as usize];
            let mut at = 0;
            let is_read = entry.parts(u64::from(group) * GROUP_SIZE, len.into()).all(|part| {
                let piece = &mut data[at..at + (part.end - part.start) as usize];
                at += piece.len();
                read(file, piece, part.start).is_ok_and(|len| len == piece.len())
            });
            let only = group_count(entry.data_len()) == 1;
            !is_read || group_chaining_value(data, group, only) != value
        };
        let Ok((file, mut buffer)) = opened else {
            return groups.iter().map(|(group, _)| *group).collect();
        };
        // A copy that hashes nothing has nothing to compare, and does not call itself verified.
        let hashed = groups.iter().filter(|(_, value)| *value != UNHASHED);
        hashed
            .filter(|(group, value)| is_wrong(&file, &mut buffer, *group, *value))
            .map(|(group, _)| *group)
            .collect()
    }

    fn open_to_recheck(&self, temp: TempName) -> io::Result<(PositionedFile, Pages)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open_at(&self.hidden, &hex(&temp.0)[..], flags, Mode::empty())?;
        Ok((large(file.into(), self.direct)?, Pages::new(GROUP_SIZE as usize)?))
    }
}

/// Status of the file under the name, if it is one.
pub(crate) fn stat_file(directory: impl AsFd, name: &[u8]) -> io::Result<Stat> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then_some(stat).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn changed(stat: &Stat) -> SystemTime {
    let since = Duration::new(stat.st_ctime.max(0) as u64, stat.st_ctime_nsec as u32);
    SystemTime::UNIX_EPOCH + since
}

/// True if the file system keeps a status change time that programs cannot set, as they can set the
/// modification time. `record` gets its own back.
pub(crate) fn keeps_change_times(record: &File) -> bool {
    let set = |seconds, nanoseconds| {
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let last_modification = time(seconds, nanoseconds);
        futimens(record, &Timestamps { last_access: time(0, UTIME_OMIT), last_modification })
    };
    let long_ago = 1_000_000_000;
    let changed = set(long_ago, 0).and_then(|()| fstat(record)).map(|stat| stat.st_ctime);
    let is_kept = changed.is_ok_and(|changed| changed > long_ago + 1);
    set(0, UTIME_NOW).is_ok() && is_kept
}

/// The longest tick of a kernel's clock.
const TICK: Duration = Duration::from_millis(10);
