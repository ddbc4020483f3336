//! Marks that keep testbeds from leaving anything behind: their commands bear one in the
//! environment that names the process that owns the testbed, and so do the names of their
//! namespaces. Whatever bears the mark of a process that is gone is removed.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_sys::netns::Namespace;
use longhaul_sys::processes::stat_field;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::processes::kill_marked;
use super::quota;

/// The mark of a testbed: its owner and a number.
#[derive(Debug)]
pub(super) struct Registration {
    owner: Owner,
    number: u64,
}

/// A process; the start time distinguishes it from later ones of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// In clock ticks since the start of the machine.
    started: u64,
}

/// Leftovers that [`clean_up`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Processes killed.
    pub processes: usize,
    /// Names of namespaces removed.
    pub names: usize,
    /// Control groups removed.
    pub groups: usize,
    /// Folders of files removed.
    pub folders: usize,
    /// Slow disks taken away.
    pub disks: usize,
}

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory: /dev/shm.
    Memory,
    /// On disk: /var/tmp, since /tmp is in memory on many hosts.
    Disk,
}

/// A new folder for files that several testbeds share; servers that give up root may go through it.
/// It is removed when it is dropped, and by [`clean_up`] when this process was killed.
///
/// # Errors
/// Errors of making a folder.
pub fn shared_folder(place: Place) -> io::Result<TempDir> {
    let Owner { pid, started } = Owner::this()?;
    let prefix = format!("{PREFIX}{pid}-{started}-files-");
    let mode = fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix(&prefix).permissions(mode).tempdir_in(place.path())
}

/// Name of a slow disk of this process among the mounts.
pub(crate) fn disk_mark() -> io::Result<String> {
    let Owner { pid, started } = Owner::this()?;
    Ok(format!("{PREFIX}{pid}-{started}-disk"))
}

/// Kills the processes and removes the names that testbeds of dead processes have left behind.
/// Their namespaces, devices and addresses end with that.
///
/// # Errors
/// Errors of listing processes. What belongs to other users is left alone.
pub fn clean_up() -> io::Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    let orphaned = |mark: &str| parse(mark).is_some_and(|(owner, _)| !owner.is_alive());
    cleaned.processes = kill_marked(orphaned)?;
    cleaned.groups = quota::remove(|name| name.strip_prefix(PREFIX).is_some_and(orphaned));
    cleaned.names = remove_named(Path::new(NAMES), orphaned, fs::remove_file);
    for place in file_places() {
        cleaned.folders += remove_named(&place, orphaned, fs::remove_dir_all);
    }
    cleaned.disks = unmount_disks(orphaned);
    Ok(cleaned)
}

impl Registration {
    pub(super) fn new() -> io::Result<Self> {
        static TESTBEDS: AtomicU64 = AtomicU64::new(0);
        Ok(Self { owner: Owner::this()?, number: TESTBEDS.fetch_add(1, Ordering::Relaxed) })
    }

    /// Value of [`super::processes::TAG`] in the environment of commands.
    pub(super) fn tag(&self) -> String {
        format!("{}-{}-{}", self.owner.pid, self.owner.started, self.number)
    }

    /// Lets `ip netns exec` find a namespace: by a link to a descriptor of this process, which is
    /// worth nothing when that has ended. Without root there is no such name.
    pub(super) fn name(&self, host: &str, namespace: &Namespace) -> io::Result<()> {
        if fs::create_dir_all(NAMES).is_err() {
            return Ok(());
        }
        let target = format!("/proc/{}/fd/{}", self.owner.pid, namespace.as_fd().as_raw_fd());
        match std::os::unix::fs::symlink(target, self.path(host)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            done => done,
        }
    }

    pub(super) fn netns_name(&self, host: &str) -> Option<String> {
        let path = self.path(host);
        fs::symlink_metadata(&path).ok()?;
        Some(path.file_name()?.to_str()?.to_owned())
    }

    fn path(&self, host: &str) -> PathBuf {
        Path::new(NAMES).join(self.group(host))
    }

    /// The name of a host's control group, and of its namespace.
    pub(super) fn group(&self, host: &str) -> String {
        format!("{PREFIX}{}-{host}", self.tag())
    }

    pub(super) fn scratch(&self) -> io::Result<TempDir> {
        let make = |place: &PathBuf| {
            tempfile::Builder::new().prefix(&self.group("files-")).tempdir_in(place)
        };
        let [memory, temporary, _] = file_places();
        make(&memory).or_else(|_| make(&temporary))
    }

    /// Kills what still runs inside the testbed.
    pub(super) fn kill_inside(&self) {
        let tag = self.tag();
        // Without a list of processes, those started directly still die with the keepers.
        let _ = kill_marked(|mark| mark == tag);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.kill_inside();
        let prefix = self.group("");
        let Ok(entries) = fs::read_dir(NAMES) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                // A name that stays is worth nothing, and the next start removes it.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Place {
    fn path(self) -> &'static Path {
        Path::new(match self {
            Self::Memory => "/dev/shm",
            Self::Disk => "/var/tmp",
        })
    }
}

impl Owner {
    fn this() -> io::Result<Self> {
        let pid = std::process::id();
        Ok(Self { pid, started: started(pid)? })
    }

    fn is_alive(self) -> bool {
        started(self.pid).is_ok_and(|started| started == self.started)
    }
}

/// Reads `pid-started` and what follows a further hyphen.
fn parse(mark: &str) -> Option<(Owner, &str)> {
    let mut parts = mark.splitn(3, '-');
    let owner = Owner { pid: parts.next()?.parse().ok()?, started: parts.next()?.parse().ok()? };
    Some((owner, parts.next()?))
}

fn started(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let start_time = stat_field(&stat, 22).and_then(|field| field.parse().ok());
    start_time.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Where folders of files may be.
fn file_places() -> [PathBuf; 3] {
    [Place::Memory.path().into(), std::env::temp_dir(), Place::Disk.path().into()]
}

/// Removes what bears a mark that is wanted in a folder, and returns how many there were.
fn remove_named(
    folder: &Path,
    wanted: impl Fn(&str) -> bool,
    remove: impl Fn(PathBuf) -> io::Result<()>,
) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let marked = |name: &std::ffi::OsStr| {
        name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(&wanted)
    };
    let old = entries.flatten().filter(|entry| marked(&entry.file_name()));
    old.filter(|entry| remove(entry.path()).is_ok()).count()
}

fn unmount_disks(wanted: impl Fn(&str) -> bool) -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let disks = mounts.lines().filter_map(|line| disk_folder(line, &wanted));
    disks.filter(|folder| unmount(&folder[..], UnmountFlags::DETACH).is_ok()).count()
}

/// The folder of a slow disk with a mark that is wanted, of a line of proc_pid_mounts(5).
fn disk_folder(line: &str, wanted: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
    let mut fields = line.split(' ');
    let (name, folder, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let ours = kind == "fuse" && name.strip_prefix(PREFIX).is_some_and(wanted);
    ours.then(|| unescaped(folder))
}

/// A path as proc(5) writes it: spaces and the like are `\040`, in octal.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut path = Vec::new();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => bytes.by_ref().take(3).fold(0, |code, digit| code << 3 | (digit & 7)),
            _ => byte,
        });
    }
    path
}

/// Where `ip netns` looks.
const NAMES: &str = "/run/netns";
const PREFIX: &str = "longhaul-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_back() {
        let registration = Registration::new().unwrap();
        let (owner, _) = parse(&registration.tag()).unwrap();
        assert_eq!(owner, registration.owner);
        assert!(owner.is_alive());
        assert!(!Owner { started: owner.started + 1, ..owner }.is_alive());
        for wrong in ["", "1", "1-2", "x-2-3", "1-x-3", "-1-2-3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_ne!(Registration::new().unwrap().tag(), registration.tag());
    }

    #[test]
    fn paths_of_mounts_are_read() {
        assert_eq!(unescaped("/mnt/a\\040b\\134c"), b"/mnt/a b\\c");
        let folder = |line| disk_folder(line, |mark| mark == "1-2-disk");
        assert_eq!(folder("longhaul-1-2-disk /mnt/a fuse rw,nosuid 0 0").unwrap(), b"/mnt/a");
        for line in
            ["", "longhaul-1-3-disk /a fuse rw", "longhaul-1-2-disk /a ext4 rw", "x /a fuse"]
        {
            assert_eq!(folder(line), None, "{line}");
        }
    }
}
