use std::ffi::CString;
use std::io;

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
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPUs that the calling thread may run on, in order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

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
            assert!(pin_thread(&[]).is_err());
            pin_thread(&all).unwrap();
            assert_eq!(allowed_cpus().unwrap(), all);
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
