//! The destination directory itself, where the contents of a directory go into it: it gets what that has.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_objects::NamedEntry;
use longhaul_sys::sync::lock;
use longhaul_wire::Entry;
use rustix::fs::{Mode, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, futimens};
use rustix::io::Errno;

use crate::sink::SinkTree;
use crate::sink::inherited::Inherited;
use crate::sink::keeping::provisional_mode;
use crate::sink::writable::make_writable;

/// The destination directory of a copy.
#[derive(Debug)]
pub(crate) struct Top {
    /// It keeps its mode, time and attributes.
    stays: bool,
    /// So many directories were made for this copy: it, and those above.
    made: usize,
    /// The entry whose attributes it has got.
    finished: Mutex<Option<Arc<Entry>>>,
    /// The source has what it is a copy of.
    is_wanted: AtomicBool,
    /// The mode that it had before it was made writable for the copy.
    had: Option<Mode>,
    time: Option<TimeBefore>,
}

/// Modification time of the destination directory before the hidden directory was made in it, where that could be put
/// back: who makes nothing else in it leaves it this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeBefore {
    seconds: i64,
    nanoseconds: i64,
}

impl TimeBefore {
    pub(crate) fn of(root: &impl AsFd) -> Option<Self> {
        let stat = fstat(root).ok()?;
        Some(Self { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as i64 })
    }

    /// The same, if it was put back. Not every user may, and not every file system lets it be.
    pub(crate) fn put_back(self, root: &impl AsFd) -> Option<Self> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: self.seconds, tv_nsec: self.nanoseconds },
        };
        futimens(root, &times).ok()?;
        Some(self)
    }
}

impl Top {
    pub(crate) fn new(
        stays: bool,
        made: usize,
        had: Option<Mode>,
        time: Option<TimeBefore>,
    ) -> Self {
        let (finished, is_wanted) = (Mutex::new(None), AtomicBool::new(false));
        Self { stays, made, finished, is_wanted, had, time }
    }

    /// True if nothing of it is changed.
    pub(crate) fn stays(&self) -> bool {
        self.stays
    }

    /// True if it was made for this copy.
    pub(crate) fn is_new(&self) -> bool {
        self.made > 0
    }

    /// The hidden directory, which is in it, may still go: that changes its time.
    pub(crate) fn finished(&self, entry: &Arc<Entry>) {
        *lock(&self.finished) = Some(Arc::clone(entry));
    }
}

impl SinkTree {
    /// The contents of `entry` go into the destination directory. One that was made for them is open to no more
    /// users than theirs was. True if that was so.
    pub(crate) fn begin_top(&self, NamedEntry { entry, id }: &NamedEntry) -> io::Result<bool> {
        self.top.is_wanted.store(true, Ordering::Relaxed);
        if let Some(had) = self.top.had {
            self.keeping.made_writable.note(*id, had);
        }
        if self.top.stays || !self.top.is_new() {
            return Ok(false);
        }
        let stat = fstat(&self.root)?;
        // With a list the group's bits are its mask.
        if !Inherited::of(&self.root).has_list() {
            let mode = stat.st_mode & 0o7000 | provisional_mode(entry) & !self.keeping.umask();
            match fchmod(&self.root, Mode::from_raw_mode(mode)) {
                // As where other modes cannot be set, which is noted at the end.
                Ok(()) | Err(Errno::PERM | Errno::NOTSUP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Nothing was copied into what was made for it: that goes.
    pub(crate) fn remove_unused_top(&self) {
        let is_unused = !self.top.is_wanted.load(Ordering::Relaxed);
        if is_unused && self.top.is_new() && self.found_at.leads_to(&self.root).unwrap_or(false) {
            self.found_at.remove(self.top.made);
        }
    }

    /// Does something in the destination directory once that has its attributes, which it has afterwards, too; and its
    /// time, if nothing was made in it.
    pub(crate) fn behind_top(&self, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some(entry) = lock(&self.top.finished).take() else {
            let unchanged = self.top.time.filter(|time| TimeBefore::of(&self.root) == Some(*time));
            act()?;
            unchanged.and_then(|time| time.put_back(&self.root));
            return Ok(());
        };
        let made_writable = make_writable(&self.root)?;
        act()?;
        if let Some(mode) = made_writable {
            fchmod(&self.root, mode)?;
        }
        self.set_time(&self.root, &entry)
    }
}
