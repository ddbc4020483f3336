//! Processes of this machine: who descends from whom, and what they have used.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use longhaul_sys::processes::{self, stat_field};
use rustix::process::{Pid, Signal, kill_process};

/// The processes that descend from `roots`, without these, and those whose environment has the
/// variable with that value.
pub(crate) fn family(roots: &[u32], mark: Option<(&str, &str)>) -> Vec<u32> {
    let all = processes::all().unwrap_or_default().into_iter();
    let all: Vec<(u32, u32)> = all.filter_map(|pid| Some((pid, Stat::of(pid)?.parent))).collect();
    let parent = |pid| all.iter().find(|entry| entry.0 == pid).map(|entry| entry.1);
    let descends = |pid| {
        let line = std::iter::successors(parent(pid), |&pid| parent(pid));
        line.take(GENERATIONS).any(|ancestor| roots.contains(&ancestor))
    };
    let mut found: BTreeSet<u32> =
        all.iter().map(|entry| entry.0).filter(|pid| descends(*pid)).collect();
    if let Some((variable, value)) = mark {
        let marked = processes::with_variable(variable, |found| found == value);
        found.extend(marked.unwrap_or_default());
    }
    found.retain(|pid| !roots.contains(pid));
    found.into_iter().collect()
}

/// CPU time of a process and of those of its children that it has waited for, to a hundredth of a
/// second; nothing once it has gone.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    Stat::of(pid).map(|stat| stat.cpu).unwrap_or_default()
}

/// The most memory that a process has had so far, in bytes; nothing once it has ended.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    peak(&status).unwrap_or(0)
}

/// proc(5).
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Kills a process, if it is still there.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Asks a process to end, if it is still there.
pub(crate) fn ask_to_end(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// True if a process is there and not only waiting to be waited for.
pub(crate) fn is_running(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.ended)
}

struct Stat {
    parent: u32,
    cpu: Duration,
    ended: bool,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// proc(5).
    fn parse(text: &str) -> Option<Self> {
        let number = |field| stat_field(text, field)?.parse::<u64>().ok();
        let ticks: u64 = (14..18).map(number).sum::<Option<u64>>()?;
        let rate = rustix::param::clock_ticks_per_second().max(1);
        Some(Self {
            parent: u32::try_from(number(4)?).ok()?,
            cpu: Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / rate)),
            ended: matches!(stat_field(text, 3)?, "Z" | "X"),
        })
    }
}

/// More than any program has.
const GENERATIONS: usize = 64;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_line_of_a_process_is_read_whatever_its_name() {
        let stat = Stat::parse("7 (a) b (c)) S 5 7 7 0 -1 4 1 2 3 4 10 20 30 40 20 0").unwrap();
        let second = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!((stat.parent, stat.ended), (5, false));
        assert!((stat.cpu.as_secs_f64() - 100.0 / second).abs() < 1e-6);
        assert!(Stat::parse("7 (a) Z 5 7").is_none());
        assert!(Stat::parse("").is_none());
        assert_eq!(peak("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(peak("Name:\tx\nState:\tZ (zombie)\n"), None);
        assert!(peak_memory(std::process::id()) > 0);
    }

    #[test]
    fn descendants_and_bearers_of_the_mark_are_found() {
        let mut shell = Command::new("sh");
        // The first sleeper is an orphan without environment, the second has the mark.
        shell.args(["-c", "env -i sleep 300 & sleep 300 & wait"]).env("LONGHAUL_TEST", "m-1");
        let mut shell = shell.spawn().unwrap();
        let found = || family(&[shell.id()], Some(("LONGHAUL_TEST", "m-1")));
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while found().len() < 2 {
            assert!(std::time::Instant::now() < deadline, "{:?}", found());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(family(&[], Some(("LONGHAUL_TEST", "m-2"))), [0; 0]);
        let family = found();
        shell.kill().unwrap();
        shell.wait().unwrap();
        family.iter().for_each(|&pid| kill(pid));
        while family.iter().any(|&pid| is_running(pid)) {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(cpu_time(family[0]), Duration::ZERO);
    }
}
