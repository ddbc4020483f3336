use std::ffi::CString;
use std::io;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_name};

/// Names the calling thread, for the tools that list threads: the first 15 bytes of `name`.
pub fn name_thread(name: &str) -> io::Result<()> {
    let end = (0..=NAME_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    let name = CString::new(&name[..end.unwrap_or(0)])?;
    Ok(set_name(&name)?)
}

/// Lets the calling thread run on `cpus` only.
///
/// # Errors
/// `InvalidInput` when none of them exists or is allowed to this process.
pub fn pin_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set).map_err(|error| {
        let cpus = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match error {
            Errno::INVAL => {
                let why = format!("this process has no CPU of these numbers: {cpus}");
                io::Error::new(io::ErrorKind::InvalidInput, why)
            }
            error => error.into(),
        }
    })
}

/// The CPUs that the calling thread may run on, in order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Lets the calling thread run before all that are scheduled normally (`SCHED_FIFO`, the lowest of
/// its priorities): for threads that stand for something outside the host, like a network. Such a
/// thread that never sleeps leaves others the twentieth part of its CPU. What it starts from then
/// on, threads and processes, runs first too.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_NICE` and with a limit of zero for real-time priorities.
pub fn run_first() -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sched_param`, which is a number.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the kernel reads one `sched_param`, which lives through the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Asks for short turns on the processor, 0.1 ms each: a thread that wakes up often to do little
/// then waits for less than those that run on. Needs no right; its share of the processor stays the
/// same. Kernels before Linux 6.12 take no notice.
///
/// # Errors
/// The system's error, which a running Linux does not return.
pub fn take_short_turns() -> io::Result<()> {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all zeroes is a valid `sched_attr`, which is made of numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes, the length of what it is given.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    attributes.size = size;
    attributes.sched_runtime = SHORT_TURN_NANOS;
    // SAFETY: the kernel reads one `sched_attr`, which lives through the call.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The shortest that the kernel gives.
const SHORT_TURN_NANOS: u64 = 100_000;

/// TASK_COMM_LEN less the final zero.
const NAME_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_narrows_what_is_allowed() {
        std::thread::spawn(|| {
            let all = allowed_cpus().unwrap();
            let last = *all.last().unwrap();
            pin_thread(&[last, CpuSet::MAX_CPU + 7]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
            let error = pin_thread(&[CpuSet::MAX_CPU + 7, CpuSet::MAX_CPU + 8]).unwrap_err();
            assert!(error.to_string().ends_with("1031, 1032"), "{error}");
            pin_thread(&all).unwrap();
            assert_eq!(allowed_cpus().unwrap(), all);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_may_run_first_and_what_it_starts_does_too() {
        std::thread::spawn(|| match run_first() {
            Ok(()) => {
                assert_eq!(policy("thread-self"), FIRST);
                std::thread::spawn(|| assert_eq!(policy("thread-self"), FIRST)).join().unwrap();
                let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
                let inherited = policy(&child.id().to_string());
                child.kill().unwrap();
                child.wait().unwrap();
                assert_eq!(inherited, FIRST);
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        })
        .join()
        .unwrap();
    }

    const FIRST: &str = "1";

    /// The 41st field of its `stat` (proc(5)).
    fn policy(of: &str) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{of}/stat")).unwrap();
        crate::processes::stat_field(&stat, 41).unwrap().into()
    }

    #[test]
    fn short_turns_are_given_to_anybody() {
        std::thread::spawn(|| {
            take_short_turns().unwrap();
            let sched = std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
            let slice = sched.lines().find(|line| line.starts_with("se.slice"));
            let slice = slice.and_then(|line| line.split_whitespace().last());
            // Kernels that heed it report it, where they are built to.
            assert!(slice.is_none_or(|nanos| nanos == "100000"), "{slice:?}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn names_are_cut_between_characters() {
        std::thread::spawn(|| {
            name_thread("lane-7-receive-€").unwrap();
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            assert_eq!(name, "lane-7-receive-\n");
            name_thread("12345678901234é").unwrap();
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            assert_eq!(name, "12345678901234\n");
            assert!(name_thread("a\0b").is_err());
        })
        .join()
        .unwrap();
    }
}
