use std::io;
use std::path::Path;

use longhaul_lab::{Place, shared_folder};
use tempfile::TempDir;

use crate::experiment::Source;

/// Folders for the files that contenders move: made once, since all runs move the same.
pub(super) struct Folders {
    memory: TempDir,
    disk: TempDir,
}

impl Folders {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { memory: shared_folder(Place::Memory)?, disk: shared_folder(Place::Disk)? })
    }

    /// A file system in memory.
    pub(super) fn in_memory(&self) -> &Path {
        self.memory.path()
    }

    /// Where files of that medium belong; `Memory` has none.
    pub(super) fn of(&self, medium: Source) -> Option<&Path> {
        match medium {
            Source::Memory => None,
            Source::Ramdisk => Some(self.memory.path()),
            Source::Disk => Some(self.disk.path()),
        }
    }
}
