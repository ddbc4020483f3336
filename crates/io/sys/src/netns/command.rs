//! Commands inside a [`Namespace`], and namespaces for users without privileges.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Signal, getgid, getppid, getuid, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::Namespace;

impl Namespace {
    /// Moves the calling thread inside, for good, where the host is called `name` and `hosts` stands
    /// for /etc/hosts. What the thread starts inherits both.
    ///
    /// # Errors
    /// Those of [`Namespace::enter`], and of the two mounts, which end with the last who sees them.
    pub fn enter_as_host(&self, name: &str, hosts: &Path) -> io::Result<()> {
        self.enter()?;
        // SAFETY: file descriptors stay shared; only the host's name of this thread may change.
        unsafe { unshare_unsafe(UnshareFlags::NEWUTS) }?;
        rustix::system::sethostname(name.as_bytes())?;
        own_mounts()?;
        Ok(mount_bind(hosts, "/etc/hosts")?)
    }

    /// Has the work of receiving what comes through `device` done on core `cpu` (receive packet
    /// steering), as a network card's interrupt would; for a TUN device it is otherwise done by
    /// the thread that writes to it.
    ///
    /// # Errors
    /// Those of mounting sysfs for the purpose, and of kernels without steering.
    pub fn steer(&self, device: &str, cpu: usize) -> io::Result<()> {
        // Words of 32 bits, the highest first (Documentation/networking/scaling.rst).
        let mut mask = format!("{:x}", 1u32 << (cpu % 32));
        mask.extend((0..cpu / 32).map(|_| ",00000000"));
        let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
        super::on_own_thread(|| {
            self.enter()?;
            own_mounts()?;
            // A view of the devices is that of the thread that mounts it; it ends with this thread.
            mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)?;
            std::fs::write(&file, &mask)
        })
        .map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))
    }
}

/// Gives the calling thread mounts of its own, which it may change unseen.
fn own_mounts() -> io::Result<()> {
    // SAFETY: file descriptors stay shared; this thread gets mounts and a working directory of its
    // own, which change nothing for the others.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Has `command` start as a member of a control group, whose `cgroup.procs` file is open as
/// `members`.
pub fn start_in_group(command: &mut Command, members: OwnedFd) {
    let join = move || {
        // Zero stands for the thread that writes.
        rustix::io::write(&members, b"0")?;
        Ok(())
    };
    // SAFETY: between fork and exec this makes one system call and neither allocates nor locks.
    unsafe { command.pre_exec(join) };
}

/// Has the kernel kill what `command` starts when the thread that starts it ends, also when the
/// whole process is killed.
pub fn die_with_starter(command: &mut Command) {
    let starter = rustix::process::getpid();
    let arm = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The starter may have gone in the meantime.
        if getppid() == Some(starter) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec this makes two system calls and neither allocates nor locks.
    unsafe { command.pre_exec(arm) };
}

/// Gives this process a user namespace in which it is root and may make network namespaces. Files
/// of others stay as unreachable as before.
///
/// # Errors
/// `InvalidInput` once the process has more than one thread, and those of kernels that do not
/// grant user namespaces to users.
pub fn become_root_of_own() -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    // SAFETY: file descriptors stay shared; the process has one thread, or the kernel refuses.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // The order is the kernel's condition for mapping a group (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}
