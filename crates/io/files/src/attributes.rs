//! Modes and times of what was copied, which not every destination lets be set.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use longhaul_wire::{Entry, EntryKind, Summary};
use rustix::fs::{AtFlags, Stat, Timespec, Timestamps, UTIME_OMIT, futimens, utimensat};

use crate::explain::NotSet;
use crate::metadata::is_refusal;
use crate::metadata::node::Node;
use crate::sink::SinkTree;
use crate::sink::times::{lacks_time, may_have_time};

impl SinkTree {
    /// Sets the mode, where one is given, and the modification time of `entry`; what the file system does
    /// not let be set is noted.
    pub(crate) fn set_attributes(
        &self,
        file: impl AsFd,
        mode: Option<u32>,
        entry: &Entry,
    ) -> io::Result<()> {
        self.set_attributes_of(&Node::open(&file), mode, entry)?;
        self.set_time(&file, entry)
    }

    /// The same without the time.
    pub(crate) fn set_attributes_of(
        &self,
        node: &Node<'_>,
        mode: Option<u32>,
        entry: &Entry,
    ) -> io::Result<()> {
        match mode {
            _ if self.keeping.is_on() => {
                self.keeping.keep(node, mode, entry).map_err(|error| NotSet::error(0, error))
            }
            Some(mode) => {
                let set = || node.chmod(mode);
                self.unless_refused(entry, Summary::MODES_NOT_SET, set).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// The time alone.
    pub(crate) fn set_time(&self, file: impl AsFd, entry: &Entry) -> io::Result<()> {
        // Somebody else's directory tells nothing of the file system, nor of the times of files in it.
        let note = match entry.kind {
            EntryKind::Directory => Summary::SOME_TIMES_NOT_SET,
            _ => Summary::TIMES_NOT_SET,
        };
        self.set_time_or(note, file, entry).map(|_| ())
    }

    /// Gives a file that is there, and has this status, the time of `entry`, if it lacks that. True if it has got it.
    pub(crate) fn mend_time(
        &self,
        file: impl AsFd,
        stat: &Stat,
        entry: &Entry,
    ) -> io::Result<bool> {
        match may_have_time(stat, entry.modified) {
            true => Ok(false),
            // It may be somebody else's, too.
            false => self.set_time_or(Summary::SOME_TIMES_NOT_SET, file, entry),
        }
    }

    /// True if it has got it, false with a note.
    fn set_time_or(&self, note: u64, file: impl AsFd, entry: &Entry) -> io::Result<bool> {
        let set = || futimens(&file, &self.timestamps(entry));
        if !self.unless_refused(entry, note, set)? {
            return Ok(false);
        }
        let is_lost = entry.kind == EntryKind::File && lacks_time(file, entry.modified);
        if is_lost {
            self.notes.fetch_or(Summary::TIMES_NOT_KEPT, Ordering::Relaxed);
        }
        Ok(!is_lost)
    }

    /// Sets the modification time of the link `name`, and what else is kept of it.
    pub(crate) fn set_link_attributes(
        &self,
        directory: impl AsFd,
        name: &[u8],
        entry: &Entry,
    ) -> io::Result<()> {
        if self.keeping.is_on() {
            let node = Node::named(&directory, name);
            self.keeping.keep(&node, None, entry).map_err(|error| NotSet::error(0, error))?;
        }
        let times = self.timestamps(entry);
        let set = || utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        self.unless_refused(entry, Summary::TIMES_NOT_SET, set).map(|_| ())
    }

    /// Notes about the copy for the user, as [`Summary::notes`].
    pub(crate) fn notes(&self) -> u64 {
        self.notes.load(Ordering::Relaxed) | self.keeping.notes()
    }

    /// True where modification times say nothing here.
    pub(crate) fn lacks_times(&self) -> bool {
        self.notes() & Summary::TIMES_NOT_SET != 0
    }

    /// False if it was refused, which is noted.
    fn unless_refused(
        &self,
        entry: &Entry,
        note: u64,
        set: impl FnOnce() -> rustix::io::Result<()>,
    ) -> io::Result<bool> {
        match attempt(entry, note, set) {
            Err(error) if is_refusal(error) => {
                self.notes.fetch_or(note, Ordering::Relaxed);
                Ok(false)
            }
            set => set.map(|()| true).map_err(|error| NotSet::error(note, error)),
        }
    }

    pub(crate) fn timestamps(&self, entry: &Entry) -> Timestamps {
        // The first and the last stand for all beyond them.
        if matches!(entry.modified, i64::MIN | i64::MAX) {
            self.notes.fetch_or(Summary::TIMES_OUT_OF_RANGE, Ordering::Relaxed);
        }
        let modified = kept(entry);
        Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: modified.div_euclid(1_000_000_000),
                tv_nsec: modified.rem_euclid(1_000_000_000),
            },
        }
    }
}

/// The modification time that an entry is given.
#[cfg(not(any(test, feature = "test-faults")))]
fn kept(entry: &Entry) -> i64 {
    entry.modified
}

/// As a file system that a test asks for keeps it.
#[cfg(any(test, feature = "test-faults"))]
fn kept(entry: &Entry) -> i64 {
    let is_late = crate::test_faults::refuses(entry, "late times");
    if is_late { entry.modified.min(crate::test_faults::LATEST) } else { entry.modified }
}

#[cfg(not(any(test, feature = "test-faults")))]
fn attempt<T>(_: &Entry, _: u64, set: impl FnOnce() -> T) -> T {
    set()
}

/// As a file system that a test asks for has it.
#[cfg(any(test, feature = "test-faults"))]
fn attempt(
    entry: &Entry,
    note: u64,
    set: impl FnOnce() -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let what = if note == Summary::MODES_NOT_SET { "mode" } else { "time" };
    if crate::test_faults::refuses(entry, what) { Err(rustix::io::Errno::PERM) } else { set() }
}
