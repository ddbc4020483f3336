//! Directories that are there, and to which their owner may not write: where modes are kept one may for the copy, as
//! with rsync. At its end each gets the mode that the source has.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use longhaul_objects::EntryId;
use longhaul_sys::sync::lock;
use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat, fchmod, fstat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::metadata::node::chmod_by_path;
use crate::metadata::rights::{is_as_owner, is_fixed};
use crate::place::open_at;

/// Modes that directories had before they were made writable.
#[derive(Debug, Default)]
pub(crate) struct MadeWritable {
    modes: Mutex<BTreeMap<u64, Mode>>,
}

impl MadeWritable {
    /// Makes the directory of this name writable, which is that of an entry.
    pub(crate) fn make(&self, id: EntryId, parent: impl AsFd, name: &[u8]) -> io::Result<()> {
        if geteuid().is_root() {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory: OwnedFd = open_at(parent, name, flags, Mode::empty())?;
        if let Some(had) = make_writable(&directory)? {
            self.note(id, had);
        }
        Ok(())
    }

    /// That of an entry was made writable.
    pub(crate) fn note(&self, id: EntryId, had: Mode) {
        lock(&self.modes).insert(id.as_wire(), had);
    }

    /// The mode that the directory of an entry had, if it was made writable.
    pub(crate) fn take(&self, id: EntryId) -> Option<u32> {
        lock(&self.modes).remove(&id.as_wire()).map(Mode::as_raw_mode)
    }
}

/// Lets its owner, who this is, write to the directory, which may be open by path. The mode that it had, if that did
/// not.
pub(crate) fn make_writable(directory: &impl AsFd) -> io::Result<Option<Mode>> {
    let stat = fstat(directory)?;
    let (mode, user) = (stat.st_mode & 0o7777, geteuid());
    if user.is_root() || user.as_raw() != stat.st_uid || mode & WRITABLE == WRITABLE {
        return Ok(None);
    }
    let writable = Mode::from_raw_mode(mode | WRITABLE);
    match fchmod(directory, writable) {
        Err(Errno::BADF) => chmod_by_path(directory, writable)?,
        set => set?,
    }
    Ok(Some(Mode::from_raw_mode(mode)))
}

/// The error that this process gets where it makes or deletes names in a directory, if it does: where `kept` modes let
/// it, it makes its own writable first.
pub(crate) fn forbids_names(directory: &impl AsFd, keeps_modes: bool) -> Option<Errno> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let error = accessat(directory, ".", access, AtFlags::EACCESS).err()?;
    // Without the right to enter it, it is not asked about itself.
    let is_known = matches!(error, Errno::ACCESS | Errno::ROFS | Errno::PERM);
    let is_let_in = || error == Errno::ACCESS && is_made_writable(directory, keeps_modes);
    (is_known && !is_let_in()).then_some(error)
}

/// True if a copy makes this directory accessible, where it is not: where it `keeps_modes`, its user's own.
pub(crate) fn is_made_writable(directory: &impl AsFd, keeps_modes: bool) -> bool {
    keeps_modes && fstat(directory).is_ok_and(|stat| stat.st_uid == geteuid().as_raw())
}

/// The same where it deletes or replaces what has a name there.
pub(crate) fn forbids_removal(
    directory: &impl AsFd,
    name: &[u8],
    keeps_modes: bool,
) -> Option<Errno> {
    if let Some(error) = forbids_names(directory, keeps_modes) {
        return Some(error);
    }
    let here = fstat(directory).ok()?;
    let there = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_own = here.st_uid == geteuid().as_raw() || is_as_owner(&there);
    let sticks = here.st_mode & STICKY != 0 && !is_own;
    (sticks || is_fixed(directory, b"") || is_fixed(directory, name)).then_some(Errno::PERM)
}

const WRITABLE: u32 = 0o700;
const STICKY: u32 = 0o1000;
