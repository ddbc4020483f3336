//! Limits of CPU time, by control groups of either version (Documentation/admin-guide/cgroup-v2.rst,
//! Documentation/scheduler/sched-bwc.rst).

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use longhaul_pathsim::Probability;
use longhaul_sys::netns::start_in_group;

/// A control group of its own, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Quota {
    folder: PathBuf,
}

impl Quota {
    /// A group of that name, whose members may use that part of one core together.
    pub(super) fn new(name: &str, part: Probability) -> io::Result<Self> {
        let (root, version) = root().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "no control groups for CPU time here")
        })?;
        let runtime = (u64::from(part.as_ppb()) * PERIOD / 1_000_000_000).max(RUNTIME_MIN);
        let quota = Self { folder: root.join(name) };
        let folder = &quota.folder;
        let about = |error| named(folder, error);
        fs::create_dir(folder).map_err(about)?;
        match version {
            Version::One => {
                fs::write(folder.join("cpu.cfs_period_us"), PERIOD.to_string()).map_err(about)?;
                fs::write(folder.join("cpu.cfs_quota_us"), runtime.to_string()).map_err(about)?;
            }
            Version::Two => {
                // Already so wherever a service manager runs.
                let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
                fs::write(folder.join("cpu.max"), format!("{runtime} {PERIOD}")).map_err(about)?;
            }
        }
        Ok(quota)
    }

    /// Has `command` start as a member.
    pub(super) fn apply(&self, command: &mut Command) -> io::Result<()> {
        let members = OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"));
        start_in_group(command, members.map_err(|error| named(&self.folder, error))?.into());
        Ok(())
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The group of processes just killed is busy for a moment. One that stays is empty, and
        // the next start removes it.
        for _ in 0..TRIES {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

/// Removes the groups whose names are wanted, and returns how many there were.
pub(super) fn remove(wanted: impl Fn(&str) -> bool) -> usize {
    let Some((root, _)) = root() else { return 0 };
    let Ok(entries) = fs::read_dir(root) else { return 0 };
    let old = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(&wanted));
    old.filter(|entry| {
        // As long as its killed members take to go.
        (0..TRIES).any(|_| {
            let removed = fs::remove_dir(entry.path()).is_ok();
            if !removed {
                std::thread::sleep(Duration::from_millis(5));
            }
            removed
        })
    })
    .count()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where groups with a CPU controller are made.
fn root() -> Option<(PathBuf, Version)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[_, place, kind, options, ..] = &fields[..] else { return None };
        let place = Path::new(place);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => {
                Some((place.to_owned(), Version::One))
            }
            "cgroup2" => {
                let controllers = fs::read_to_string(place.join("cgroup.controllers")).ok()?;
                let has_cpu = controllers.split_whitespace().any(|name| name == "cpu");
                has_cpu.then(|| (place.to_owned(), Version::Two))
            }
            _ => None,
        }
    })
}

fn named(folder: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

/// Microseconds; what container runtimes use.
const PERIOD: u64 = 100_000;
/// The kernel's least.
const RUNTIME_MIN: u64 = 1_000;
const TRIES: u32 = 200;
