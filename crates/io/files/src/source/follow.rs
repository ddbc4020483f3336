//! `--follow`: symbolic links are copied as what they point at.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use longhaul_sys::descriptors::patiently;
use longhaul_sys::files::{Access, FileOptions};
use longhaul_wire::{EntryCode, EntryEnd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, statat};
use rustix::io::Errno;

use super::scan::join;
use super::{Base, READ, SourceTree};
use crate::explain;
use crate::identify::as_path;
use crate::place::{beneath, open_at};

impl SourceTree {
    /// True if links below the sources are followed.
    pub(crate) fn follows(&self) -> bool {
        self.reading.follows()
    }

    /// Status of what a link points at, or why that is not copied: the entry `path`, of source number `root`.
    pub(crate) fn look_behind(
        &self,
        root: usize,
        path: &[u8],
        (directory, name): (BorrowedFd<'_>, &CStr),
    ) -> Result<Stat, EntryEnd> {
        let rest = path.get(self.own_len(root)..).unwrap_or_default();
        let stat = match &self.base {
            Base::Local => statat(directory, name, AtFlags::empty()).map_err(io::Error::from),
            Base::Below(_) => self.open_behind(root, rest).and_then(|file| Ok(fstat(file)?)),
        };
        let stat =
            stat.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::NOENT | Errno::NOTDIR) => EntryEnd::new(EntryCode::NotFound, NOWHERE),
                Some(Errno::LOOP) => EntryEnd::new(EntryCode::Failed, LOOP),
                _ if explain::leads_out(&error) => EntryEnd::new(EntryCode::Refused, OUT),
                _ => explain::at_source(&error),
            })?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        match is_directory && self.is_above(root, rest, &stat) {
            true => Err(EntryEnd::new(EntryCode::Failed, LOOP)),
            false => Ok(stat),
        }
    }

    /// True if a directory holds what has the path `rest`, as far as that leads through the source.
    fn is_above(&self, root: usize, rest: &[u8], directory: &Stat) -> bool {
        let ends = rest.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        [0].into_iter().chain(ends).any(|end| {
            let opened = self.open_directory(root, &rest[..end], OFlags::PATH);
            let stat = opened.and_then(|above| Ok(fstat(above)?));
            stat.is_ok_and(|it| (it.st_dev, it.st_ino) == (directory.st_dev, directory.st_ino))
        })
    }

    /// Opens the file `rest` below source number `root`, through links: at a server in one step, which nothing leads
    /// out of.
    pub(crate) fn open_behind(&self, root: usize, rest: &[u8]) -> io::Result<File> {
        let path = join(&self.roots[root].path, rest);
        match &self.base {
            Base::Local => Ok(open_at(CWD, as_path(&path), READ, Mode::empty())?.into()),
            Base::Below(confined) => {
                let options = FileOptions { access: Access::Read, ..FileOptions::default() };
                patiently(|| confined.open(as_path(&path), &options).map_err(io::Error::from))
            }
        }
    }

    /// The same of a directory.
    pub(crate) fn open_directory_behind(
        &self,
        root: usize,
        rest: &[u8],
        flags: OFlags,
    ) -> io::Result<OwnedFd> {
        let path = join(&self.roots[root].path, rest);
        match &self.base {
            Base::Local => {
                let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(open_at(CWD, as_path(&path), flags, Mode::empty())?)
            }
            Base::Below(confined) => {
                let opened =
                    patiently(|| confined.open_dir(as_path(&path)).map_err(io::Error::from))?;
                Ok(beneath(opened, b"", flags)?)
            }
        }
    }
}

const NOWHERE: &str = "it is a symbolic link that leads nowhere";
const OUT: &str = "it is a symbolic link that leads out of the root";
const LOOP: &str = "it is a symbolic link that leads back to where it is";
