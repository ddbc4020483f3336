use std::io;
use std::path::Path;

use longhaul_lab::disk::{DiskSpec, SlowDisk};
use longhaul_sys::clock;
use longhaul_units::{Bytes, Instant};
use tempfile::TempDir;

/// A slow disk in a folder of its own.
pub(super) struct Disk {
    // Goes before its folder.
    disk: SlowDisk,
    folder: TempDir,
}

impl Disk {
    /// As fast as memory until it begins.
    pub(super) fn mount(spec: &DiskSpec) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let spec = DiskSpec { folder: folder.path().to_owned(), ..spec.clone() };
        Ok(Self { disk: SlowDisk::mount(&spec)?, folder })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its time begins, and when that was.
    pub(super) fn begin(&self) -> Instant {
        self.disk.begin();
        clock::now()
    }

    /// Takes it away; what it passed.
    pub(super) fn end(self) -> io::Result<Bytes> {
        Ok(self.disk.end()?.passed)
    }
}
