//! Later names of files and links that have their first.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use longhaul_objects::{Compared, FirstName, Fsync, Publication};
use longhaul_sys::sync::lock;
use longhaul_wire::{Entry, EntryCode, EntryEnd, EntryKind, EntryPath};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, linkat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::explain;
use crate::explain::Replaced;
use crate::identify::hex;
use crate::metadata::rights::is_as_owner;
use crate::place::{beneath, gone, open_at, split};
use crate::sink::inherited::Parent;
use crate::sink::sync::sync_whole;
use crate::sink::write::{PRIVATE, copy_data, create_new_file};
use crate::sink::{SinkTree, compare};
use crate::special::rename_over_files;

/// The file or link that a first name names.
struct Named<'a> {
    directory: OwnedFd,
    name: &'a [u8],
    stat: Stat,
}

impl SinkTree {
    /// Makes a later name one of what the first names: through no link, and without ever following one. Where the
    /// file system cannot, it gets a copy of that, which is counted.
    pub(crate) fn link(
        &self,
        file: &Publication,
        first: &FirstName,
        (parent, name): (&Parent, &[u8]),
    ) -> Result<(), EntryEnd> {
        let explain = |error| explain::at_destination("cannot give it its name", &error);
        let place = self.place_of(first.path.as_bytes(), false)?;
        let (within, own) = split(&place);
        let named = self.find_first(file, within, (own, first.is_compared)).map_err(explain)?;
        let mut folding = self.folding.as_ref().map(lock);
        if let Some(folding) = &folding {
            folding.check(parent, name).map_err(explain)?;
        }
        let there = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        // To rename one name of a file over another does nothing.
        let is_that = there.is_ok_and(|there| is_same(&there, &named.stat));
        if !is_that {
            let given = match self.give(file, &named, (parent, name)) {
                Err(error)
                    if self.deletes.make_room_for_file(
                        &parent.handle,
                        name,
                        &file.entry,
                        &error,
                    )? =>
                {
                    self.give(file, &named, (parent, name))
                }
                given => given,
            };
            given.map_err(explain)?;
        }
        if let Some(folding) = &mut folding {
            folding.note(parent, name);
        }
        match is_that {
            true => Err(EntryEnd::new(EntryCode::Unchanged, "")),
            false => Ok(()),
        }
    }

    /// Finds another name under which the file is there unchanged. What has that gets the entry's attributes.
    pub(crate) fn find_elsewhere(&self, entry: &Entry) -> Option<EntryPath> {
        let is_it = |path: &&EntryPath| {
            let look = |(parent, name): (&Parent, &[u8]), stat: &Stat| {
                let is_it = is_it_elsewhere((&parent.handle, name), stat, entry);
                if is_it {
                    self.keeping.mend((parent, name), stat, entry, false);
                }
                is_it
            };
            self.at(path, look) == Some(true)
        };
        entry.other_names().iter().find(is_it).cloned()
    }

    /// Looks at what has this path, if anything: at its name in its directory, and its status.
    pub(crate) fn at<T>(
        &self,
        path: &EntryPath,
        look: impl FnOnce((&Parent, &[u8]), &Stat) -> T,
    ) -> Option<T> {
        let place = self.place_of(path.as_bytes(), false).ok()?;
        let (parent, name) = split(&place);
        let parent = Parent::new(beneath(&self.root, parent, OFlags::PATH).ok()?);
        let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(look((&parent, name), &stat))
    }

    fn find_first<'a>(
        &self,
        file: &Publication,
        within: &[u8],
        (name, is_compared): (&'a [u8], bool),
    ) -> io::Result<Named<'a>> {
        let directory = beneath(&self.root, within, OFlags::PATH)?;
        let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = match file.entry.kind {
            EntryKind::File => FileType::RegularFile,
            _ => FileType::Symlink,
        };
        let is_it = match compare(&directory, name, &stat, &file.entry) {
            Compared::Unchanged | Compared::Mended => true,
            Compared::Newer { same_size } | Compared::Other { same_size } => {
                same_size && (is_compared || self.lacks_times())
            }
            Compared::Missing | Compared::Blocked(_) | Compared::Elsewhere(_) => false,
        };
        match is_it && FileType::from_raw_mode(stat.st_mode) == kind {
            true => Ok(Named { directory, name, stat }),
            false => Err(io::Error::other(Replaced)),
        }
    }

    fn give(
        &self,
        file: &Publication,
        named: &Named<'_>,
        (parent, name): (&Parent, &[u8]),
    ) -> io::Result<()> {
        if named.stat.st_dev != fstat(&self.hidden)?.st_dev {
            self.elsewhere.store(true, Ordering::Relaxed);
        }
        let link = |to: &OwnedFd, as_name: &[u8]| {
            // As systems do it, which look for the name first.
            #[cfg(any(test, feature = "test-faults"))]
            if crate::test_faults::refuses(&file.entry, "links")
                && statat(to, as_name, AtFlags::SYMLINK_NOFOLLOW).is_err()
            {
                return Err(Errno::PERM);
            }
            linkat(&named.directory, named.name, to, as_name, AtFlags::empty())
        };
        match link(&parent.handle, name) {
            Err(Errno::EXIST) => {}
            Err(error) if is_impossible(error) => return self.copy(file, named, (parent, name)),
            linked => return Ok(linked?),
        }
        let own = hex(&file.temp.0);
        let beside = [b".longhaul-", &own[..]].concat();
        for (directory, unseen) in [(&self.hidden, &own[..]), (&parent.handle, &beside[..])] {
            gone(unlinkat(directory, unseen, AtFlags::empty()))?;
            match link(directory, unseen) {
                // Only here it shows that none can be made; across file systems one may be, beside the name.
                Err(error) if is_impossible(error) => continue,
                linked => linked?,
            }
            let renamed = rename_over_files((directory, unseen), (parent, name));
            if renamed.is_err() {
                let _ = unlinkat(directory, unseen, AtFlags::empty());
            }
            match renamed {
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
                renamed => return renamed,
            }
        }
        self.copy(file, named, (parent, name))
    }

    /// Gives the name to a copy.
    fn copy(
        &self,
        file: &Publication,
        named: &Named<'_>,
        (parent, name): (&Parent, &[u8]),
    ) -> io::Result<()> {
        let own = hex(&file.temp.0);
        self.copy_unseen(&file.entry, named, &own)?;
        let renamed = match self.inherit(&file.entry, (&self.hidden, &own), parent)? {
            true => rename_over_files((&self.hidden, &own[..]), (parent, name)),
            false => Err(io::ErrorKind::CrossesDevices.into()),
        };
        match renamed {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                self.elsewhere.store(true, Ordering::Relaxed);
                self.move_across(file, (&self.hidden, &own), parent, name)
            }
            renamed => renamed,
        }?;
        self.keeping.count_not_kept();
        Ok(())
    }

    fn copy_unseen(&self, entry: &Entry, named: &Named<'_>, own: &[u8]) -> io::Result<()> {
        if let EntryKind::Link { target } = &entry.kind {
            gone(unlinkat(&self.hidden, own, AtFlags::empty()))?;
            symlinkat(&target[..], &self.hidden, own)?;
            return self.set_link_attributes(&self.hidden, own, entry);
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut from = File::from(open_at(&named.directory, named.name, flags, Mode::empty())?);
        if !is_same(&fstat(&from)?, &named.stat) {
            return Err(io::Error::other(Replaced));
        }
        self.take_space(usize::try_from(named.stat.st_size).unwrap_or(usize::MAX))?;
        let mut to = File::from(create_new_file(&self.hidden, own, PRIVATE)?);
        copy_data(&mut from, &mut to, entry)?;
        self.set_attributes(&to, Some(self.keeping.mode(entry)), entry)?;
        if self.fsync == Fsync::End { sync_whole(&to, &self.notes) } else { Ok(()) }
    }
}

/// True if the file or link is unchanged and can be given another name.
pub(crate) fn is_it_elsewhere(at: (&OwnedFd, &[u8]), stat: &Stat, entry: &Entry) -> bool {
    compare(at.0, at.1, stat, entry) == Compared::Unchanged && may_be_named(at, stat, entry)
}

/// True of what is unchanged under its first name and can be given no other, where another is missing, or of another
/// file: it is copied. `find` looks at what has another name.
pub(crate) fn lacks_names(
    at: (&OwnedFd, &[u8]),
    stat: &Stat,
    entry: &Entry,
    find: impl Fn(&EntryPath) -> Option<Stat>,
) -> bool {
    let others = entry.other_names();
    let is_such = |path| find(path).is_some_and(|other| is_same(&other, stat));
    !others.is_empty() && !may_be_named(at, stat, entry) && !others.iter().all(is_such)
}

/// False of a file that can be given no other name: it is another user's, so that the kernel may refuse to link it, and
/// may not be read for a copy.
fn may_be_named((parent, name): (&OwnedFd, &[u8]), stat: &Stat, entry: &Entry) -> bool {
    let may_be_read = || {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        open_at(parent, name, flags, Mode::empty()).is_ok()
    };
    entry.kind != EntryKind::File || is_as_owner(stat) || may_be_read()
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// True where a file system has no such names, no more of them, or none for this user; or none across its bounds.
fn is_impossible(error: Errno) -> bool {
    let reasons = [Errno::XDEV, Errno::PERM, Errno::MLINK, Errno::OPNOTSUPP, Errno::NOSYS];
    reasons.contains(&error)
}
