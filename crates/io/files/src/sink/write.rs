//! Unpublished files: made, written, and given their names.

use crate::explain::{Replaced, Vanished};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use longhaul_objects::{Existing, Fsync, Prepared, Publication, TempName, WritePiece, is_large};
use longhaul_sys::files::PositionedFile;
use longhaul_sys::sync::lock;
use longhaul_wire::{Entry, EntryEnd, EntryKind};
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, Stat, fallocate, fstat, statat, symlinkat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::explain;
use crate::identify::{hex, staged_name};
use crate::large::large;
use crate::metadata::node::Node;
use crate::place::gone;
use crate::place::{beneath, open_at, split};
use crate::sink::inherited::Parent;
use crate::sink::stamp::stat_file;
use crate::sink::sync::sync_whole;
use crate::sink::{LastDirectory, SinkTree, has_time};
use crate::special::{Obstacle, Special, rename_over_files};

/// An unpublished file that is open.
#[derive(Debug)]
pub(crate) struct Unpublished {
    file: PositionedFile,
    /// The kernel lets one thread at a time write to a file, and the others spin.
    turn: Mutex<()>,
}

impl Unpublished {
    fn new(file: impl Into<File>) -> Arc<Self> {
        Self::of(PositionedFile::new(file.into()))
    }

    fn of(file: PositionedFile) -> Arc<Self> {
        Arc::new(Self { file, turn: Mutex::new(()) })
    }

    pub(crate) fn file(&self) -> &File {
        self.file.file()
    }

    /// Until it is dropped this thread alone writes.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let done = self.file.write_blocks_at(data, offset)?;
        if done == data.len() {
            return Ok(());
        }
        let _turn = self.turn();
        self.file().write_all_at(&data[done..], offset + done as u64)
    }
}

impl SinkTree {
    /// Writes a part of an unpublished file.
    pub(crate) fn write_piece(
        &self,
        piece: &WritePiece,
        data: &[u8],
        last: &mut Option<LastDirectory>,
    ) -> io::Result<()> {
        let entry = &piece.entry;
        #[cfg(any(test, feature = "test-faults"))]
        crate::test_faults::inject_delay(entry, "write");
        if is_large(entry) {
            return self.open_file(piece.temp)?.write_all_at(data, piece.file_offset);
        }
        self.take_space(data.len())?;
        if piece.aside {
            return self.write_staged(entry, data, last);
        }
        // At once whole, nothing is left to do but to give it its name; unless its final mode keeps
        // this process from opening it again to sync it.
        if u64::from(piece.len) == entry.size && u32::from(entry.mode) & OWNER_READS != 0 {
            let (made_with, mode) = self.modes_of_whole(entry);
            let file = File::from(self.create(piece.temp, made_with)?);
            file.write_all_at(data, 0)?;
            return self.set_attributes(&file, mode, entry);
        }
        self.open_shared(piece.temp)?.write_all_at(data, piece.file_offset)
    }

    /// See [`longhaul_objects::Action::PrepareFile`].
    pub(crate) fn prepare(
        &self,
        entry: &Entry,
        temp: TempName,
        existing: Existing,
    ) -> Result<Prepared, EntryEnd> {
        let place = self.place(entry)?;
        if existing == Existing::Nothing {
            let explain = |error| explain::at_destination("cannot make room for it", &error);
            self.check_not_special(&place).map_err(|error| {
                explain::at_destination("cannot look at what has its name", &error)
            })?;
            let file = File::from(self.create(temp, PRIVATE).map_err(explain)?);
            let reserved = self.reserve(temp, &file, entry);
            let file = reserved.and_then(|()| large(file, self.direct)).map_err(|error| {
                self.forget_promise(temp);
                lock(&self.own).remove(&temp);
                let _ = unlinkat(&self.hidden, &hex(&temp.0)[..], AtFlags::empty());
                explain(error)
            })?;
            lock(&self.rough).insert(temp);
            self.files.insert(temp, Unpublished::of(file));
            return Ok(Prepared::Ready);
        }
        let (is_whole, stamp) = match existing {
            Existing::Whole(stamp) => (true, stamp),
            Existing::Part(stamp) => (false, stamp),
            Existing::Nothing => (false, None),
        };
        if let Ok(stat) = self.open_left(temp, entry.size) {
            self.promise(temp, entry.data_len());
            lock(&self.rough).insert(temp);
            lock(&self.own).insert(temp, (stat.st_dev, stat.st_ino));
            if stamp.is_some() && stamp == self.stamp(&stat) {
                return Ok(Prepared::Ready);
            }
            // What is in them is compared with nothing.
            if self.make_holes(entry, temp).is_ok() {
                return Ok(Prepared::Altered);
            }
        }
        match is_whole && self.is_published(entry, &mut None) {
            true => Ok(Prepared::Published),
            false => Ok(Prepared::Missing),
        }
    }

    /// Opens what an earlier run has left of a file of `size` bytes, and says how it was.
    fn open_left(&self, temp: TempName, size: u64) -> io::Result<Stat> {
        let stat = stat_file(&self.hidden, &hex(&temp.0))?;
        let len = stat.st_size as u64;
        if len < size || !self.trust.has_file(&stat) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let open = self.open_file(temp)?;
        if len > size {
            // Somebody has added to it.
            open.file().set_len(size)?;
        }
        Ok(stat)
    }

    /// Makes the holes of a file that an earlier run has left, whatever somebody has written there.
    fn make_holes(&self, entry: &Entry, temp: TempName) -> io::Result<()> {
        let Some(data) = &entry.attributes.data else { return Ok(()) };
        let open = self.open_file(temp)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for hole in data.holes(entry.size) {
            let len = hole.end - hole.start;
            retry_on_intr(|| fallocate(open.file(), flags, hole.start, len))?;
        }
        Ok(())
    }

    /// Checks early for a special file in the place: what cannot be published need not be sent.
    fn check_not_special(&self, place: &[u8]) -> io::Result<()> {
        let (parent, name) = split(place);
        // Its directory may not be in its place; then nothing has the name.
        let Ok(parent) = beneath(&self.root, parent, OFlags::PATH) else { return Ok(()) };
        match Special::at(parent, name)? {
            Some(special) => Err(io::Error::other(Obstacle(special))),
            None => Ok(()),
        }
    }

    /// See [`longhaul_objects::Action::Publish`].
    pub(crate) fn publish(
        &self,
        file: &Publication,
        last: &mut Option<LastDirectory>,
    ) -> Result<(), EntryEnd> {
        let Publication { entry, temp, .. } = file;
        let place = self.place(entry)?;
        let explain = |error| explain::at_destination("cannot give it its name", &error);
        let (parent, name) = split(&place);
        let parent = self.parent(parent, last).map_err(explain)?;
        if let Some(first) = &file.first {
            return self.link(file, first, (parent, name));
        }
        let staged;
        let temp = hex(&temp.0);
        let (directory, from) = if file.aside {
            let inside = staged_name(split(&place).0);
            let opened = self.open_staged_of(entry, OFlags::PATH);
            staged = opened.map_err(|error| explain(self.vanished(error, &inside)))?;
            (&staged, name)
        } else {
            self.finish(entry, file.temp)
                .and_then(|()| self.check_own(entry, file.temp))
                .map_err(explain)?;
            (&self.hidden, &temp[..])
        };
        let mut folding = self.folding.as_ref().map(lock);
        if let Some(folding) = &folding {
            folding.check(parent, name).map_err(explain)?;
        }
        let give = || match self.inherit(entry, (directory, from), parent)? {
            true => rename_over_files((directory, from), (parent, name)),
            false => self.move_across(file, (directory, from), parent, name),
        };
        let renamed = match give() {
            Err(error)
                if self.deletes.make_room_for_file(&parent.handle, name, entry, &error)? =>
            {
                give()
            }
            renamed => renamed,
        };
        match renamed {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                self.elsewhere.store(true, Ordering::Relaxed);
                self.move_across(file, (directory, from), parent, name)
            }
            renamed => renamed,
        }
        .map_err(|error| match statat(directory, from, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => explain(self.vanished(error, from)),
            _ => explain(error),
        })?;
        if let Some(folding) = &mut folding {
            folding.note(parent, name);
        }
        Ok(())
    }

    /// Checks that nobody has put another file in the place of an unpublished one. Where a file
    /// system may give a file a new number while it is there, its modification time tells, which
    /// this run has set, if it may; FAT does not keep that as it was set.
    fn check_own(&self, entry: &Entry, temp: TempName) -> io::Result<()> {
        let own = lock(&self.own).remove(&temp);
        // One without contents was made in this call.
        if entry.kind != EntryKind::File || entry.data_len() == 0 {
            return Ok(());
        }
        let name = hex(&temp.0);
        let stat = statat(&self.hidden, &name[..], AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.vanished(error.into(), &name))?;
        let is_own = own == Some((stat.st_dev, stat.st_ino));
        let is_own = is_own || has_time(&stat, entry) || self.lacks_times();
        let is_own = is_own || self.folding.is_some();
        match is_own && stat.st_size as u64 == entry.size {
            true => Ok(()),
            false => Err(io::Error::other(Replaced)),
        }
    }

    /// Gives an unpublished file what it lacks, or makes it where it has no contents.
    fn finish(&self, entry: &Entry, temp: TempName) -> io::Result<()> {
        let name = hex(&temp.0);
        if let EntryKind::Link { target } = &entry.kind {
            gone(unlinkat(&self.hidden, &name[..], AtFlags::empty()))?;
            symlinkat(&target[..], &self.hidden, &name[..])?;
            return self.set_link_attributes(&self.hidden, &name, entry);
        }
        if entry.data_len() == 0 {
            let (made_with, mode) = self.modes_of_whole(entry);
            let file = File::from(create_new_file(&self.hidden, &name, made_with)?);
            if entry.size > 0 {
                file.set_len(entry.size)?;
            }
            self.set_attributes(&file, mode, entry)?;
            // No checkpoint knows of it before it has its name, which then says how long it is.
            let is_due = entry.size > 0 && self.fsync == Fsync::End;
            return if is_due { sync_whole(&file, &self.notes) } else { Ok(()) };
        }
        if lock(&self.rough).remove(&temp) {
            self.set_attributes(
                self.open_file(temp)?.file(),
                Some(self.keeping.mode(entry)),
                entry,
            )?;
            self.files.remove(&temp);
            self.forget_promise(temp);
        }
        Ok(())
    }

    /// The directory is on another file system (a mount below the destination), or what is made in it has what this
    /// user may not give: the contents are copied into it and renamed there.
    pub(crate) fn move_across(
        &self,
        file: &Publication,
        (directory, from): (&OwnedFd, &[u8]),
        parent: &Parent,
        name: &[u8],
    ) -> io::Result<()> {
        let entry = &*file.entry;
        let hidden = [b".longhaul-", &hex(&file.temp.0)[..]].concat();
        gone(unlinkat(parent, &hidden[..], AtFlags::empty()))?;
        if let EntryKind::Link { target } = &entry.kind {
            symlinkat(&target[..], parent, &hidden[..])?;
            self.set_link_attributes(parent, &hidden, entry)?;
        } else {
            self.fits_elsewhere(&parent.handle, entry.data_len())?;
            let mut contents = File::from(open_at(
                directory,
                from,
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )?);
            let mut to =
                File::from(open_at(parent, &hidden[..], NEW, Mode::from_raw_mode(PRIVATE))?);
            let copied = copy_data(&mut contents, &mut to, entry)
                .and_then(|()| self.set_attributes(&to, Some(self.keeping.mode(entry)), entry))
                .and_then(|()| match parent.gives() {
                    from if from.has_list() => self.inherit_list(entry, &Node::open(&to), from),
                    _ => Ok(()),
                })
                .and_then(|()| {
                    if self.fsync == Fsync::End { sync_whole(&to, &self.notes) } else { Ok(()) }
                });
            if let Err(error) = copied {
                let _ = unlinkat(parent, &hidden[..], AtFlags::empty());
                return Err(error);
            }
        }
        if let Err(error) = rename_over_files((parent, &hidden), (parent, name)) {
            let _ = unlinkat(parent, &hidden[..], AtFlags::empty());
            return Err(error);
        }
        gone(unlinkat(directory, from, AtFlags::empty()))
    }

    /// Makes a new unpublished file, instead of one that is there.
    fn create(&self, temp: TempName, mode: u32) -> io::Result<OwnedFd> {
        let file = create_new_file(&self.hidden, &hex(&temp.0), mode)?;
        let stat = fstat(&file)?;
        lock(&self.own).insert(temp, (stat.st_dev, stat.st_ino));
        Ok(file)
    }

    /// An unpublished file that is there.
    pub(crate) fn open_file(&self, temp: TempName) -> io::Result<Arc<Unpublished>> {
        if let Some(open) = self.files.get(&temp) {
            return Ok(open);
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = hex(&temp.0);
        let opened = open_at(&self.hidden, &name[..], flags, Mode::empty());
        let open = match opened {
            // One that was written whole may be read-only already, which is enough to sync it.
            Err(Errno::ACCESS) => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = open_at(&self.hidden, &name[..], flags, Mode::empty())?;
                return Ok(Unpublished::new(file));
            }
            Err(error) => return Err(self.vanished(error.into(), &name)),
            Ok(opened) => Unpublished::of(large(opened.into(), self.direct)?),
        };
        self.files.insert(temp, Arc::clone(&open));
        Ok(open)
    }

    /// `error` of `name` in the hidden directory, which says so where nothing has that name any more.
    fn vanished(&self, error: io::Error, name: &[u8]) -> io::Error {
        if error.kind() != io::ErrorKind::NotFound {
            return error;
        }
        let path = [self.hidden_name.as_slice(), b"/", name].concat();
        io::Error::new(io::ErrorKind::NotFound, Vanished(path.escape_ascii().to_string()))
    }

    /// A small file that is written in several pieces, by several threads perhaps.
    fn open_shared(&self, temp: TempName) -> io::Result<Arc<Unpublished>> {
        let mut rough = lock(&self.rough);
        if !rough.insert(temp) {
            return self.open_file(temp);
        }
        let open = Unpublished::new(self.create(temp, PRIVATE)?);
        self.files.insert(temp, Arc::clone(&open));
        Ok(open)
    }
}

/// Copies the contents of `entry` without its holes.
pub(crate) fn copy_data(from: &mut File, to: &mut File, entry: &Entry) -> io::Result<()> {
    to.set_len(entry.size)?;
    for part in entry.parts(0, entry.size) {
        from.seek(SeekFrom::Start(part.start))?;
        to.seek(SeekFrom::Start(part.start))?;
        io::copy(&mut from.take(part.end - part.start), to)?;
    }
    Ok(())
}

/// Makes a new file, instead of one that is there.
pub(crate) fn create_new_file(directory: impl AsFd, name: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(mode);
    match open_at(&directory, name, NEW, mode) {
        // From an earlier write of the same group, which did not verify.
        Err(Errno::EXIST) => {
            unlinkat(&directory, name, AtFlags::empty())?;
            Ok(open_at(&directory, name, NEW, mode)?)
        }
        result => Ok(result?),
    }
}

const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

const OWNER_READS: u32 = 0o400;

/// Mode of a file that is not complete.
pub(crate) const PRIVATE: u32 = 0o600;
