//! Making files and names durable.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_objects::Checkpoint;
use longhaul_sys::sync::lock;
use longhaul_wire::Summary;
use rustix::fs::{OFlags, fdatasync, fsync, syncfs};
use rustix::io::{Errno, retry_on_intr};

use crate::identify::place_key;
use crate::place::{beneath, split};
use crate::sink::SinkTree;

impl SinkTree {
    /// Makes durable what `checkpoint` names. Where it names much, the whole file system is synced:
    /// for thousands of small files that is one commit of its journal instead of thousands.
    pub(crate) fn sync(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        let elsewhere = self.elsewhere.load(Ordering::Relaxed);
        let whole_names = !elsewhere && self.are_many(checkpoint);
        let whole = whole_names || checkpoint.files.len() > SYNC_EACH_MAX;
        if whole {
            sync_all_of(&self.hidden, &self.notes)?;
        } else {
            for file in &checkpoint.files {
                let synced = match &file.aside {
                    // It was refused before, so nothing of it is there.
                    Some(entry) if self.place(entry).is_err() => continue,
                    None => self
                        .open_file(file.temp)
                        .and_then(|open| sync_data(open.file(), &self.notes)),
                    Some(entry) => self.sync_staged(entry),
                };
                match synced {
                    // It failed meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    synced => synced?,
                }
            }
            if !checkpoint.files.is_empty() {
                sync_directory(&self.hidden, &self.notes)?;
            }
        }
        // The way to the destination directory is in that file system, too, as far as it matters.
        let parents = core::mem::take(&mut *lock(&self.parents));
        if !whole {
            parents.sync(&self.root, &self.notes)?;
        }
        if whole && !elsewhere {
            return Ok(());
        }
        let mut synced = BTreeSet::new();
        for path in self.directories(checkpoint).filter(|path| synced.insert(place_key(path))) {
            match beneath(&self.root, &path, OFlags::RDONLY) {
                Ok(directory) => sync_directory(directory, &self.notes)?,
                // Removed, or replaced, by somebody since.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                // Its mode, or that of one above it, lets nobody but root open it.
                Err(Errno::ACCESS) => return self.sync_unopened(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The directories whose names `checkpoint` makes durable, one after the other: all paths together
    /// may be long. Some come several times.
    fn directories(&self, checkpoint: &Checkpoint) -> impl Iterator<Item = Vec<u8>> {
        checkpoint.names.iter().flat_map(|named| {
            let path = named.path();
            // What has no place here was refused before.
            let place = self.place_of(&path, named.is_directory()).ok();
            let parent = place.as_ref().map(|place| split(place).0.to_vec());
            let own = place.filter(|_| named.is_directory()).map(Cow::into_owned);
            parent.into_iter().chain(own)
        })
    }

    /// True where they are more than are synced one by one.
    fn are_many(&self, checkpoint: &Checkpoint) -> bool {
        let mut some = BTreeSet::new();
        self.directories(checkpoint).any(|path| {
            some.insert(place_key(&path));
            some.len() > SYNC_EACH_MAX
        })
    }

    /// Makes durable what cannot be opened: all that there is on its file system, or on any.
    fn sync_unopened(&self) -> io::Result<()> {
        if self.elsewhere.load(Ordering::Relaxed) {
            sync_host(&self.notes);
            return Ok(());
        }
        sync_all_of(&self.hidden, &self.notes)
    }
}

/// Makes the names in the directory durable. In `notes` is noted, here and below, that only
/// [`sync_host`] was left.
pub(crate) fn sync_directory(directory: impl AsFd, notes: &AtomicU64) -> io::Result<()> {
    #[cfg(test)]
    tests::note(directory.as_fd());
    sync_whole(directory, notes)
}

/// Makes a file, or the names in a directory, durable.
pub(crate) fn sync_whole(of: impl AsFd, notes: &AtomicU64) -> io::Result<()> {
    or_more(retry_on_intr(|| fsync(&of)), || sync_all_of(&of, notes))
}

/// Makes the contents of a file durable.
pub(crate) fn sync_data(of: impl AsFd, notes: &AtomicU64) -> io::Result<()> {
    or_more(retry_on_intr(|| fdatasync(&of)), || sync_all_of(&of, notes))
}

/// Makes all that is on its file system durable.
pub(crate) fn sync_all_of(of: impl AsFd, notes: &AtomicU64) -> io::Result<()> {
    or_more(syncfs(of), || {
        sync_host(notes);
        Ok(())
    })
}

/// Has this host write everything: that cannot be refused, and tells no error either, not even that a
/// sandbox forbids it. So it counts as done, and the user hears of it.
fn sync_host(notes: &AtomicU64) {
    rustix::fs::sync();
    notes.fetch_or(Summary::SYNC_NOT_CHECKED, Ordering::Relaxed);
}

/// Some file systems sync no directory, or no file, and some sandboxes forbid the call. That says nothing
/// of the disk, so `more` is synced.
fn or_more(
    synced: rustix::io::Result<()>,
    more: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    match synced {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => more(),
        synced => Ok(synced?),
    }
}

/// Files, or directories, that are synced one by one.
const SYNC_EACH_MAX: usize = 16;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::os::fd::BorrowedFd;

    use super::{Errno, or_more};

    #[test]
    fn files_that_cannot_be_synced_alone_are_synced_with_more() {
        let synced = |error| {
            let mut more = false;
            let result = or_more(Err(error), || {
                more = true;
                Ok(())
            });
            (result.map_err(|error| error.raw_os_error()), more)
        };
        for error in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM] {
            assert_eq!(synced(error), (Ok(()), true));
        }
        // A disk that fails has failed.
        for error in [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::ROFS] {
            assert_eq!(synced(error), (Err(Some(error.raw_os_error())), false));
        }
    }

    thread_local! {
        static SYNCED: RefCell<BTreeSet<u64>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(crate) fn note(directory: BorrowedFd<'_>) {
        let inode = rustix::fs::fstat(directory).unwrap().st_ino;
        SYNCED.with_borrow_mut(|synced| synced.insert(inode));
    }

    /// Inodes of the directories that this thread has synced since it asked last.
    pub(crate) fn take_synced() -> BTreeSet<u64> {
        SYNCED.take()
    }
}
