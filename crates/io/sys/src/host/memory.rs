use std::fs;

use longhaul_units::Bytes;
use rustix::process::{Resource, getrlimit};

/// Memory that this process may take at most: that of the host, or the least that a control group which it is in allows.
pub fn memory_limit() -> Bytes {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(limit_paths);
    let limits = limits.filter_map(|path| parse_limit(&fs::read_to_string(path).ok()?));
    limits.map(Bytes::new).fold(host_memory(), Bytes::min)
}

/// Memory that this process may still map: what its limit on addresses (`ulimit -v`) leaves. None without a limit.
///
/// A thread's stack and a heap of its own count in full, used or not.
pub fn unmapped() -> Option<Bytes> {
    let limit = getrlimit(Resource::As).current?;
    let mapped = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = mapped.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    let mapped = pages.saturating_mul(rustix::param::page_size() as u64);
    Some(Bytes::new(limit.saturating_sub(mapped)))
}

/// All threads allocate from one heap. Each one's own would take 64 MiB of addresses, which a limit on these counts.
pub fn share_one_heap() {
    // SAFETY: sets a number of the allocator's own, under its lock.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Memory of this host; known without `/proc`, too.
pub(super) fn host_memory() -> Bytes {
    let rustix::system::Sysinfo { totalram, mem_unit, .. } = rustix::system::sysinfo();
    Bytes::new(totalram.saturating_mul(mem_unit.into()))
}

/// Files with the limits of the group in a line of /proc/self/cgroup, `number:controllers:path`, and of those that it
/// is in. A container may see its own group as the top one.
fn limit_paths(line: &str) -> Vec<String> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let mut path = path.trim_end_matches('/');
    let mut paths = vec![format!("{root}{path}/{file}")];
    while let Some((above, _)) = path.rsplit_once('/') {
        path = above;
        paths.push(format!("{root}{path}/{file}"));
    }
    paths
}

/// `max` is none, as is anything that is no number.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_group_and_of_all_above() {
        let paths = limit_paths("0::/user.slice/a.scope");
        let expected = ["/user.slice/a.scope", "/user.slice", ""];
        assert_eq!(paths, expected.map(|path| format!("/sys/fs/cgroup{path}/memory.max")));
        let paths = limit_paths("4:memory,pids:/docker/1");
        assert_eq!(paths[0], "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes");
        assert_eq!(paths.len(), 3);
        for line in ["9:cpu:/a", "", "0:", "x"] {
            assert_eq!(limit_paths(line), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn numbers_are_read_and_words_are_no_limit() {
        assert_eq!(parse_limit("104857600\n"), Some(104_857_600));
        assert_eq!(parse_limit("max\n"), None);
    }

    #[test]
    fn without_a_limit_on_addresses_nothing_is_left_to_count() {
        let limit = getrlimit(Resource::As).current;
        assert_eq!(unmapped().is_some(), limit.is_some());
        assert!(unmapped() <= limit.map(Bytes::new));
    }

    #[test]
    fn this_process_may_take_some_and_no_more_than_there_is() {
        let limit = memory_limit();
        assert!(limit > Bytes::from_mib(1), "{limit}");
        assert!(limit <= super::super::Machine::describe().memory);
    }
}
