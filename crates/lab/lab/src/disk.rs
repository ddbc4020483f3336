//! A slow disk: a file system in memory whose reading and writing take their time.
//!
//! Control groups do not throttle files in memory, nor what is written through the page cache; a
//! file system of our own (FUSE) keeps exactly the pace that it is given, on any machine. Data
//! reach it, and the page cache keeps them, as those of any other.

mod head;
mod service;
mod volume;

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use longhaul_sys::clock;
use longhaul_units::{Bytes, Rate};

use self::head::Head;
use self::service::Service;
use self::volume::{Owner, Volume};
use crate::testbed::disk_mark;
use crate::topology::parse_time;

/// Where a slow disk is, and how slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// An empty folder, in which its files are while it is there.
    pub folder: PathBuf,
    /// Its speed of reading and writing, both together.
    pub rate: Rate,
    /// Its size; 16 GiB by default. What it holds takes memory.
    pub size: Option<Bytes>,
    /// When it becomes slow, from [`SlowDisk::begin`] on; at once by default. Before, it is as fast
    /// as memory, so that files can be put there.
    pub from: Option<Duration>,
    /// Time for which it is slow; to the end by default.
    pub length: Option<Duration>,
}

/// Why a disk cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseDiskError(String);

/// A slow disk at work. What is on it is gone when it is dropped.
#[derive(Debug)]
pub struct SlowDisk {
    spec: DiskSpec,
    head: Arc<Head>,
    session: Option<BackgroundSession>,
}

/// Work that a disk did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskReport {
    /// Bytes read and written.
    pub passed: Bytes,
    /// CPU time that reading and writing took here, beside that of the kernel.
    pub cpu: Duration,
}

impl SlowDisk {
    /// Puts the disk in its folder. Processes that have mounts of their own already do not see it:
    /// start them afterwards.
    ///
    /// # Errors
    /// No such folder, or one that is not empty; a kernel without FUSE, or no right to mount.
    pub fn mount(spec: &DiskSpec) -> io::Result<Self> {
        let at_folder = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", spec.folder.display()))
        };
        if fs::read_dir(&spec.folder).map_err(at_folder)?.next().is_some() {
            return Err(at_folder(io::Error::other("the folder of a disk has to be empty")));
        }
        let head = Arc::new(Head::new(spec.rate));
        let size = spec.size.map_or(SIZE, Bytes::get);
        let owner = Owner {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            permissions: 0o755,
        };
        let volume = Mutex::new(Volume::new(size, owner));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(disk_mark()?),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        config.acl = SessionACL::All;
        config.n_threads = Some(THREADS);
        let service = Service { volume, head: head.clone() };
        // Otherwise the folder would be blamed.
        File::options().read(true).write(true).open(DEVICE).map_err(|error| {
            io::Error::new(error.kind(), format!("{DEVICE}: {error}; slow disks need this device"))
        })?;
        let session = fuser::spawn_mount(service, &spec.folder, &config).map_err(at_folder)?;
        Ok(Self { spec: spec.clone(), head, session: Some(session) })
    }

    /// Where it is, and how slow.
    pub fn spec(&self) -> &DiskSpec {
        &self.spec
    }

    /// Its time begins: `from` and `length` count from now.
    pub fn begin(&self) {
        let from = clock::now() + self.spec.from.unwrap_or_default();
        self.head.slow_down(from, self.spec.length.map(|length| from + length));
    }

    /// Takes the disk away and reports what it did.
    ///
    /// # Errors
    /// Errors of unmounting.
    pub fn end(mut self) -> io::Result<DiskReport> {
        self.take_away()?;
        let (passed, cpu) = self.head.account();
        Ok(DiskReport { passed: Bytes::new(passed), cpu })
    }

    fn take_away(&mut self) -> io::Result<()> {
        self.head.stop();
        self.session.take().map_or(Ok(()), BackgroundSession::umount_and_join)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // A caller that wants the result calls `end`; a mount that stays is removed by the next
        // start.
        let _ = self.take_away();
    }
}

impl FromStr for DiskSpec {
    type Err = ParseDiskError;

    /// Reads `folder=/mnt/slow,rate=400Mbps,size=4GiB,from=2s,length=10s`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text, None)
    }
}

impl DiskSpec {
    /// Reads `rate=400Mbps,from=2s` of a disk that is to be in `folder`.
    ///
    /// # Errors
    /// What is expected instead.
    pub fn parse(text: &str, folder: PathBuf) -> Result<Self, ParseDiskError> {
        Self::read(text, Some(folder))
    }

    fn read(text: &str, mut folder: Option<PathBuf>) -> Result<Self, ParseDiskError> {
        let is_known = folder.is_some();
        let (mut rate, mut size, mut from, mut length) = (None, None, None, None);
        for word in text.split(',') {
            let wrong = |what: String| ParseDiskError(format!("{word}: {what}"));
            let (key, value) =
                word.split_once('=').ok_or_else(|| wrong("expected a key and a value".into()))?;
            match key {
                "folder" if !is_known => folder = Some(PathBuf::from(value)),
                "rate" => rate = Some(value.parse().map_err(|error| wrong(format!("{error}")))?),
                "size" => size = Some(value.parse().map_err(|error| wrong(format!("{error}")))?),
                "from" => from = Some(parse_time(value).map_err(wrong)?),
                "length" => length = Some(parse_time(value).map_err(wrong)?),
                _ if is_known => return Err(wrong("known are rate, size, from, length".into())),
                _ => return Err(wrong("known are folder, rate, size, from, length".into())),
            }
        }
        let needed = |key: &str| ParseDiskError(format!("a disk needs {key}="));
        let rate: Rate = rate.ok_or_else(|| needed("rate"))?;
        if rate == Rate::ZERO {
            return Err(ParseDiskError("rate: a disk that never answers would never end".into()));
        }
        Ok(Self { folder: folder.ok_or_else(|| needed("folder"))?, rate, size, from, length })
    }
}

/// Where file systems of programs are asked for.
const DEVICE: &str = "/dev/fuse";
const SIZE: u64 = 16 << 30;
/// Some may wait for the head while others look up names.
const THREADS: usize = 4;

#[cfg(test)]
mod tests;
