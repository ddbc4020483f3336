//! Children of this process: waiting for them up to a deadline, and what they used; how many
//! descriptors it may have, and signals that it ignores.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use longhaul_units::Instant;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};

use crate::clock::CpuTime;
use crate::wait::{Interest, wait};

/// Waits until `child` has ended or `deadline` passes, and tells whether it has ended. It is still
/// to be waited for.
///
/// # Errors
/// Those of `pidfd_open` (Linux 5.3) and `ppoll`.
pub fn wait_for_end(child: &Child, deadline: Instant) -> io::Result<bool> {
    let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(wait(&[(handle.as_fd(), Interest::Readable)], Some(deadline))? != 0)
}

/// True if this process ignores a signal, as one does that `nohup` started (SIGHUP).
///
/// # Errors
/// `InvalidInput` for what is no signal.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is set, and the kernel's is written to memory of that size.
    let done = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was written just now, and all zeroes before were an action too.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// Waits until `child` has ended, and tells how, and the CPU time of it and of all its descendants
/// that were waited for.
///
/// # Errors
/// `InvalidInput` for a child that was waited for already.
pub fn reap(mut child: Child) -> io::Result<(ExitStatus, CpuTime)> {
    // It may wait for the end of its input.
    drop(child.stdin.take());
    let pid = child.id() as libc::pid_t;
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    loop {
        // SAFETY: the kernel writes a status and one `rusage` to memory of that size. The process
        // is a child that nobody else waits for, since its `Child` is here.
        let waited = unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) };
        if waited == pid {
            break;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Err(io::ErrorKind::InvalidInput.into()),
            _ => return Err(error),
        }
    }
    // SAFETY: all zeroes, or what the kernel wrote.
    let usage = unsafe { usage.assume_init() };
    Ok((ExitStatus::from_raw(status), CpuTime::from_usage(&usage)))
}

/// Lets this process have as many descriptors as it may allow itself.
///
/// # Errors
/// That of `setrlimit`.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}

/// So many descriptors may this process have.
pub fn descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Bytes of the largest file that this process may write, where there is a limit.
pub fn file_size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn a_child_is_waited_for_only_until_the_deadline() {
        let mut child = Command::new("sleep").arg("300").spawn().unwrap();
        assert!(!wait_for_end(&child, clock::now() + Duration::from_millis(2)).unwrap());
        child.kill().unwrap();
        assert!(wait_for_end(&child, clock::now() + Duration::from_secs(30)).unwrap());
        let (status, _) = reap(child).unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn the_account_includes_descendants() {
        // The shell does nothing but wait for one that does something.
        let work = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done";
        let child = Command::new("sh").args(["-c", &format!("(sh -c '{work}'); exit 3")]).spawn();
        let (status, used) = reap(child.unwrap()).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(used.total() > Duration::from_millis(1), "{used:?}");
    }

    #[test]
    fn a_child_that_was_waited_for_is_an_error() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(reap(child).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
